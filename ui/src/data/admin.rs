//! Settings, the audit log and the preview of a job as the API returns them.

use jiff::Timestamp;
use serde::Deserialize;

use super::error::{ErrorBody, ErrorDetail};

/// All settings.
#[derive(Clone, Debug, Deserialize)]
pub struct SettingPage {
    /// The settings.
    pub settings: Vec<Setting>,
}

/// A setting.
#[derive(Clone, Debug, Deserialize)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The value; empty when it is not set.
    pub value: String,
    /// Where the value comes from.
    pub origin: String,
}

/// One page of the audit log.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct AuditPage {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntryJson>,
    /// The newest entry of the whole log.
    pub head: String,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditEntryJson {
    /// The time of the entry.
    pub time: Timestamp,
    /// The action, such as `user.create`.
    pub action: String,
    /// The object of the action, such as `user/ann`.
    pub target: String,
    /// The name of the user or token; empty for an unknown caller.
    pub actor: String,
    /// The address of the client; `local` for a command on the machine of the controller.
    pub source: String,
    /// `ok`, or the code of the refusal.
    pub result: String,
    /// How many equal requests the entry stands for.
    pub count: u64,
}

/// The preview of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct DryRunJson {
    /// `accept`, `replay` or `refuse`.
    pub would: String,
    /// Why the request would be refused.
    pub refused: Option<Refused>,
    /// The steps in order.
    pub steps: Vec<PlannedStepJson>,
    /// The slot plan of the last discovery.
    pub slot_plan: Option<String>,
    /// Whether the registry holds the OS image.
    pub os_image_held: Option<bool>,
    /// The closed gates.
    pub gates: Vec<GateJson>,
    /// Why the job would fail now.
    pub blocked_by: Vec<String>,
    /// Advice about the recipe.
    pub warnings: Vec<ErrorDetail>,
    /// When the job would fail if it had not ended.
    pub deadline_at: Timestamp,
}

/// Why a request would be refused.
#[derive(Clone, Debug, Deserialize)]
pub struct Refused {
    /// The error.
    pub error: ErrorBody,
}

/// A step of a plan.
#[derive(Clone, Debug, Deserialize)]
pub struct PlannedStepJson {
    /// The step.
    pub step: String,
    /// The time for all attempts, in seconds.
    pub budget_s: u64,
    /// The longest wait after the step, in seconds.
    pub wait_s: Option<u64>,
}

/// A closed gate.
#[derive(Clone, Debug, Deserialize)]
pub struct GateJson {
    /// The name of the gate: `drain`, `maintenance`, or the name of a shortage.
    pub name: String,
    /// The time at which the gate was closed.
    pub since: Timestamp,
}
