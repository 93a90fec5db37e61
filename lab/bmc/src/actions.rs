//! Requests that change a simulated BMC: login and logout, boot override, reset. Media are in media_actions.rs.
//!
//! ```text
//!   body ─ declared JSON? ─ an object? ─ only known names? ─ right types? ─ listed values? ─► state ─► 204
//!            415              400          400                400             400             409, 412, 428, 503
//! ```
//!
//! Invariant: a refused action changes nothing.
//!
//! Reference: DSP0266 clauses 7.7 to 7.11 (create, modify, delete, actions), DSP0268 VirtualMedia and ComputerSystem.

use std::time::Duration;

use http::{StatusCode, header};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{
    boot::OverrideState,
    call::{Body, Call},
    config::{AlreadyThere, BootDemands, BootPolicy, ErrorPolicy, ErrorShape, Graceful, Success},
    etag,
    journal::StateChange,
    power::ResetRefusal,
    reply::{ErrorReply, Reply},
    routes::{self, Resource},
    sim_bmc::SimBmc,
    types::{OverrideEnabled, Power, ResetType},
};

const RESET: &str = "ComputerSystem.Reset";

impl SimBmc {
    // === Sessions ===

    pub(super) fn login(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = object(call)?.ok_or_else(ErrorReply::malformed_json)?;
        if let Some(name) = body.keys().find(|name| !matches!(name.as_str(), "UserName" | "Password" | "Oem"))
        {
            return Err(ErrorReply::property_unknown(name));
        }
        let word = |name: &str| match body.get(name) {
            None => Err(ErrorReply::property_missing(name)),
            Some(value) => value.as_str().ok_or_else(|| ErrorReply::property_type(name)),
        };
        let (username, password) = (word("UserName")?, word("Password")?);
        let config = &self.inner.config;
        if let Some(oem) = &config.session.login_oem {
            let pointer = format!("/Oem/{}/{}", oem.vendor, oem.property);
            let received =
                body.get("Oem").and_then(|received| received.pointer(pointer.trim_start_matches("/Oem")));
            if received.and_then(Value::as_str) != Some(oem.value.as_str()) {
                return Err(ErrorReply::new(
                    StatusCode::BAD_REQUEST,
                    "iBMC.1.0.AuthorizationFailed",
                    "The user name or password is incorrect, or the account is locked.",
                ));
            }
        }
        let (id, token) = {
            let mut state = self.state();
            let opened = state.sessions.login(config, username, password, Instant::now())?;
            state.counters.logins += 1;
            opened
        };
        let session = self.view(&config.serial, |view| view.session(id));
        let reply = Reply::json(StatusCode::CREATED, &session)
            .with(http::HeaderName::from_static("x-auth-token"), &token);
        if !config.session.location {
            return Ok(reply);
        }
        Ok(reply.with(header::LOCATION, &routes::uri(config, &Resource::Session(id))))
    }

    pub(super) fn logout(&self, call: &Call, id: u64) -> Result<Reply, ErrorReply> {
        let mut state = self.state();
        if !state.sessions.has(id) {
            return Err(ErrorReply::not_found(&call.path));
        }
        state.sessions.close(id);
        Ok(Reply::no_content())
    }

    // === The boot override ===

