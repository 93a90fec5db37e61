//! Putting an image into a slot, in the ways BMCs know, with the smallest body a BMC takes.
//!
//! ```text
//!   Action     {"Image"} --400/415/422 that names a member--> with it, or without it --> …
//!   Patch      {"Image", "Inserted", "WriteProtected"} --names one--> {"Image", "Inserted"} --> {"Image"}
//!   Hp         {"Image"}           Vmm   {"VmmControlType": "Connect", "Image"}
//!   IsoConfig  UnMount, PATCH {"Host", "Path"}, Mount
//! ```
//!
//! A member changes once only; what a BMC asked for or refused is learned when it then took the image.

use http::Method;
use serde_json::{Map, Value, json};

use super::{InsertVia, Slot, path_words, scheme_of};
use crate::bmc::{Applied, Bmc};
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{Answer, Call, Core};
use crate::json::Resource;
use crate::power::mark_maybe_applied;
use crate::profile::{Include, InsertFields, InsertMember};

const OPERATION: Operation = Operation::Insert;
/// So many bodies are tried for one insert.
const MAX_BODIES: usize = 8;

/// What an insert should differ in from the profile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InsertOptions {
    /// Members of the body; the profile's when none.
    pub fields: Option<InsertFields>,
}

impl Bmc {
    /// Puts the image at `url` into the slot at `uri`.
    ///
    /// If the read-back does not confirm it yet, poll [`Bmc::slot`] until the profile's lag is over. A failure
    /// that [`RedfishError::maybe_applied`] is settled the same way before anything else is sent. `NotSupported`
    /// means this slot takes nothing: try another. `Busy` or `Refused` with status 409 on a second slot means
    /// the BMC may hold one image only.
    pub async fn insert(
        &self,
        uri: &str,
        url: &str,
        options: InsertOptions,
    ) -> Result<Applied<Slot>, RedfishError> {
        let core = &self.core;
        let profile = core.profile();
        let scheme = scheme_of(OPERATION, &profile, url)?;
        let (resource, slot) = core.slot_for_update(OPERATION, uri, |slot| !slot.holds(url)).await?;
        if slot.holds(url) {
            return Ok(Applied { changed: false, confirmed: true, observed: slot });
        }
        if !slot.transfer_protocols.is_empty() && !slot.transfer_protocols.contains(&scheme) {
            let reads = slot.transfer_protocols.join(", ").to_ascii_lowercase();
            let kind = ErrorKind::MediaUrl { reads, served: scheme.to_ascii_lowercase() };
            return Err(RedfishError::new(OPERATION, kind));
        }
        let fields = options.fields.unwrap_or(profile.insert_fields);
        let put = Put { core, uri, url, scheme: &scheme, fields };
        let answer = match &slot.insert {
            InsertVia::Action(target) => {
                let answer = put.by_action(target).await?;
                let patchable = resource.allow.as_deref().is_some_and(|allow| allow.contains("PATCH"));
                if answer.is(&[405, 501]) && patchable { put.by_patch(&resource).await? } else { answer }
            }
            InsertVia::Patch => put.by_patch(&resource).await?,
            InsertVia::Hp(target) => put.post(target, &json!({ "Image": url })).await?,
            InsertVia::Vmm(target) => {
                put.post(target, &json!({ "VmmControlType": "Connect", "Image": url })).await?
            }
            InsertVia::IsoConfig(target) => core.mount_config(&resource, &slot, target, url).await?,
            InsertVia::Nothing => {
                let what = "the slot has neither an InsertMedia action nor PATCH, or must not be used";
                return Err(RedfishError::not_supported(OPERATION, what));
            }
        };
        let secrets = path_words(url);
        if !answer.status.is_success() {
            if answer.is(&[405, 501]) {
                self.slot_refuses(uri);
            }
            return Err(core.refusal(OPERATION, &answer, &secrets));
        }
        core.follow(OPERATION, &answer, &secrets).await?;
        let (_, observed) = core.slot(OPERATION, uri).await.map_err(mark_maybe_applied)?;
        Ok(Applied { changed: true, confirmed: observed.may_hold(url), observed })
    }
}

/// An insert under way.
struct Put<'a> {
    core: &'a Core,
    uri: &'a str,
    url: &'a str,
    scheme: &'a str,
    fields: InsertFields,
}

