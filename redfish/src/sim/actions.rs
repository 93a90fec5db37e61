//! What changes a twin: login and logout, the boot override, reset, insert and eject.
//!
//! ```text
//!   body ─ declared JSON? ─ an object? ─ only known names? ─ right types? ─ listed values? ─► state ─► 204
//!            415              400          400                400             400             409, 412, 428, 503
//! ```
//!
//! Invariants: a refused action changes nothing; a slot is `busy` from before its image is read until it holds it
//! or gave up, and a busy slot takes neither insert nor eject.
//!
//! Reference: DSP0266 clauses 7.7 to 7.11 (create, modify, delete, actions), DSP0268 VirtualMedia and ComputerSystem.

use http::{StatusCode, header};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::{Host, Url};

use super::{
    boot::{BootOverride, OverrideEnabled},
    call::{Body, Call},
    config::{AlreadyThere, BootPolicy, EjectEmpty, MediaKind, UrlRules},
    host::MediaUrl,
    journal::Change,
    media_reader::{self, MediaFacts, MediaRefusal},
    power::{Refusal, ResetType},
    reply::{Refused, Reply},
    routes::{self, Resource},
    state::Medium,
    twin::Twin,
};

const INSERT: &str = "VirtualMedia.InsertMedia";
const EJECT: &str = "VirtualMedia.EjectMedia";
const RESET: &str = "ComputerSystem.Reset";
const CD_SECTOR: u64 = 2048;
const USB_SECTOR: u64 = 512;

impl Twin {
    // === Sessions ===

    pub(super) fn login(&self, call: &Call) -> Result<Reply, Refused> {
        let body = object(call)?.ok_or_else(Refused::malformed_json)?;
        if let Some(name) = body.keys().find(|name| !matches!(name.as_str(), "UserName" | "Password" | "Oem"))
        {
            return Err(Refused::property_unknown(name));
        }
        let word = |name: &str| match body.get(name) {
            None => Err(Refused::property_missing(name)),
            Some(value) => value.as_str().ok_or_else(|| Refused::property_type(name)),
        };
        let (username, password) = (word("UserName")?, word("Password")?);
        let config = &self.inner.config;
        let (id, token) = {
            let mut state = self.state();
            let opened = state.sessions.login(config, username, password, Instant::now())?;
            state.counters.logins += 1;
            opened
        };
        let session = self.view(&config.serial, |view| view.session(id));
        Ok(Reply::json(StatusCode::CREATED, &session)
            .with(header::LOCATION, &routes::uri(config, &Resource::Session(id)))
            .with(http::HeaderName::from_static("x-auth-token"), &token))
    }

    pub(super) fn logout(&self, call: &Call, id: u64) -> Result<Reply, Refused> {
        let mut state = self.state();
        if !state.sessions.has(id) {
            return Err(Refused::not_found(&call.path));
        }
        state.sessions.close(id);
        Ok(Reply::no_content())
    }

    // === The boot override ===

    pub(super) fn patch_system(&self, call: &Call) -> Result<Reply, Refused> {
        let body = object(call)?.filter(|body| !body.is_empty()).ok_or_else(Refused::malformed_json)?;
        let config = &self.inner.config;
        let at = self.elapsed();
        let mut state = self.state();
        check_if_match(call, &state.system_etag(), config.require_if_match)?;
        let mut boot = state.boot.clone();
        for (name, value) in body {
            match name.as_str() {
                "Boot" => {
                    let changes = value.as_object().ok_or_else(|| Refused::property_type("Boot"))?;
                    patch_boot(&mut boot, changes, &config.boot)?;
                }
                "Id" | "Name" | "SerialNumber" | "SKU" | "Model" | "Manufacturer" | "UUID" | "PowerState"
                | "Status" | "BiosVersion" | "SystemType" | "LastResetTime" | "BootProgress" | "Links"
                | "Actions" | "VirtualMedia" => return Err(Refused::property_not_writable(name)),
                _ => return Err(Refused::property_unknown(name)),
            }
        }
        state.system_revision += 1;
        state.changed(
            at,
            Change::BootOverride { target: boot.target.clone(), enabled: boot.enabled.as_str() },
        );
        state.boot = boot;
        let etag = state.system_etag();
        drop(state);
        self.notify();
        Ok(Reply::no_content().with(header::ETAG, &etag))
    }

    // === Power ===

