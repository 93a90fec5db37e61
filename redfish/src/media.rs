//! Virtual media slots: what they show, putting an image in, taking it out.
//!
//! ```text
//!   insert(slot, url)   read slot; holds this very URL? nothing is sent
//!                       POST InsertMedia {"Image": url} -> a 400/415 that names a member widens or narrows the
//!                         body: TransferProtocolType, TransferMethod, Inserted + WriteProtected, placeholders
//!                       no action, or 405/501: PATCH {"Image", "Inserted", "WriteProtected"} -> … -> {"Image"}
//!                       202: follow the task;  read back -> Applied { changed, confirmed, observed: Slot }
//!   eject(slot)         read slot; empty? nothing is sent
//!                       POST EjectMedia {} -> without body; or PATCH {"Image": null, "Inserted": false}
//!                       refused but empty by now: fine;  read back
//! ```
//!
//! A slot is empty when it says `Inserted: false` and either `ConnectedVia: NotConnected` or no image: BMCs
//! leave the old URL standing after an eject. An insert does not eject: what occupies the slot is the caller's
//! decision. A confirmed insert means the BMC shows the image, not that the host can read it: the media
//! server's log of range reads proves that. Specification: DSP0268 VirtualMedia.

use std::fmt;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use url::Url;

use crate::bmc::{Applied, Bmc};
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::exchange::{Answer, Call};
use crate::json::{self, Resource};
use crate::power::after_the_fact;
use crate::profile::{Include, InsertFields};

/// Longer URLs are cut or refused by some BMCs.
const MAX_URL: usize = 255;
/// So many bodies are tried for one insert.
const MAX_BODIES: usize = 6;

/// A media URL; its path is a grant and is not shown.
#[derive(Clone, Eq, PartialEq)]
pub struct ImageUrl(String);

impl ImageUrl {
    /// The URL itself, for comparing and sending only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether a BMC shows this URL for that one: percent-encoding decoded, case of the host ignored.
    pub fn is(&self, url: &str) -> bool {
        fn plain(text: &str) -> Option<(String, String)> {
            let url = Url::parse(text.trim()).ok()?;
            let port = url.port_or_known_default();
            let origin = format!("{}://{}:{port:?}", url.scheme(), url.host_str()?);
            Some((origin, decoded(url.path())))
        }
        self.0.trim() == url.trim() || plain(&self.0).is_some_and(|shown| plain(url) == Some(shown))
    }
}

impl fmt::Debug for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = Url::parse(&self.0).ok();
        match url.as_ref().and_then(|url| Some((url.scheme(), url.host_str()?))) {
            Some((scheme, host)) => write!(f, "{scheme}://{host}/[redacted]"),
            None => f.write_str("[redacted]"),
        }
    }
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = (byte == b'%').then(|| tail.get(..2)).flatten();
        let value = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How media gets into a slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum InsertVia {
    /// `POST` to the action's target.
    Action(String),
    /// `PATCH` of the slot.
    Patch,
    /// In no way known here.
    Nothing,
}

/// A virtual media slot as the BMC shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Slot {
    /// Its path.
    pub uri: String,
    /// `Id`.
    pub id: String,
    /// `Name`.
    pub name: String,
    /// `MediaTypes`.
    pub media_types: Vec<String>,
    /// `Inserted`.
    pub inserted: Option<bool>,
    /// `Image`; live state that is not part of a stored capability record.
    #[serde(skip)]
    pub image: Option<ImageUrl>,
    /// `ConnectedVia`.
    pub connected_via: Option<String>,
    /// How an image gets in.
    pub insert: InsertVia,
    /// The target of `EjectMedia`; some BMCs list it only while there is something to eject.
    pub eject: Option<String>,
    /// Values of `TransferProtocolType` the BMC lists, in upper case; empty if it lists none.
    pub transfer_protocols: Vec<String>,
}

