//! The update service of a vendor: the ways an image arrives, how progress is shown, and what an update restarts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;

/// The update service. Without a way it only lists the firmware.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpdatePolicy {
    /// The action `SimpleUpdate`.
    pub simple: Option<SimplePolicy>,
    /// `MultipartHttpPushUri`.
    pub multipart: Option<String>,
    /// The path of `HttpPushUri`, if the service has it.
    pub push: Option<String>,
    /// The form of an upload to `HttpPushUri`.
    pub push_form: PushForm,
    /// Whether the service has `HttpPushUriOptions` and `HttpPushUriTargets`.
    pub push_options: bool,
    /// Whether a multipart upload must have a part `OemParameters` with `ImageType`.
    pub oem_part: bool,
    /// Whether `UpdateParameters` must have `Targets`, which may be empty.
    pub targets_required: bool,
    /// Whether the action `StartUpdate` exists; with `OnStartUpdateRequest` an update starts only by it.
    pub start_action: bool,
    /// `MaxImageSizeBytes`.
    pub max_bytes: Option<u64>,
    /// The place in which the response to an accepted update names its task.
    pub answer: UpdateAnswer,
    /// The time from which a new BIOS runs.
    pub bios: BiosUpdate,
    /// The state of a task that waits for a restart of the host.
    pub waiting: WaitingTask,
    /// Whether a new image of the BMC runs only after a restart that the client requests; its task names the manager.
    pub asks_for_bmc_restart: bool,
    /// Whether tasks survive a restart of the BMC.
    pub keeps_tasks: bool,
    /// Whether the new image of the BMC is listed, as not active, before the BMC has restarted.
    pub lists_staged: bool,
    /// The time in which the image is checked.
    #[serde(with = "time")]
    pub check_time: Duration,
    /// The time in which the image is written.
    #[serde(with = "time")]
    pub flash_time: Duration,
    /// The time for which the BMC refuses connections after its own update.
    #[serde(with = "time")]
    pub restart_time: Duration,
    /// The time that the host boots before what waited for its restart is written or runs; its task shows nothing of that.
    #[serde(with = "time")]
    pub boot_delay: Duration,
}

impl Default for UpdatePolicy {
    fn default() -> Self {
        Self {
            simple: None,
            multipart: None,
            push: None,
            push_form: PushForm::Raw,
            push_options: false,
            oem_part: false,
            targets_required: false,
            start_action: false,
            max_bytes: None,
            answer: UpdateAnswer::TaskAndMonitor,
            bios: BiosUpdate::Staged,
            waiting: WaitingTask::default(),
            asks_for_bmc_restart: false,
            keeps_tasks: false,
            lists_staged: false,
            check_time: Duration::from_secs(20),
            flash_time: Duration::from_secs(300),
            restart_time: Duration::from_secs(180),
            boot_delay: Duration::ZERO,
        }
    }
}

impl UpdatePolicy {
    /// Whether an image can arrive at all.
    pub fn takes_images(&self) -> bool {
        self.simple.is_some() || self.multipart.is_some() || self.push.is_some()
    }
}

/// The action `SimpleUpdate`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SimplePolicy {
    /// The protocols that the action accepts, in upper case.
    pub protocols: Vec<String>,
    /// Whether the protocols are listed by an `ActionInfo` and not at the action.
    #[serde(default)]
    pub action_info: bool,
    /// Whether `TransferProtocol` is mandatory.
    #[serde(default)]
    pub protocol_required: bool,
    /// Whether `Targets` is refused.
    #[serde(default)]
    pub refuses_targets: bool,
    /// Whether the protocols are listed nowhere.
    #[serde(default)]
    pub unlisted: bool,
    /// Whether the BMC responds before it reads the image; its task shows that it reads. Else it reads the image first.
    #[serde(default)]
    pub answers_first: bool,
    /// Whether `ImageURI` has no scheme: `TransferProtocol` names it.
    #[serde(default)]
    pub no_scheme: bool,
}

/// The form of an upload to `HttpPushUri`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushForm {
    /// The body is the image.
    Raw,
    /// A form with the parts `sessionKey` and `parameters`, and the cookie `sessionKey`.
    Session,
    /// A form with the image and `If-Match`; the image is only stored, `SimpleUpdate` with its path starts the update.
    Stored,
}

/// The place in which the response to an accepted update names its task.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateAnswer {
    /// 202, `Location` is the monitor, the body is the task.
    TaskAndMonitor,
    /// 202, `Location` is the task, no body.
    TaskLocation,
    /// 202, `Location` is `…/Tasks/{id}/Monitor`-like monitor only.
    MonitorLocation,
    /// 202, only the body names the task.
    TaskBody,
    /// 202, only a message argument names the task.
    MessageArgs,
    /// 200 without a task; an OEM object of the service shows the state.
    ServiceState,
    /// 202 and nothing else; the list of tasks shows the task.
    Nothing,
}

/// The time from which a new BIOS runs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BiosUpdate {
    /// The BIOS is written at once and runs after the next restart of the host.
    Staged,
    /// The BIOS is written when the host restarts.
    AtRestart,
    /// The BIOS is written at once while the host is off, and refused while it is on.
    HostOff,
}

/// The state of a task that waits for a restart of the host.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WaitingTask {
    /// The `TaskState` of the task.
    pub state: String,
    /// `Oem.{vendor}.JobState`, if there is one.
    pub job_state: Option<String>,
    /// The `MessageId` of the message of the task.
    pub message_id: String,
    /// The text of the message of the task.
    pub message: String,
}

impl Default for WaitingTask {
    fn default() -> Self {
        Self {
            state: "Completed".to_owned(),
            job_state: None,
            message_id: "Base.1.18.ResetRequired".to_owned(),
            message: "In order to complete the operation, a component reset is required.".to_owned(),
        }
    }
}

/// The kind of a member of the firmware inventory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// The firmware of the BMC.
    Bmc,
    /// The BIOS of the host.
    Bios,
    /// Any other device.
    #[default]
    Device,
}