    pub(super) fn reset(&self, call: &Call) -> Result<Reply, Refused> {
        let body = object(call)?.ok_or_else(|| Refused::parameter_missing(RESET, "ResetType"))?;
        if let Some(name) = body.keys().find(|name| *name != "ResetType") {
            return Err(Refused::parameter_unknown(RESET, name));
        }
        let value = body.get("ResetType").ok_or_else(|| Refused::parameter_missing(RESET, "ResetType"))?;
        let word = value.as_str().ok_or_else(|| Refused::parameter_type(RESET, "ResetType"))?;
        let policy = &self.inner.config.power;
        let kind: ResetType = word
            .parse()
            .ok()
            .filter(|kind| policy.reset_types.contains(kind))
            .ok_or_else(|| Refused::parameter_not_in_list(RESET, "ResetType", word))?;
        let at = self.elapsed();
        let outcome = self.drive(|state| {
            let outcome = state.machine.reset(kind, policy);
            if outcome.is_ok() {
                state.changed(at, Change::Reset(kind));
            }
            outcome
        });
        match outcome {
            Ok(timer) => {
                self.settle(timer);
                Ok(Reply::no_content())
            }
            Err(Refusal::AlreadyThere) if policy.already_there == AlreadyThere::NoOp => {
                Ok(Reply::no_content())
            }
            Err(refusal) => Err(refuse_reset(kind, refusal, policy.already_there)),
        }
    }

    // === Slots ===

    pub(super) async fn insert(&self, call: &Call, index: usize) -> Result<Reply, Refused> {
        let config = &self.inner.config;
        let url = self.read_insert(call)?;
        {
            let mut state = self.state();
            let slot = &mut state.slots[index];
            if slot.busy {
                return Err(Refused::busy());
            }
            if slot.medium.is_some() {
                return Err(Refused::new(
                    StatusCode::CONFLICT,
                    "ResourceInUse",
                    "The change to the requested resource failed because the resource is in use or in transition.",
                )
                .resolution("Eject the media that is inserted and resubmit the request."));
            }
            slot.busy = true;
        }
        self.notify();
        let looked = tokio::time::timeout(
            config.media.timeout,
            media_reader::inspect(&*self.inner.media, &url, config.media.read),
        )
        .await;
        let facts = looked
            .unwrap_or_else(|_| Err(MediaRefusal::Unreachable("the image was not read in time".to_owned())))
            .and_then(|facts| check_size(facts, config.slots[index].kind, config.media.min_sectors));
        let at = self.elapsed();
        let mut state = self.state();
        state.slots[index].busy = false;
        let facts = facts.map_err(|refusal| refuse_media(&url, &refusal))?;
        let change =
            Change::Inserted { slot: config.slots[index].id.clone(), file: url.file_name().to_owned() };
        state.slots[index].medium = Some(Medium { url, facts });
        state.slots[index].revision += 1;
        state.changed(at, change);
        drop(state);
        self.notify();
        Ok(Reply::no_content())
    }

    pub(super) fn eject(&self, call: &Call, index: usize) -> Result<Reply, Refused> {
        let config = &self.inner.config;
        match object(call)? {
            None if config.media.body_required => return Err(unsupported_media_type()),
            None => {}
            Some(body) => {
                if let Some(name) = body.keys().next() {
                    return Err(Refused::parameter_unknown(EJECT, name));
                }
            }
        }
        let at = self.elapsed();
        let mut state = self.state();
        if state.slots[index].busy {
            return Err(Refused::busy());
        }
        if state.slots[index].medium.is_some() {
            self.remove_medium(&mut state, index, at);
        } else if config.media.eject_empty == EjectEmpty::Refused {
            return Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "OperationFailed",
                "There is no media in the virtual media slot to eject.",
            ));
        }
        drop(state);
        self.notify();
        Ok(Reply::no_content())
    }

    /// The body of an insert: all it says must be true of this twin.
    fn read_insert(&self, call: &Call) -> Result<MediaUrl, Refused> {
        let rules = &self.inner.config.media.insert;
        let body = object(call)?.ok_or_else(|| Refused::parameter_missing(INSERT, "Image"))?;
        if let Some(name) = body.keys().find(|name| !rules.accepted.contains(name)) {
            return Err(Refused::parameter_unknown(INSERT, name));
        }
        if let Some(name) = rules.required.iter().find(|name| !body.contains_key(*name)) {
            return Err(Refused::parameter_missing(INSERT, name));
        }
        let word = |name: &str| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or_else(|| Refused::parameter_type(INSERT, name)),
        };
        for name in ["Inserted", "WriteProtected"] {
            match body.get(name) {
                None | Some(Value::Bool(true)) => {}
                Some(Value::Bool(false)) => {
                    return Err(Refused::parameter_not_in_list(INSERT, name, "false"));
                }
                Some(_) => return Err(Refused::parameter_type(INSERT, name)),
            }
        }
        for name in ["UserName", "Password"] {
            word(name)?;
        }
        if let Some(method) = word("TransferMethod")?.filter(|&method| method != "Stream") {
            return Err(Refused::parameter_not_in_list(INSERT, "TransferMethod", method));
        }
        let image = word("Image")?.ok_or_else(|| Refused::parameter_missing(INSERT, "Image"))?;
        let url = check_url(image, &self.inner.config.media.url)
            .map_err(|why| Refused::parameter_format(INSERT, "Image", why))?;
        let protocol = word("TransferProtocolType")?;
        if let Some(protocol) = protocol.filter(|protocol| !protocol.eq_ignore_ascii_case(url.scheme())) {
            return Err(Refused::parameter_not_in_list(INSERT, "TransferProtocolType", protocol));
        }
        Ok(MediaUrl::new(image))
    }
}

