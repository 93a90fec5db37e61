//! Insert and eject as the specification defines them: by action and by PATCH.
//!
//! ```text
//!   body ─► parameters ────► possible now? ──► busy ─► image read ─► attaching ─► inserted
//!   400, 403, 415           400, 409, 500, 503         400, 500
//! ```
//!
//! Invariants: a refused action changes nothing; a slot is `busy` from before its image is read until the image is
//! inserted or refused, and a busy slot takes neither insert nor eject.
//!
//! Reference: DSP0268 VirtualMedia.

use http::StatusCode;
use serde_json::{Map, Value};
use url::{Host, Url};

use super::{
    actions::{object, unsupported_media_type},
    call::Call,
    config::{EjectEmpty, Occupied, Success, UrlRules},
    etag,
    host::MediaUrl,
    journal::StateChange,
    media_reader::{self, MediaFacts, MediaRefusal},
    reply::{ErrorReply, Reply},
    routes::{Resource, Tree},
    sim_bmc::SimBmc,
    state::Medium,
    types::MediaKind,
};

const INSERT: &str = "VirtualMedia.InsertMedia";
const EJECT: &str = "VirtualMedia.EjectMedia";
const CD_SECTOR: u64 = 2048;
const USB_SECTOR: u64 = 512;

impl SimBmc {
    pub(super) async fn insert(&self, call: &Call, tree: Tree, index: usize) -> Result<Reply, ErrorReply> {
        if let Some(status) = self.inner.config.slots[index].refuses {
            return Err(slot_refuses(status));
        }
        let url = self.read_insert(call, index)?;
        self.insert_url(tree, index, url, self.inner.config.responses.insert).await
    }

    /// Inserts an image, for all insert methods.
    pub(super) async fn insert_url(
        &self,
        tree: Tree,
        index: usize,
        url: MediaUrl,
        how: Success,
    ) -> Result<Reply, ErrorReply> {
        self.make_busy(index)?;
        if how.is_task() {
            let bmc = self.clone();
            return Ok(self.begin_task("Insert media", how, async move { bmc.attach(index, url).await }));
        }
        self.attach(index, url).await?;
        Ok(self.done("Insert media", how, &Resource::Slot(tree, index)))
    }