    /// A PATCH of the system or of its settings resource.
    pub(super) fn patch_system(&self, call: &Call, at_settings: bool) -> Result<Reply, ErrorReply> {
        let body = object(call)?.filter(|body| !body.is_empty()).ok_or_else(ErrorReply::malformed_json)?;
        let config = &self.inner.config;
        let at = self.elapsed();
        let mut state = self.state();
        let opaque = if at_settings { state.settings_etag() } else { state.system_etag() };
        etag::check(config.etag, call, &opaque)?;
        let elsewhere =
            !at_settings && config.boot.settings.as_ref().is_some_and(|settings| !settings.also_direct);
        let mut boot = state.boot.clone();
        let mut order = None;
        for (name, value) in body {
            match name.as_str() {
                "@Redfish.SettingsApplyTime" if at_settings => {}
                "Boot" if elsewhere => return Err(ErrorReply::property_not_writable("Boot")),
                "Boot" => {
                    if config.boot.locked_in_post && state.machine.is_in_post() {
                        return Err(in_post());
                    }
                    if let Some(refused) = &config.boot.refused {
                        let message = "The operation is not supported by this firmware.";
                        return Err(ErrorReply::new(StatusCode::BAD_REQUEST, refused, message));
                    }
                    let changes = value.as_object().ok_or_else(|| ErrorReply::property_type("Boot"))?;
                    let mut changes = changes.clone();
                    if !config.bios.boot_order.is_empty() {
                        order = changes.remove("BootOrder");
                    }
                    if order.is_none() || !changes.is_empty() {
                        patch_boot(&mut boot, &changes, &config.boot)?;
                    }
                }
                "Id" | "Name" | "SerialNumber" | "SKU" | "Model" | "Manufacturer" | "UUID" | "PowerState"
                | "Status" | "BiosVersion" | "SystemType" | "LastResetTime" | "BootProgress" | "Links"
                | "Actions" | "VirtualMedia" => return Err(ErrorReply::property_not_writable(name)),
                _ => return Err(ErrorReply::property_unknown(name)),
            }
        }
        if let Some(order) = &order {
            state.bios.write_order(order, at_settings)?;
            state.changed(at, StateChange::BiosWritten { names: vec!["BootOrder".to_owned()] });
        }
        state.system_revision += 1;
        if order.is_none() || boot != state.boot {
            let (target, enabled) = (boot.target.clone(), boot.enabled.as_str());
            state.changed(at, StateChange::BootOverride { target, enabled });
        }
        state.boot = boot;
        let opaque = if at_settings { state.settings_etag() } else { state.system_etag() };
        drop(state);
        self.notify();
        let resource = if at_settings { Resource::Settings } else { Resource::System };
        let done = self.done("Boot override", config.responses.patch, &resource);
        Ok(etag::tag(config.etag, done, &opaque))
    }

    // === Power ===