/// Applies the `Boot` object of a PATCH; on refusal the caller throws `boot` away.
fn patch_boot(
    boot: &mut BootOverride,
    changes: &Map<String, Value>,
    policy: &BootPolicy,
) -> Result<(), Refused> {
    for (name, value) in changes {
        let property = format!("Boot/{name}");
        let word = || value.as_str().ok_or_else(|| Refused::property_type(&property));
        match name.as_str() {
            "BootSourceOverrideTarget" => boot.target = listed(&property, word()?, &policy.targets)?,
            "BootSourceOverrideMode" => boot.mode = listed(&property, word()?, &policy.modes)?,
            "BootSourceOverrideEnabled" => {
                let mut allowed = policy.enabled.iter();
                let word = word()?;
                boot.enabled = *allowed
                    .find(|enabled| enabled.as_str() == word)
                    .ok_or_else(|| Refused::property_not_in_list(&property, word))?;
            }
            _ => return Err(Refused::property_unknown(&property)),
        }
    }
    let disables =
        changes.contains_key("BootSourceOverrideEnabled") && boot.enabled == OverrideEnabled::Disabled;
    if disables {
        "None".clone_into(&mut boot.target);
    }
    Ok(())
}

fn check_if_match(call: &Call, current: &str, required: bool) -> Result<(), Refused> {
    let Some(told) = call.header(header::IF_MATCH) else {
        return if required {
            Err(Refused::new(
                StatusCode::PRECONDITION_REQUIRED,
                "PreconditionRequired",
                "A precondition header or annotation is required to change the resource.",
            ))
        } else {
            Ok(())
        };
    };
    // Weak tags never match here: RFC 9110 demands the strong comparison for If-Match.
    if told.trim() == "*" || told.split(',').any(|tag| tag.trim() == current) {
        return Ok(());
    }
    Err(Refused::new(
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "The ETag supplied did not match the ETag required to change this resource.",
    )
    .resolution("Try the operation again using the appropriate ETag."))
}

/// The body as an object; `None` if there is none.
fn object(call: &Call) -> Result<Option<&Map<String, Value>>, Refused> {
    match &call.body {
        Body::Absent => Ok(None),
        Body::Object(object) => Ok(Some(object)),
        Body::Malformed => Err(Refused::malformed_json()),
        Body::WrongType => Err(unsupported_media_type()),
        Body::TooLong => Err(Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "PayloadTooLarge",
            "The supplied payload exceeds the maximum size supported by the service.",
        )),
    }
}

fn unsupported_media_type() -> Refused {
    Refused::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "HeaderInvalid",
        "Header 'Content-Type' is invalid: the body has to be application/json.",
    )
    .args(&["Content-Type"])
}

fn listed(property: &str, word: &str, allowed: &[String]) -> Result<String, Refused> {
    let mut allowed = allowed.iter();
    allowed.find(|value| *value == word).cloned().ok_or_else(|| Refused::property_not_in_list(property, word))
}