    /// Marks the slot as busy if an insert is possible now.
    fn make_busy(&self, index: usize) -> Result<(), ErrorReply> {
        let (config, at) = (&self.inner.config, self.elapsed());
        if let Some(message) = &config.media.licence_missing {
            return Err(ErrorReply::new(
                StatusCode::FORBIDDEN,
                message,
                "This operation needs a licence that is not installed on the management controller.",
            )
            .resolution("Install the licence and resubmit the request."));
        }
        let mut state = self.state();
        if state.slots[index].busy {
            return Err(ErrorReply::busy());
        }
        if state.slots[index].ejecting(config, at) {
            return Err(ErrorReply::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                "The request failed due to an internal service error. The eject is not finished.",
            ));
        }
        let others =
            state.slots.iter().enumerate().filter(|(other, slot)| *other != index && slot.medium.is_some());
        if others.count() >= config.media.at_most {
            return Err(in_use());
        }
        if state.slots[index].medium.is_some() {
            match config.media.occupied {
                Occupied::Conflict => return Err(in_use()),
                Occupied::BadRequest => {
                    return Err(ErrorReply::new(
                        StatusCode::BAD_REQUEST,
                        "IDRAC.2.8.SYS446",
                        "Unable to attach the virtual media because it is attached already.",
                    ));
                }
                Occupied::Replaced => self.remove_medium(&mut state, index, at),
            }
        }
        state.slots[index].busy = true;
        drop(state);
        self.notify();
        Ok(())
    }

    /// Reads the image and puts it into the busy slot.
    async fn attach(&self, index: usize, url: MediaUrl) -> Result<(), ErrorReply> {
        let config = &self.inner.config;
        let look = media_reader::inspect(&*self.inner.media, &url, config.media.read);
        let facts = tokio::time::timeout(config.media.timeout, look)
            .await
            .unwrap_or_else(|_| Err(MediaRefusal::Unreachable("the image was not read in time".to_owned())))
            .and_then(|facts| check_size(facts, config.slots[index].kind, config.media.min_sectors));
        let at = self.elapsed();
        let mut state = self.state();
        state.slots[index].busy = false;
        let facts = match facts {
            Ok(facts) => facts,
            Err(refusal) => {
                drop(state);
                // Other tasks wait for the slot, even if the client is gone.
                self.notify();
                return Err(refuse_media(&url, &refusal));
            }
        };
        let change =
            StateChange::Inserted { slot: config.slots[index].id.clone(), file: url.file_name().to_owned() };
        let from = at + config.media.attach_time;
        state.slots[index].medium = Some(Medium { url, facts, from });
        state.slots[index].revision += 1;
        state.changed(at, change);
        drop(state);
        self.notify();
        self.notify_after(config.media.attach_time);
        Ok(())
    }

    pub(super) fn eject(&self, call: &Call, tree: Tree, index: usize) -> Result<Reply, ErrorReply> {
        match object(call)? {
            None if self.inner.config.media.body_required => return Err(unsupported_media_type()),
            None => {}
            Some(body) => {
                if let Some(name) = body.keys().next() {
                    return Err(ErrorReply::parameter_unknown(EJECT, name));
                }
            }
        }
        self.eject_slot(tree, index, self.inner.config.responses.eject)
    }

    /// Ejects a slot, for all eject methods.
    pub(super) fn eject_slot(&self, tree: Tree, index: usize, how: Success) -> Result<Reply, ErrorReply> {
        let config = &self.inner.config;
        let at = self.elapsed();
        let mut state = self.state();
        if state.slots[index].busy {
            return Err(ErrorReply::busy());
        }
        if state.slots[index].medium.is_some() {
            self.remove_medium(&mut state, index, at);
        } else if config.media.eject_empty == EjectEmpty::Refused {
            return Err(ErrorReply::new(
                StatusCode::BAD_REQUEST,
                "OperationFailed",
                "There is no media in the virtual media slot to eject.",
            ));
        }
        drop(state);
        self.notify();
        self.notify_after(config.media.eject_time);
        Ok(self.done("Eject media", how, &Resource::Slot(tree, index)))
    }

    /// A PATCH of the slot: inserts an image, or ejects.
    pub(super) async fn patch_slot(
        &self,
        call: &Call,
        tree: Tree,
        index: usize,
    ) -> Result<Reply, ErrorReply> {
        let config = &self.inner.config;
        let body = object(call)?.filter(|body| !body.is_empty()).ok_or_else(ErrorReply::malformed_json)?;
        etag::check(config.etag, call, &self.state().slot_etag(index))?;
        if body.contains_key("Oem") {
            return self.boot_slot_next(body, tree, index);
        }
        if let Some(name) = body.keys().find(|name| !config.media.patch_accepted.contains(name)) {
            return Err(ErrorReply::property_unknown(name));
        }
        let inserted = match body.get("Inserted") {
            None => None,
            Some(Value::Bool(inserted)) => Some(*inserted),
            Some(_) => return Err(ErrorReply::property_type("Inserted")),
        };
        match body.get("Image") {
            Some(Value::String(image)) if inserted != Some(false) => {
                let url = self.take_url(image, index, "Image")?;
                if config.media.patch_needs_inserted && inserted.is_none() {
                    // Accepted without effect: this firmware attaches an image only with `Inserted: true`.
                    return Ok(self.done(
                        "Insert media",
                        config.responses.insert,
                        &Resource::Slot(tree, index),
                    ));
                }
                self.insert_url(tree, index, url, config.responses.insert).await
            }
            None | Some(Value::Null) if inserted != Some(true) => {
                self.eject_slot(tree, index, config.responses.eject)
            }
            _ => Err(ErrorReply::property_type("Image")),
        }
    }

    /// Checks the body of an insert and returns its URL.
    fn read_insert(&self, call: &Call, index: usize) -> Result<MediaUrl, ErrorReply> {
        let media = &self.inner.config.media;
        let rules = &media.insert;
        let body = object(call)?.ok_or_else(|| ErrorReply::parameter_missing(INSERT, "Image"))?;
        if let Some(name) = body.keys().find(|name| !rules.accepted.contains(name)) {
            return Err(ErrorReply::parameter_unknown(INSERT, name));
        }
        if let Some(name) = rules.required.iter().find(|name| !body.contains_key(*name)) {
            return Err(ErrorReply::parameter_missing(INSERT, name));
        }
        if media.credentials_in_pairs && body.contains_key("UserName") != body.contains_key("Password") {
            return Err(ErrorReply::parameter_missing(INSERT, "Password"));
        }
        check_insert(body)?;
        let image = word(body, "Image")?.ok_or_else(|| ErrorReply::parameter_missing(INSERT, "Image"))?;
        let url = self.take_url(image, index, "Image")?;
        let scheme = image.split(':').next().unwrap_or_default();
        let protocol = word(body, "TransferProtocolType")?;
        if let Some(protocol) = protocol.filter(|protocol| !protocol.eq_ignore_ascii_case(scheme)) {
            return Err(ErrorReply::parameter_not_in_list(INSERT, "TransferProtocolType", protocol));
        }
        Ok(url)
    }

    /// Returns the URL if the slot accepts it.
    pub(super) fn take_url(&self, image: &str, index: usize, name: &str) -> Result<MediaUrl, ErrorReply> {
        let config = &self.inner.config;
        let rules = &config.media.url;
        let suffixes = config.slots[index].suffixes.as_ref().unwrap_or(&rules.suffixes);
        match check_url(image, rules, suffixes) {
            Ok(_) => Ok(MediaUrl::new(image)),
            Err(BAD_SCHEME) if rules.scheme_message.is_some() => Err(ErrorReply::new(
                StatusCode::BAD_REQUEST,
                rules.scheme_message.as_deref().unwrap_or_default(),
                "The file transfer protocol is not supported for virtual media.",
            )),
            Err(why) => Err(ErrorReply::parameter_format(INSERT, name, why)),
        }
    }
}

