//! Requests that bring an image or start an update.
//!
//! ```text
//!   upload ─ authenticated ─ whole? ─ form as the vendor wants it? ─ an image? ─ of this machine? ─ idle? ─► job, 202
//!             401              400       400                          400         400                 503
//! ```

use std::time::Duration;

use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use super::{
    Upload,
    image::{ImageFacts, ImageProblem},
    progress::{Job, Stage, TaskView},
};
use crate::{
    actions::object,
    call::Call,
    config::{BiosUpdate, Component, PushForm, UpdateAnswer},
    etag,
    faults::{FaultEffect, FlashFault},
    reply::{ErrorReply, Reply},
    routes::{self, Resource},
    sim_bmc::SimBmc,
    state::State,
    types::Power,
};

impl SimBmc {
    /// Carries out a request to one of the update resources.
    pub(crate) async fn update(
        &self,
        call: &Call,
        resource: &Resource,
        effect: Option<&FaultEffect>,
    ) -> Result<Reply, ErrorReply> {
        let (fault, fetch) = match effect {
            Some(FaultEffect::Flash(fault)) => (Some(fault.clone()), None),
            Some(FaultEffect::Fetch(fault)) => (None, Some(fault.clone())),
            _ => (None, None),
        };
        match resource {
            Resource::UpdateSimple => self.simple_update(call, fault, fetch).await,
            Resource::UpdateStart => self.start_update(fault),
            Resource::UpdateService => self.patch_update_service(call),
            _ => self.take_upload(call, resource, fault),
        }
    }