impl Slot {
    pub(crate) fn of(resource: &Resource) -> Self {
        let fields = &resource.fields;
        let target =
            |name| json::word(json::action(fields, name)?, "target").and_then(|path| json::path_of(&path));
        let patchable =
            resource.allow.as_deref().is_none_or(|allow| allow.to_ascii_uppercase().contains("PATCH"));
        let insert = match target("#VirtualMedia.InsertMedia") {
            Some(target) => InsertVia::Action(target),
            None if patchable => InsertVia::Patch,
            None => InsertVia::Nothing,
        };
        let values = "TransferProtocolType@Redfish.AllowableValues";
        let in_action =
            json::action(fields, "#VirtualMedia.InsertMedia").map(|action| json::texts(action, values));
        let protocols =
            in_action.filter(|values| !values.is_empty()).unwrap_or_else(|| json::texts(fields, values));
        let image =
            fields.get("Image").and_then(Value::as_str).map(str::trim).filter(|image| !image.is_empty());
        Slot {
            uri: resource.path.clone(),
            id: json::word(fields, "Id").unwrap_or_default(),
            name: json::word(fields, "Name").unwrap_or_default(),
            media_types: json::texts(fields, "MediaTypes"),
            inserted: json::flag(fields, "Inserted"),
            image: image.map(|image| ImageUrl(json::clip(image, 4096))),
            connected_via: json::word(fields, "ConnectedVia"),
            insert,
            eject: target("#VirtualMedia.EjectMedia"),
            transfer_protocols: protocols.iter().map(|protocol| protocol.to_ascii_uppercase()).collect(),
        }
    }

    /// Whether nothing is in it, by every sign the BMC gives.
    pub fn is_empty(&self) -> bool {
        let disconnected =
            self.connected_via.as_deref().is_some_and(|via| via.eq_ignore_ascii_case("NotConnected"));
        match self.inserted {
            Some(true) => false,
            Some(false) => disconnected || self.image.is_none(),
            None => self.image.is_none(),
        }
    }

    /// Whether this image is in it.
    pub fn holds(&self, url: &str) -> bool {
        !self.is_empty()
            && self.inserted != Some(false)
            && self.image.as_ref().is_some_and(|image| image.is(url))
    }

    /// Whether there is a way to put an image in.
    pub fn takes_media(&self) -> bool {
        self.insert != InsertVia::Nothing
    }

    /// Whether the host sees it as a CD. A slot without types is judged by its name.
    pub fn is_cd(&self) -> bool {
        let named = || [&self.id, &self.name].iter().any(|name| name.to_ascii_lowercase().contains("cd"));
        self.has_type(&["cd", "dvd"]) || (self.media_types.is_empty() && named())
    }

    /// Whether the host sees it as a USB stick or floppy.
    pub fn is_usb(&self) -> bool {
        self.has_type(&["usbstick", "floppy"])
    }

    fn has_type(&self, types: &[&str]) -> bool {
        self.media_types.iter().any(|shown| types.contains(&shown.to_ascii_lowercase().as_str()))
    }
}

/// What an insert should differ in from the profile.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct InsertOptions {
    /// Members of the body; the profile's when none.
    pub fields: Option<InsertFields>,
}

impl Bmc {
    /// Reads a slot.
    pub async fn slot(&self, uri: &str) -> Result<Slot, RedfishError> {
        self.slot_for(Operation::Slot, uri).await
    }