    pub(super) fn reset(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = object(call)?.ok_or_else(|| ErrorReply::parameter_missing(RESET, "ResetType"))?;
        if let Some(name) = body.keys().find(|name| *name != "ResetType") {
            return Err(ErrorReply::parameter_unknown(RESET, name));
        }
        let value = body.get("ResetType").ok_or_else(|| ErrorReply::parameter_missing(RESET, "ResetType"))?;
        let word = value.as_str().ok_or_else(|| ErrorReply::parameter_type(RESET, "ResetType"))?;
        let policy = &self.inner.config.power;
        let kind: ResetType =
            word.parse().map_err(|_| ErrorReply::parameter_not_in_list(RESET, "ResetType", word))?;
        if policy.not_implemented.contains(&kind) {
            return Err(not_implemented(kind));
        }
        if !policy.reset_types.contains(&kind) {
            return Err(ErrorReply::parameter_not_in_list(RESET, "ResetType", word));
        }
        self.check_moment(kind)?;
        let done = || self.done("Reset", self.inner.config.responses.reset, &Resource::System);
        if !policy.act_delay.is_zero() {
            let (bmc, delay) = (self.clone(), policy.act_delay);
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // A reset that became impossible in the meantime is dropped: the response was sent before.
                bmc.reset_now(kind).ok();
            });
            return Ok(done());
        }
        match self.reset_now(kind) {
            Ok(()) => Ok(done()),
            Err(ResetRefusal::AlreadyThere) if policy.already_there == AlreadyThere::NoOp => Ok(done()),
            Err(refusal) => Err(refuse_reset(kind, refusal, policy.already_there)),
        }
    }

    /// Refuses a reset that this BMC refuses only for some time after a change of power.
    fn check_moment(&self, kind: ResetType) -> Result<(), ErrorReply> {
        let policy = &self.inner.config.power;
        let at = self.elapsed();
        let state = self.state();
        let since = |then: Option<Duration>| then.map_or(Duration::MAX, |then| at.saturating_sub(then));
        if since(state.last_command) < policy.quiet_after_reset {
            return Err(ErrorReply::new(
                StatusCode::BAD_REQUEST,
                "InvalidOperationForSystemState",
                "The operation was not successful due to the current power state.",
            ));
        }
        let went_off =
            state.power_log.back().filter(|(_, power)| *power == Power::Off).map(|(when, _)| *when);
        if kind == ResetType::On && since(went_off) < policy.no_on_after_off {
            return Err(ErrorReply::new(
                StatusCode::CONFLICT,
                "ActionParameterValueConflict",
                "The parameter 'ResetType' with the requested value of 'On' does not meet the constraints of the \
                 implementation.",
            )
            .args(&["ResetType", "On"]));
        }
        Ok(())
    }

    pub(super) fn reset_now(&self, kind: ResetType) -> Result<(), ResetRefusal> {
        let at = self.elapsed();
        let policy = &self.inner.config.power;
        let (timer, passed) = self.drive(|state| {
            let timer = state.machine.reset(kind, policy)?;
            state.last_command = Some(at);
            state.changed(at, StateChange::Reset(kind));
            let passed = policy.graceful == Graceful::PassedToHost && state.machine.is_stopping_gracefully();
            Ok::<_, ResetRefusal>((timer, passed))
        })?;
        if passed {
            self.inner.host.shut_down(&self.inner.config.serial);
        }
        self.settle(timer);
        Ok(())
    }

    /// The success response of this vendor. A task returned here has no work left.
    pub(super) fn done(&self, name: &'static str, how: Success, resource: &Resource) -> Reply {
        match how {
            Success::NoContent => Reply::no_content(),
            Success::Accepted => Reply::empty(StatusCode::ACCEPTED),
            Success::Message => {
                let message =
                    ErrorReply::new(StatusCode::OK, "Success", "The request completed successfully.");
                let shape = ErrorPolicy { shape: ErrorShape::NoEnvelope, ..self.inner.config.errors.clone() };
                message.reply(&shape)
            }
            Success::SuccessObject => Reply::ok(&serde_json::json!({
                "Success": { "code": "Base.v1_4_0.Success", "message": "Successfully Completed Request." }
            })),
            Success::Resource => self
                .view(&self.inner.config.serial, |view| view.show(resource, None))
                .unwrap_or_else(Reply::no_content),
            Success::TaskLocation | Success::TaskBody | Success::Task => {
                self.begin_task(name, how, async { Ok(()) })
            }
        }
    }
}

/// Applies the `Boot` object of a PATCH; when it returns an error the caller drops `boot`.
fn patch_boot(
    boot: &mut OverrideState,
    changes: &Map<String, Value>,
    policy: &BootPolicy,
) -> Result<(), ErrorReply> {
    const TARGET: &str = "BootSourceOverrideTarget";
    const ENABLED: &str = "BootSourceOverrideEnabled";
    const MODE: &str = "BootSourceOverrideMode";
    let has = |name: &str| changes.contains_key(name);
    let before = boot.clone();
    for (name, value) in changes {
        let property = format!("Boot/{name}");
        let word = || value.as_str().ok_or_else(|| ErrorReply::property_type(&property));
        match name.as_str() {
            TARGET => boot.target = listed(&property, word()?, &policy.targets)?,
            MODE if !policy.modes.is_empty() => boot.mode = listed(&property, word()?, &policy.modes)?,
            ENABLED => {
                let mut allowed = policy.enabled.iter();
                let word = word()?;
                boot.enabled = *allowed
                    .find(|enabled| enabled.as_str() == word)
                    .ok_or_else(|| ErrorReply::property_not_in_list(&property, word))?;
            }
            _ => return Err(ErrorReply::property_unknown(&property)),
        }
    }
    match policy.demands {
        BootDemands::AllOrIgnored
            if !(has(TARGET) && has(ENABLED) && (has(MODE) || policy.modes.is_empty())) =>
        {
            *boot = before;
            return Ok(());
        }
        BootDemands::EnabledOrIgnored if has(TARGET) && !has(ENABLED) => {
            *boot = before;
            return Ok(());
        }
        BootDemands::Target if !has(TARGET) => {
            return Err(ErrorReply::new(
                StatusCode::BAD_REQUEST,
                "PropertyMissing",
                "Missing the BootSourceOverrideTarget element",
            )
            .in_plain_text());
        }
        _ => {}
    }
    if let Some(mode) = policy.mode_falls_to.as_ref().filter(|_| has(TARGET) && !has(MODE)) {
        boot.mode.clone_from(mode);
    }
    if has(ENABLED) && boot.enabled == OverrideEnabled::Disabled {
        "None".clone_into(&mut boot.target);
    }
    if let Some(kept) = policy.stored_as {
        boot.enabled = kept;
    }
    Ok(())
}

