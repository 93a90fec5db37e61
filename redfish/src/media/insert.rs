//! Inserts an image into a slot, by each mechanism BMCs have, with the smallest body the BMC accepts.
//!
//! ```text
//!   Action               {"Image"} --400/415/422 that names a member--> add it, or leave it out --> …
//!   Patch                {"Image", "Inserted", "WriteProtected"} --names one--> {"Image", "Inserted"} --> {"Image"}
//!   InsertVirtualMedia   {"Image"}
//!   VmmControl           {"VmmControlType": "Connect", "Image"}
//!   IsoConfig            UnMount, PATCH {"Host", "Path"}, Mount
//! ```
//!
//! Each member is changed at most once. A member the BMC demanded or refused is learned when the BMC then accepted
//! the image.

use http::Method;
use serde_json::{Map, Value, json};

use super::{InsertVia, Slot, path_words, scheme_of};
use crate::bmc::{Bmc, ChangeResult};
use crate::error::{ErrorKind, Operation, RedfishError, mark_maybe_applied};
use crate::exchange::{BmcResponse, Call, Core};
use crate::json::Resource;
use crate::profile::{Include, InsertFields, InsertMember};

const OPERATION: Operation = Operation::Insert;
/// Maximum number of bodies tried for one insert.
const MAX_BODIES: usize = 8;

/// Deviations of one insert from the profile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InsertOptions {
    /// Members of the body; `None` takes those of the profile.
    pub fields: Option<InsertFields>,
}

impl Bmc {
    /// Inserts the image at `url` into the slot at `uri`.
    ///
    /// If the read-back does not confirm the insert yet, poll [`Bmc::slot`] until the profile's `read_back_lag` has
    /// passed. After a failure with [`RedfishError::maybe_applied`], do so before anything else is sent.
    ///
    /// # Errors
    ///
    /// `NotSupported` when this slot accepts no image: try another one. `Busy`, or `Refused` with status 409, for a
    /// second slot can mean that the BMC holds one image only. `MediaUrl` when the BMC does not support the URL's scheme.
    pub async fn insert(
        &self,
        uri: &str,
        url: &str,
        options: InsertOptions,
    ) -> Result<ChangeResult<Slot>, RedfishError> {
        let core = &self.core;
        let profile = core.profile();
        let scheme = scheme_of(OPERATION, &profile, url)?;
        let (resource, slot) = core.slot_for_update(OPERATION, uri, |slot| !slot.holds(url)).await?;
        if slot.holds(url) {
            return Ok(ChangeResult { changed: false, confirmed: true, observed: slot });
        }
        if !slot.transfer_protocols.is_empty() && !slot.transfer_protocols.contains(&scheme) {
            let reads = slot.transfer_protocols.join(", ").to_ascii_lowercase();
            let kind = ErrorKind::MediaUrl { reads, served: scheme.to_ascii_lowercase() };
            return Err(RedfishError::new(OPERATION, kind));
        }
        let fields = options.fields.unwrap_or(profile.insert_fields);
        let request = InsertRequest { core, uri, url, scheme: &scheme, fields };
        let response = match &slot.insert {
            InsertVia::Action(target) => {
                let response = request.by_action(target).await?;
                let patchable = resource.allow.as_deref().is_some_and(|allow| allow.contains("PATCH"));
                if response.is(&[405, 501]) && patchable {
                    request.by_patch(&resource).await?
                } else {
                    response
                }
            }
            InsertVia::Patch => request.by_patch(&resource).await?,
            InsertVia::InsertVirtualMedia(target) => request.post(target, &json!({ "Image": url })).await?,
            InsertVia::VmmControl(target) => {
                request.post(target, &json!({ "VmmControlType": "Connect", "Image": url })).await?
            }
            InsertVia::IsoConfig(target) => core.mount_config(&resource, &slot, target, url).await?,
            InsertVia::Nothing => {
                let what = "the slot has neither an InsertMedia action nor PATCH, or must not be used";
                return Err(RedfishError::not_supported(OPERATION, what));
            }
        };
        let secrets = path_words(url);
        if !response.status.is_success() {
            if response.is(&[405, 501]) {
                self.slot_refuses(uri);
            }
            return Err(core.refusal(OPERATION, &response, &secrets));
        }
        if let Some(observed) = core.shown_before_its_task_is_read(&response, uri, url).await {
            return Ok(ChangeResult { changed: true, confirmed: true, observed });
        }
        core.follow(OPERATION, &response, &secrets).await?;
        let (_, observed) = core.slot(OPERATION, uri).await.map_err(mark_maybe_applied)?;
        Ok(ChangeResult { changed: true, confirmed: observed.may_hold(url), observed })
    }
}