    async fn slot_for(&self, operation: Operation, uri: &str) -> Result<Slot, RedfishError> {
        Ok(Slot::of(&self.core.read(operation, uri).await?))
    }

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
        const OPERATION: Operation = Operation::Insert;
        let scheme = check_url(url)?;
        let resource = self.core.read(OPERATION, uri).await?;
        let slot = Slot::of(&resource);
        if slot.holds(url) {
            return Ok(Applied { changed: false, confirmed: true, observed: slot });
        }
        if !slot.transfer_protocols.is_empty() && !slot.transfer_protocols.contains(&scheme) {
            let what = format!("the slot reads {} and not {scheme}", slot.transfer_protocols.join(", "));
            return Err(RedfishError::not_supported(OPERATION, what));
        }
        let answer = match &slot.insert {
            InsertVia::Action(target) => {
                let fields = options.fields.unwrap_or(self.core.profile.insert);
                let answer = self.insert_by_action(target, url, &scheme, fields).await?;
                let patchable = resource.allow.as_deref().is_some_and(|allow| allow.contains("PATCH"));
                if answer.is(&[405, 501]) && patchable {
                    self.insert_by_patch(&resource, url).await?
                } else {
                    answer
                }
            }
            InsertVia::Patch => self.insert_by_patch(&resource, url).await?,
            InsertVia::Nothing => {
                let what = "the slot has neither an InsertMedia action nor PATCH";
                return Err(RedfishError::not_supported(OPERATION, what));
            }
        };
        let secrets = path_words(url);
        if !answer.status.is_success() {
            return Err(self.core.refusal(OPERATION, &answer, &secrets));
        }
        self.core.follow(OPERATION, &answer, &secrets).await?;
        let observed = self.slot_for(OPERATION, uri).await.map_err(after_the_fact)?;
        Ok(Applied { changed: true, confirmed: observed.holds(url), observed })
    }

    /// Tries bodies until the BMC takes one or refuses for another reason than a member of the body.
    async fn insert_by_action(
        &self,
        target: &str,
        url: &str,
        scheme: &str,
        fields: InsertFields,
    ) -> Result<Answer, RedfishError> {
        let mut body = InsertBody::new(url, scheme, fields);
        let mut tries = 1;
        loop {
            let json = body.json();
            let deadline = self.core.profile.insert_timeout;
            let call = Call::mutation(Operation::Insert, Method::POST, target, deadline).body(&json);
            let answer = self.core.perform(&call, 1).await?;
            let error = self.core.refusal(Operation::Insert, &answer, &[]);
            let definite = matches!(error.kind, ErrorKind::Refused { status: 400 | 415 | 422, .. });
            if !definite || tries == MAX_BODIES || !body.amend(&answer) {
                return Ok(answer);
            }
            tries += 1;
        }
    }

    async fn insert_by_patch(&self, slot: &Resource, url: &str) -> Result<Answer, RedfishError> {
        let deadline = self.core.profile.insert_timeout;
        let smaller = [json!({ "Image": url, "Inserted": true }), json!({ "Image": url })];
        let first = json!({ "Image": url, "Inserted": true, "WriteProtected": true });
        let mut answer = self.core.patch(Operation::Insert, slot, &first, deadline).await?;
        for body in &smaller {
            let narrower = answer.error().names("WriteProtected") || answer.error().names("Inserted");
            if !answer.is(&[400, 422]) || !narrower {
                break;
            }
            answer = self.core.patch(Operation::Insert, slot, body, deadline).await?;
        }
        Ok(answer)
    }

    /// Empties the slot at `uri`. The host must be off, or must not use the media: this asks nobody.
    pub async fn eject(&self, uri: &str) -> Result<Applied<Slot>, RedfishError> {
        const OPERATION: Operation = Operation::Eject;
        let resource = self.core.read(OPERATION, uri).await?;
        let slot = Slot::of(&resource);
        if slot.is_empty() {
            return Ok(Applied { changed: false, confirmed: true, observed: slot });
        }
        let deadline = self.core.profile.mutation_timeout;
        let answer = match &slot.eject {
            Some(target) => {
                let empty = json!({});
                let call = Call::mutation(OPERATION, Method::POST, target, deadline);
                let answer = self.core.perform(&call.body(&empty), 1).await?;
                if answer.is(&[400, 415]) {
                    let call = Call::mutation(OPERATION, Method::POST, target, deadline);
                    self.core.perform(&call, 1).await?
                } else {
                    answer
                }
            }
            None => {
                let body = json!({ "Image": null, "Inserted": false });
                let answer = self.core.patch(OPERATION, &resource, &body, deadline).await?;
                if answer.is(&[400, 422]) && answer.error().names("Inserted") {
                    self.core.patch(OPERATION, &resource, &json!({ "Image": null }), deadline).await?
                } else {
                    answer
                }
            }
        };
        let secrets = slot.image.as_ref().map(|image| path_words(image.expose())).unwrap_or_default();
        if !answer.status.is_success() {
            let error = self.core.refusal(OPERATION, &answer, &secrets);
            let observed = self.slot_for(OPERATION, uri).await;
            return match observed {
                Ok(observed) if observed.is_empty() => {
                    Ok(Applied { changed: true, confirmed: true, observed })
                }
                _ => Err(error),
            };
        }
        self.core.follow(OPERATION, &answer, &secrets).await?;
        let observed = self.slot_for(OPERATION, uri).await.map_err(after_the_fact)?;
        Ok(Applied { changed: true, confirmed: observed.is_empty(), observed })
    }
}