    fn take_upload(
        &self,
        call: &Call,
        resource: &Resource,
        fault: Option<FlashFault>,
    ) -> Result<Reply, ErrorReply> {
        let config = &self.inner.config;
        let policy = &config.update;
        let upload = call.upload.as_ref().ok_or_else(|| refused("The upload is not a valid form."))?;
        if policy.max_bytes.is_some_and(|limit| upload.bytes > limit + 64 * 1024) {
            let text = "The supplied payload exceeds the maximum size supported by the service.";
            return Err(ErrorReply::new(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", text));
        }
        let (mut explicit_start, mut targets) = (false, Vec::new());
        match resource {
            Resource::UpdateMultipart => {
                let parameters = self.multipart_parameters(upload)?;
                let time = parameters.get("@Redfish.OperationApplyTime").and_then(Value::as_str);
                explicit_start = policy.start_action && time == Some("OnStartUpdateRequest");
                let named = parameters.get("Targets").and_then(Value::as_array).into_iter().flatten();
                targets.extend(named.filter_map(Value::as_str).map(str::to_owned));
            }
            _ => self.check_push(call, upload)?,
        }
        let facts = upload.image.clone().map_err(problem)?;
        self.state().updates.images += 1;
        if *resource == Resource::UpdatePush && policy.push_form == PushForm::Stored {
            self.state().updates.accept(&facts);
            return Ok(self.store_image(facts));
        }
        let reply = self.begin_update((&facts, &targets), explicit_start, fault)?;
        self.state().updates.accept(&facts);
        Ok(reply)
    }

    fn multipart_parameters(&self, upload: &Upload) -> Result<Map<String, Value>, ErrorReply> {
        let policy = &self.inner.config.update;
        if !upload.form || upload.names.last().is_none_or(|name| name != "UpdateFile") {
            return Err(refused("The part UpdateFile is missing or not the last one."));
        }
        let part = |name: &str| match upload.parts.get(name).map(|text| serde_json::from_str::<Value>(text)) {
            Some(Ok(Value::Object(members))) => Ok(members),
            _ => Err(refused(&format!("The part {name} is missing or not JSON."))),
        };
        let parameters = part("UpdateParameters")?;
        let known = ["Targets", "@Redfish.OperationApplyTime", "ForceUpdate", "Oem"];
        if let Some(name) = parameters.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(ErrorReply::property_unknown(name));
        }
        if policy.targets_required && !parameters.contains_key("Targets") {
            return Err(ErrorReply::property_missing("Targets"));
        }
        if policy.oem_part && part("OemParameters")?.get("ImageType").is_none() {
            return Err(refused("OemParameters has no ImageType."));
        }
        Ok(parameters)
    }

    fn check_push(&self, call: &Call, upload: &Upload) -> Result<(), ErrorReply> {
        match self.inner.config.update.push_form {
            PushForm::Raw if upload.form => Err(refused("The body has to be the image.")),
            PushForm::Raw => Ok(()),
            PushForm::Session => {
                let token = call.header("x-auth-token").unwrap_or_default();
                let cookie = format!("sessionKey={token}");
                let same = upload.parts.get("sessionKey").is_some_and(|key| key == token);
                if !same || token.is_empty() || call.header(header::COOKIE) != Some(cookie.as_str()) {
                    return Err(ErrorReply::unauthorized(
                        "NoValidSession",
                        "The upload has no valid session key.",
                    ));
                }
                if !upload.parts.contains_key("parameters") {
                    return Err(refused("The part parameters is missing."));
                }
                Ok(())
            }
            PushForm::Stored => {
                if !upload.form {
                    return Err(refused("The body has to be a form."));
                }
                etag::check_required(call, &self.inventory_etag())
            }
        }
    }

    /// Stores an image until `SimpleUpdate` names it.
    fn store_image(&self, facts: ImageFacts) -> Reply {
        let config = &self.inner.config;
        let path = format!("{}/Available-{}", routes::uri(config, &Resource::Firmware), facts.version);
        self.state().updates.stored = Some((path.clone(), facts));
        Reply::json(StatusCode::CREATED, &json!({ "@odata.id": path })).with(header::LOCATION, &path)
    }

    /// Starts an update with an image that arrived whole.
    pub(super) fn begin_update(
        &self,
        (facts, targets): (&ImageFacts, &[String]),
        explicit_start: bool,
        fault: Option<FlashFault>,
    ) -> Result<Reply, ErrorReply> {
        let at = self.elapsed();
        let mut state = self.state();
        if state.updates.is_busy() {
            return Err(ErrorReply::busy());
        }
        let item = self.item_for(&state, facts, targets).map_err(Unfit::reply)?;
        let task = (!self.shows_state_at_service()).then(|| state.tasks.begin("Firmware update"));
        self.begin_job(&mut state, at, (item, &facts.version), task, (explicit_start, fault));
        let shown = task.and_then(|id| state.tasks.show(&self.inner.config, id));
        Ok(self.update_accepted(task, shown))
    }

    /// The firmware that an image replaces, if the BMC installs it now: of `targets`, if the request names any.
    pub(super) fn item_for(
        &self,
        state: &State,
        facts: &ImageFacts,
        targets: &[String],
    ) -> Result<usize, Unfit> {
        let config = &self.inner.config;
        if facts.model.as_ref().is_some_and(|model| *model != config.identity.model) {
            return Err(Unfit::Image("The image is for another model."));
        }
        let unknown = Unfit::Image("The image is for a device that this server does not have.");
        let item = find_item(state, config, (&facts.component, targets)).ok_or(unknown)?;
        let bios = state.updates.items[item].component == Component::Bios;
        if bios && config.update.bios == BiosUpdate::HostOff && state.machine.power() != Power::Off {
            return Err(Unfit::HostOn);
        }
        Ok(item)
    }

    /// Starts to check an image for the task.
    pub(super) fn begin_job(
        &self,
        state: &mut State,
        at: Duration,
        (item, version): (usize, &str),
        task: Option<u64>,
        (explicit_start, fault): (bool, Option<FlashFault>),
    ) {
        let State { updates, tasks, .. } = state;
        let record = updates.record(updates.items[item].id.clone(), version.to_owned());
        updates.started += 1;
        let until = at + updates.skipped + self.inner.config.update.check_time;
        let stage = Stage::Checking { until };
        let job = Job { item, version: version.to_owned(), record, task, explicit_start, fault, stage };
        updates.show(tasks, &job, TaskView::running("Verifying", "Running", 0));
        updates.job = Some(job);
        let bmc = self.clone();
        // After this request has released the state.
        tokio::spawn(async move { bmc.schedule_update() });
    }

    /// Starts the update of an image that was checked.
    fn start_update(&self, fault: Option<FlashFault>) -> Result<Reply, ErrorReply> {
        let at = self.elapsed();
        let mut state = self.state();
        let State { updates, tasks, .. } = &mut *state;
        let Some(mut job) = updates.job.take_if(|job| matches!(job.stage, Stage::Checked)) else {
            return Err(refused("No image waits for StartUpdate."));
        };
        job.task = (!self.shows_state_at_service()).then(|| tasks.begin("Firmware update"));
        job.fault = job.fault.or(fault);
        updates.show(tasks, &job, TaskView::running("Updating", "Running", 0));
        let now = at + updates.skipped;
        updates.begin_writing(&self.inner.config.update, tasks, &mut job, now);
        let task = job.task;
        updates.job = Some(job);
        let shown = task.and_then(|id| tasks.show(&self.inner.config, id));
        let bmc = self.clone();
        tokio::spawn(async move { bmc.schedule_update() });
        Ok(self.update_accepted(task, shown))
    }

    /// The response to an accepted update.
    pub(super) fn update_accepted(&self, task: Option<u64>, shown: Option<Value>) -> Reply {
        let config = &self.inner.config;
        let Some(id) = task else { return Reply::ok(&json!({})) };
        let (monitor, task) =
            (routes::uri(config, &Resource::TaskMonitor(id)), routes::uri(config, &Resource::Task(id)));
        let shown = shown.unwrap_or_default();
        let empty = Reply::empty(StatusCode::ACCEPTED);
        match config.update.answer {
            UpdateAnswer::TaskAndMonitor => {
                Reply::json(StatusCode::ACCEPTED, &shown).with(header::LOCATION, &monitor)
            }
            UpdateAnswer::TaskLocation => empty.with(header::LOCATION, &task),
            UpdateAnswer::MonitorLocation => empty.with(header::LOCATION, &monitor),
            UpdateAnswer::TaskBody => Reply::json(StatusCode::ACCEPTED, &shown),
            UpdateAnswer::MessageArgs => Reply::json(
                StatusCode::ACCEPTED,
                &json!({ "Accepted": {
                    "code": "Base.v1_10_3.Accepted",
                    "Message": "Successfully Accepted Request.",
                    "@Message.ExtendedInfo": [{
                        "MessageId": "SMC.1.0.OemSimpleupdateAcceptedMessage",
                        "Severity": "Ok",
                        "Message": "Please also check the task for the result.",
                        "MessageArgs": [task],
                    }],
                }}),
            ),
            UpdateAnswer::ServiceState | UpdateAnswer::Nothing => empty,
        }
    }

    fn patch_update_service(&self, call: &Call) -> Result<Reply, ErrorReply> {
        let body = object(call)?.ok_or_else(ErrorReply::malformed_json)?;
        for (name, value) in body {
            match name.as_str() {
                "HttpPushUriOptions" if value.is_object() => {}
                "HttpPushUriTargets" if value.is_array() => {}
                "HttpPushUriOptions" | "HttpPushUriTargets" => return Err(ErrorReply::property_type(name)),
                _ => return Err(ErrorReply::property_unknown(name)),
            }
        }
        let mut state = self.state();
        for (name, value) in body {
            state.updates.push_options[name] = value.clone();
        }
        Ok(Reply::no_content())
    }
}

/// The firmware that an image is for, among the targets if there are any.
fn find_item(
    state: &State,
    config: &crate::SimBmcConfig,
    (component, targets): (&str, &[String]),
) -> Option<usize> {
    let is_target = |at: &usize| {
        let id = &state.updates.items[*at].id;
        targets.is_empty() || targets.iter().any(|target| target.rsplit('/').next() == Some(id))
    };
    let named = |at: &usize| {
        let item = &config.service.firmware[*at];
        item.name == component || item.id == component || state.updates.items[*at].id == component
    };
    let kind = match component.to_ascii_lowercase().as_str() {
        "bmc" => Some(Component::Bmc),
        "bios" => Some(Component::Bios),
        _ => None,
    };
    let all = || (0..state.updates.items.len()).filter(is_target);
    let of_kind = |at: &usize| kind.is_some_and(|kind| state.updates.items[*at].component == kind);
    all().find(named).or_else(|| all().find(of_kind))
}

fn problem(problem: ImageProblem) -> ErrorReply {
    match problem {
        ImageProblem::NotFirmware => refused("The file is not a firmware image."),
        ImageProblem::Damaged => refused("The firmware image is damaged or incomplete."),
    }
}

/// The reason why an image is not installed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unfit {
    Image(&'static str),
    HostOn,
}

impl Unfit {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Image(text) => text,
            Self::HostOn => "The host has to be powered off before its BIOS is updated.",
        }
    }

    fn reply(self) -> ErrorReply {
        match self {
            Self::Image(text) => refused(text),
            Self::HostOn => ErrorReply::new(StatusCode::CONFLICT, "ResourceInUse", self.text()),
        }
    }
}

fn refused(text: &str) -> ErrorReply {
    ErrorReply::new(StatusCode::BAD_REQUEST, "Update.1.1.VerificationFailed", text)
}