impl Put<'_> {
    async fn post(&self, target: &str, body: &Value) -> Result<Answer, RedfishError> {
        let deadline = self.core.profile().insert_timeout;
        let call = Call::mutation(OPERATION, Method::POST, target, deadline).touching(self.uri);
        self.core.perform(&call.body(body), 1).await
    }

    /// Tries bodies until the BMC takes one or refuses for another reason than a member of the body.
    async fn by_action(&self, target: &str) -> Result<Answer, RedfishError> {
        let mut body = Body::new(self.fields);
        let mut tries = 1;
        loop {
            let answer = self.post(target, &body.json(self.url, self.scheme)).await?;
            let error = self.core.refusal(OPERATION, &answer, &[]);
            if answer.status.is_success() {
                self.learn(&body);
                return Ok(answer);
            }
            let definite = matches!(error.kind, ErrorKind::Refused { status: 400 | 415 | 422, .. });
            if !definite || tries == MAX_BODIES || !body.amend(&answer) {
                return Ok(answer);
            }
            tries += 1;
        }
    }

    async fn by_patch(&self, slot: &Resource) -> Result<Answer, RedfishError> {
        let deadline = self.core.profile().insert_timeout;
        let mut body = Body::new(self.fields);
        for (member, include) in [
            (InsertMember::Inserted, self.fields.inserted),
            (InsertMember::WriteProtected, self.fields.write_protected),
        ] {
            // Without `Inserted` some take the URL and attach nothing, so it is sent until it is refused.
            body.set(member, include != Include::Never);
        }
        loop {
            let json = body.json(self.url, self.scheme);
            let answer = self.core.patch(OPERATION, slot, &json, deadline, Some(self.uri)).await?;
            if answer.status.is_success() {
                self.learn(&body);
            }
            let narrower =
                [InsertMember::WriteProtected, InsertMember::Inserted].into_iter().find(|member| {
                    body.sent(*member) && member.names().iter().any(|name| answer.error().names(name))
                });
            match narrower.filter(|_| answer.is(&[400, 422])) {
                Some(member) => body.set(member, false),
                None => return Ok(answer),
            }
        }
    }

    fn learn(&self, body: &Body) {
        let changed = body.changed.clone();
        if changed.is_empty() {
            return;
        }
        self.core.choice.learn(|learned| {
            for member in changed {
                let (to, from) = match body.sent(member) {
                    true => (&mut learned.wants, &mut learned.refuses),
                    false => (&mut learned.refuses, &mut learned.wants),
                };
                to.insert(member);
                from.remove(&member);
            }
        });
    }
}

/// The members of a body, and what has been tried.
struct Body {
    fields: InsertFields,
    sent: Vec<InsertMember>,
    changed: Vec<InsertMember>,
}

impl Body {
    fn new(mut fields: InsertFields) -> Self {
        let all = InsertMember::ALL.into_iter();
        let sent = all.filter(|member| *member.of(&mut fields) == Include::Always).collect();
        Body { fields, sent, changed: Vec::new() }
    }

    fn sent(&self, member: InsertMember) -> bool {
        self.sent.contains(&member)
    }

    /// Sends a member, or leaves it out; that counts as a change once the body has been refused with the other.
    fn set(&mut self, member: InsertMember, send: bool) {
        let before = self.sent(member);
        self.sent.retain(|sent| *sent != member);
        if send {
            self.sent.push(member);
        } else if before {
            self.changed.push(member);
        }
    }

    fn json(&self, url: &str, scheme: &str) -> Value {
        let mut body = Map::new();
        body.insert("Image".to_owned(), url.into());
        for member in &self.sent {
            for name in member.names() {
                let value: Value = match member {
                    InsertMember::Inserted | InsertMember::WriteProtected => true.into(),
                    InsertMember::Protocol => scheme.into(),
                    InsertMember::Method => "Stream".into(),
                    InsertMember::Creds => "none".into(),
                    InsertMember::MediaType => "CD".into(),
                };
                body.insert((*name).to_owned(), value);
            }
        }
        Value::Object(body)
    }

    /// Flips the member the refusal names; false when it names none that may change, or one a second time.
    fn amend(&mut self, answer: &Answer) -> bool {
        let error = answer.error();
        for member in InsertMember::ALL {
            let named = member.names().iter().any(|name| error.names(name));
            let open = *member.of(&mut self.fields) != Include::Never && !self.changed.contains(&member);
            if named && open {
                self.flip(member);
                // Who wants the one mostly wants the other; who does not refuses it by name.
                let pair = InsertMember::WriteProtected;
                let along = member == InsertMember::Inserted && self.sent(member) && !self.sent(pair);
                if along && self.fields.write_protected == Include::WhenAsked && !self.changed.contains(&pair)
                {
                    self.sent.push(pair);
                }
                return true;
            }
        }
        false
    }

    fn flip(&mut self, member: InsertMember) {
        match self.sent(member) {
            true => self.sent.retain(|sent| *sent != member),
            false => self.sent.push(member),
        }
        self.changed.push(member);
    }
}