fn refuse_reset(kind: ResetType, refusal: Refusal, already_there: AlreadyThere) -> Refused {
    let conflict = |text: String| {
        Refused::new(StatusCode::CONFLICT, "ActionParameterValueConflict", text)
            .args(&["ResetType", kind.as_str()])
    };
    match (refusal, already_there) {
        (Refusal::Standby, _) => Refused::new(
            StatusCode::CONFLICT,
            "ResourceInStandby",
            "The request could not be performed because the resource is in standby.",
        )
        .resolution("Ensure that the resource is in the correct power state and resubmit the request."),
        (Refusal::Moving, _) => {
            conflict(format!("The reset type {kind} cannot be used while the host powers off."))
        }
        (Refusal::AlreadyThere, AlreadyThere::BadRequest) => Refused::new(
            StatusCode::BAD_REQUEST,
            "InvalidOperationForSystemState",
            format!("The operation {kind} was not successful due to the current power state."),
        ),
        (Refusal::AlreadyThere, _) => conflict(format!(
            "The reset type {kind} cannot be used: the host is in that power state already."
        )),
    }
}

fn check_url(image: &str, rules: &UrlRules) -> Result<Url, &'static str> {
    if image.len() > rules.max_bytes {
        return Err("the URI is too long");
    }
    let url = Url::parse(image).map_err(|_| "it is not a URI")?;
    if !rules.schemes.iter().any(|scheme| scheme == url.scheme()) {
        return Err("the scheme is not supported");
    }
    match url.host() {
        None | Some(Host::Domain("")) => return Err("the URI has no host"),
        Some(_) => {}
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials are not taken in the URI");
    }
    let port = url.port_or_known_default();
    if rules.ports.as_ref().is_some_and(|ports| !port.is_some_and(|port| ports.contains(&port))) {
        return Err("the port is not supported");
    }
    if !rules.query && image.contains(['?', '&']) {
        return Err("'?' and '&' are not supported");
    }
    if url.fragment().is_some() {
        return Err("a fragment is not supported");
    }
    if !rules.hyphens && url.path().contains('-') {
        return Err("a hyphen in the path is not supported");
    }
    if !rules.at_root && url.path().matches('/').count() < 2 {
        return Err("the image must be in a directory");
    }
    if !rules.suffixes.is_empty()
        && !rules.suffixes.iter().any(|suffix| url.path().ends_with(suffix.as_str()))
    {
        return Err("the file type is not supported");
    }
    Ok(url)
}

fn check_size(facts: MediaFacts, kind: MediaKind, min_sectors: u64) -> Result<MediaFacts, MediaRefusal> {
    let (sector, least) = match kind {
        MediaKind::Cd => (CD_SECTOR, min_sectors * CD_SECTOR),
        MediaKind::Usb => (USB_SECTOR, USB_SECTOR),
    };
    if facts.length < least || !facts.length.is_multiple_of(sector) {
        return Err(MediaRefusal::Size(facts.length));
    }
    Ok(facts)
}

fn refuse_media(url: &MediaUrl, refusal: &MediaRefusal) -> Refused {
    // As on a real BMC the text repeats the whole URI: it is the client's part not to log it.
    let uri = url.as_str();
    match refusal {
        MediaRefusal::Unreachable(_) => Refused::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "CouldNotEstablishConnection",
            format!("The service failed to establish a connection with the URI '{uri}': {refusal}."),
        )
        .args(&[uri])
        .resolution("Ensure that the URI contains a valid and reachable node name, protocol information and other URI components."),
        MediaRefusal::Status(401 | 403) => Refused::new(
            StatusCode::BAD_REQUEST,
            "AccessDenied",
            format!("While attempting to establish a connection to '{uri}', the service denied access."),
        )
        .args(&[uri]),
        MediaRefusal::Status(404 | 410) => Refused::new(
            StatusCode::BAD_REQUEST,
            "ResourceMissingAtURI",
            format!("The resource at the URI '{uri}' was not found."),
        )
        .args(&[uri]),
        MediaRefusal::Status(_) | MediaRefusal::NoLength | MediaRefusal::Unusable(_) | MediaRefusal::Size(_) => {
            Refused::new(
                StatusCode::BAD_REQUEST,
                "ResourceAtUriInUnknownFormat",
                format!("The resource at '{uri}' is in a format not recognized by the service: {refusal}."),
            )
            .args(&[uri])
        }
    }
}