impl Core {
    /// Reads the slot after the first pause of a task, and returns it if it shows exactly this image: the task need not be read.
    ///
    /// Only where the profile has a pause before the host is started, after which the boot slot is read again: a task that fails
    /// after the slot showed the image takes the image away. Elsewhere, and in every other case, the task says how it ended.
    async fn shown_before_its_task_is_read(
        &self,
        response: &BmcResponse,
        uri: &str,
        url: &str,
    ) -> Option<Slot> {
        if self.profile().settle_after_mount.is_zero() || !self.pause_of_running(response).await {
            return None;
        }
        let (_, slot) = self.slot(OPERATION, uri).await.ok()?;
        (slot.holds(url) && slot.inserted == Some(true)).then_some(slot)
    }
}

/// Parameters of one insert.
struct InsertRequest<'a> {
    core: &'a Core,
    uri: &'a str,
    url: &'a str,
    scheme: &'a str,
    fields: InsertFields,
}

impl InsertRequest<'_> {
    async fn post(&self, target: &str, body: &Value) -> Result<BmcResponse, RedfishError> {
        let deadline = self.core.profile().insert_timeout;
        let call = Call::mutation(OPERATION, Method::POST, target, deadline).touching(self.uri);
        self.core.perform(&call.body(body), 1).await
    }

    /// Tries bodies until the BMC accepts one or refuses for a reason other than a member of the body.
    async fn by_action(&self, target: &str) -> Result<BmcResponse, RedfishError> {
        let mut body = InsertBody::new(self.fields);
        let mut tries = 1;
        loop {
            let response = self.post(target, &body.json(self.url, self.scheme)).await?;
            let error = self.core.refusal(OPERATION, &response, &[]);
            if response.status.is_success() {
                self.learn(&body);
                return Ok(response);
            }
            let definite = matches!(error.kind, ErrorKind::Refused { status: 400 | 415 | 422, .. });
            if !definite || tries == MAX_BODIES || !body.amend(&response) {
                return Ok(response);
            }
            tries += 1;
        }
    }

    async fn by_patch(&self, slot: &Resource) -> Result<BmcResponse, RedfishError> {
        let deadline = self.core.profile().insert_timeout;
        let mut body = InsertBody::new(self.fields);
        for (member, include) in [
            (InsertMember::Inserted, self.fields.inserted),
            (InsertMember::WriteProtected, self.fields.write_protected),
        ] {
            // Without `Inserted` some BMCs accept the URL and attach nothing, so it is sent until it is refused.
            body.set(member, include != Include::Never);
        }
        loop {
            let json = body.json(self.url, self.scheme);
            let response = self.core.patch(OPERATION, slot, &json, deadline, Some(self.uri)).await?;
            if response.status.is_success() {
                self.learn(&body);
            }
            let narrower =
                [InsertMember::WriteProtected, InsertMember::Inserted].into_iter().find(|member| {
                    body.sent(*member) && member.names().iter().any(|name| response.error().names(name))
                });
            match narrower.filter(|_| response.is(&[400, 422])) {
                Some(member) => body.set(member, false),
                None => return Ok(response),
            }
        }
    }

    fn learn(&self, body: &InsertBody) {
        let changed = body.changed.clone();
        if changed.is_empty() {
            return;
        }
        self.core.active_profile.learn(|learned| {
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

/// The members of an insert body, and those that were changed after a refusal.
struct InsertBody {
    fields: InsertFields,
    sent: Vec<InsertMember>,
    changed: Vec<InsertMember>,
}

impl InsertBody {
    fn new(mut fields: InsertFields) -> Self {
        let all = InsertMember::ALL.into_iter();
        let sent = all.filter(|member| *member.of(&mut fields) == Include::Always).collect();
        InsertBody { fields, sent, changed: Vec::new() }
    }

    fn sent(&self, member: InsertMember) -> bool {
        self.sent.contains(&member)
    }

    /// Adds or removes a member; removing one that was sent counts as a change.
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

    /// Adds or removes the member the refusal names; false when it names none that may still change.
    fn amend(&mut self, response: &BmcResponse) -> bool {
        let error = response.error();
        for member in InsertMember::ALL {
            let named = member.names().iter().any(|name| error.names(name));
            let open = *member.of(&mut self.fields) != Include::Never && !self.changed.contains(&member);
            if named && open {
                self.flip(member);
                // A BMC that demands `Inserted` mostly demands `WriteProtected` too; otherwise it refuses it by name.
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