/// The body as a JSON object; `None` if the request has no body.
pub(super) fn object(call: &Call) -> Result<Option<&Map<String, Value>>, ErrorReply> {
    match &call.body {
        Body::Absent => Ok(None),
        Body::Object(object) => Ok(Some(object)),
        Body::Malformed => Err(ErrorReply::malformed_json()),
        Body::WrongType => Err(unsupported_media_type()),
        Body::TooLong => Err(ErrorReply::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "PayloadTooLarge",
            "The supplied payload exceeds the maximum size supported by the service.",
        )),
    }
}

pub(super) fn unsupported_media_type() -> ErrorReply {
    ErrorReply::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "HeaderInvalid",
        "Header 'Content-Type' is invalid: the body has to be application/json.",
    )
    .args(&["Content-Type"])
}

fn listed(property: &str, word: &str, allowed: &[String]) -> Result<String, ErrorReply> {
    let mut allowed = allowed.iter();
    allowed
        .find(|value| *value == word)
        .cloned()
        .ok_or_else(|| ErrorReply::property_not_in_list(property, word))
}

pub(super) fn in_post() -> ErrorReply {
    ErrorReply::new(
        StatusCode::BAD_REQUEST,
        "iLO.2.14.UnableToModifyDuringSystemPOST",
        "The value of the property cannot be changed while the system is in POST.",
    )
}

fn not_implemented(kind: ResetType) -> ErrorReply {
    ErrorReply::new(
        StatusCode::NOT_IMPLEMENTED,
        "ActionNotSupported",
        format!("The reset type {kind} is not supported by the resource."),
    )
}

fn refuse_reset(kind: ResetType, refusal: ResetRefusal, already_there: AlreadyThere) -> ErrorReply {
    let conflict = |text: String| {
        ErrorReply::new(StatusCode::CONFLICT, "ActionParameterValueConflict", text)
            .args(&["ResetType", kind.as_str()])
    };
    match (refusal, already_there) {
        (ResetRefusal::Standby, _) => ErrorReply::new(
            StatusCode::CONFLICT,
            "ResourceInStandby",
            "The request could not be performed because the resource is in standby.",
        )
        .resolution("Ensure that the resource is in the correct power state and resubmit the request."),
        (ResetRefusal::Moving, _) => {
            conflict(format!("The reset type {kind} cannot be used while the host powers off."))
        }
        (ResetRefusal::AlreadyThere, AlreadyThere::BadRequest) => ErrorReply::new(
            StatusCode::BAD_REQUEST,
            "InvalidOperationForSystemState",
            format!("The operation {kind} was not successful due to the current power state."),
        ),
        (ResetRefusal::AlreadyThere, _) => conflict(format!(
            "The reset type {kind} cannot be used: the host is in that power state already."
        )),
    }
}