/// The scheme of a media URL in upper case, if it is one a BMC could be given.
fn check_url(url: &str) -> Result<String, RedfishError> {
    let refuse = |detail: &str| {
        let kind = ErrorKind::Config { detail: format!("media URL: {detail}") };
        Err(RedfishError::new(Operation::Insert, kind))
    };
    if url.len() > MAX_URL {
        return refuse("longer than 255 bytes");
    }
    let Some(parsed) = Url::parse(url).ok().filter(Url::has_host) else {
        return refuse("not an absolute URL");
    };
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return refuse("it has a query or fragment, which some BMCs refuse");
    }
    Ok(parsed.scheme().to_ascii_uppercase())
}

/// The segments of a URL's path, which must not be shown.
fn path_words(url: &str) -> Vec<&str> {
    let path =
        url.split_once("://").map_or(url, |(_, rest)| rest).split_once('/').map_or("", |(_, path)| path);
    path.split('/').filter(|word| word.len() >= 8).collect()
}

/// The body of an insert, and what has been tried.
struct InsertBody<'a> {
    url: &'a str,
    scheme: &'a str,
    fields: InsertFields,
    inserted: bool,
    protocol: bool,
    method: bool,
    placeholders: bool,
}

impl<'a> InsertBody<'a> {
    fn new(url: &'a str, scheme: &'a str, fields: InsertFields) -> Self {
        let always = |include| include == Include::Always;
        InsertBody {
            url,
            scheme,
            inserted: always(fields.inserted),
            protocol: always(fields.protocol),
            method: always(fields.method),
            placeholders: always(fields.placeholder_credentials),
            fields,
        }
    }

    fn json(&self) -> Value {
        let mut body = Map::new();
        body.insert("Image".to_owned(), self.url.into());
        if self.inserted {
            body.insert("Inserted".to_owned(), true.into());
            body.insert("WriteProtected".to_owned(), true.into());
        }
        if self.protocol {
            body.insert("TransferProtocolType".to_owned(), self.scheme.into());
        }
        if self.method {
            body.insert("TransferMethod".to_owned(), "Stream".into());
        }
        if self.placeholders {
            body.insert("UserName".to_owned(), "none".into());
            body.insert("Password".to_owned(), "none".into());
        }
        Value::Object(body)
    }

    /// Flips the member the refusal names; false when it names none that may change, or one a second time.
    fn amend(&mut self, answer: &Answer) -> bool {
        let error = answer.error();
        let members: [(&mut bool, &mut Include, &[&str]); 4] = [
            (&mut self.protocol, &mut self.fields.protocol, &["TransferProtocolType"]),
            (&mut self.method, &mut self.fields.method, &["TransferMethod"]),
            (&mut self.placeholders, &mut self.fields.placeholder_credentials, &["UserName", "Password"]),
            (&mut self.inserted, &mut self.fields.inserted, &["Inserted", "WriteProtected"]),
        ];
        for (sent, include, names) in members {
            if names.iter().any(|name| error.names(name)) && *include != Include::Never {
                // A member changes once only: afterwards it stays as it is now.
                (*sent, *include) = (!*sent, Include::Never);
                return true;
            }
        }
        false
    }
}