/// Checks the parameters of an insert other than the image.
fn check_insert(body: &Map<String, Value>) -> Result<(), ErrorReply> {
    for name in ["Inserted", "WriteProtected"] {
        match body.get(name) {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => {
                return Err(ErrorReply::parameter_not_in_list(INSERT, name, "false"));
            }
            Some(_) => return Err(ErrorReply::parameter_type(INSERT, name)),
        }
    }
    for name in ["UserName", "Password"] {
        word(body, name)?;
    }
    if let Some(method) = word(body, "TransferMethod")?.filter(|&method| method != "Stream") {
        return Err(ErrorReply::parameter_not_in_list(INSERT, "TransferMethod", method));
    }
    Ok(())
}

fn word<'a>(body: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, ErrorReply> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_str().map(Some).ok_or_else(|| ErrorReply::parameter_type(INSERT, name)),
    }
}

fn in_use() -> ErrorReply {
    ErrorReply::new(
        StatusCode::CONFLICT,
        "ResourceInUse",
        "The change to the requested resource failed because the resource is in use or in transition.",
    )
    .resolution("Eject the media that is inserted and resubmit the request.")
}

fn slot_refuses(status: u16) -> ErrorReply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    ErrorReply::new(
        status,
        if status == StatusCode::METHOD_NOT_ALLOWED { "OperationNotAllowed" } else { "ActionNotSupported" },
        "The action is not supported by this virtual media slot.",
    )
}

const BAD_SCHEME: &str = "the scheme is not supported";

fn check_url(image: &str, rules: &UrlRules, suffixes: &[String]) -> Result<Url, &'static str> {
    if image.len() > rules.max_bytes {
        return Err("the URI is too long");
    }
    let url = Url::parse(image).map_err(|_| "it is not a URI")?;
    if !rules.schemes.iter().any(|scheme| scheme == url.scheme()) {
        return Err(BAD_SCHEME);
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
    if url.path().matches('/').count() > rules.max_depth.saturating_add(1) {
        return Err("the image is too many directories deep");
    }
    if !suffixes.is_empty() && !suffixes.iter().any(|suffix| url.path().ends_with(suffix.as_str())) {
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

fn refuse_media(url: &MediaUrl, refusal: &MediaRefusal) -> ErrorReply {
    // As on a real BMC the message contains the whole URI: the client must not log it.
    let uri = url.as_str();
    match refusal {
        MediaRefusal::Unreachable(_) => ErrorReply::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "CouldNotEstablishConnection",
            format!("The service failed to establish a connection with the URI '{uri}': {refusal}."),
        )
        .args(&[uri])
        .resolution("Ensure that the URI contains a valid and reachable node name, protocol information and other URI components."),
        MediaRefusal::Status(401 | 403) => ErrorReply::new(
            StatusCode::BAD_REQUEST,
            "AccessDenied",
            format!("While attempting to establish a connection to '{uri}', the service denied access."),
        )
        .args(&[uri]),
        MediaRefusal::Status(404 | 410) => ErrorReply::new(
            StatusCode::BAD_REQUEST,
            "ResourceMissingAtURI",
            format!("The resource at the URI '{uri}' was not found."),
        )
        .args(&[uri]),
        MediaRefusal::Status(_) | MediaRefusal::NoLength | MediaRefusal::Unusable(_) | MediaRefusal::Size(_) => {
            ErrorReply::new(
                StatusCode::BAD_REQUEST,
                "ResourceAtUriInUnknownFormat",
                format!("The resource at '{uri}' is in a format not recognized by the service: {refusal}."),
            )
            .args(&[uri])
        }
    }
}
