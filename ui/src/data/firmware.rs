//! Firmware and conditions of servers as the API returns them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A firmware file.
#[derive(Clone, Debug, Deserialize)]
pub struct FirmwareJson {
    /// The digest of the artifact.
    pub digest: String,
    /// The vendor.
    pub vendor: String,
    /// The models of servers that the file is for.
    pub models: Vec<String>,
    /// The component.
    pub component: String,
    /// The version.
    pub version: String,
    /// The name of the file.
    pub filename: String,
    /// The length in bytes.
    pub size: u64,
    /// Whether the host must restart.
    pub restart: String,
}

/// All firmware files.
#[derive(Clone, Debug, Deserialize)]
pub struct FirmwarePage {
    /// The files.
    pub firmware: Vec<FirmwareJson>,
    /// Artifacts that cannot be used.
    pub unusable: Vec<UnusableFirmwareJson>,
}

/// An artifact that cannot be used.
#[derive(Clone, Debug, Deserialize)]
pub struct UnusableFirmwareJson {
    /// The digest.
    pub digest: String,
    /// The repository.
    pub repository: String,
    /// The reason why the artifact cannot be used.
    pub reason: String,
}

/// A firmware set.
#[derive(Clone, Debug, Deserialize)]
pub struct FirmwareSetJson {
    /// The name.
    pub name: String,
    /// The labels of the set.
    pub labels: BTreeMap<String, String>,
    /// The user who created the set.
    pub created_by: String,
    /// The time at which the set was created.
    pub created_at: Timestamp,
    /// The files, in the order of installation.
    pub files: Vec<FirmwareJson>,
}

/// All firmware sets.
#[derive(Clone, Debug, Deserialize)]
pub struct FirmwareSetPage {
    /// The sets.
    pub sets: Vec<FirmwareSetJson>,
}

/// The out-of-band inventory of a server: its parts, as its BMC showed them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InventoryJson {
    /// The time at which the BMC was read; `None` before the first read.
    #[serde(default)]
    pub out_of_band_read_at: Option<Timestamp>,
    /// The inventory as the BMC showed it, a JSON object.
    #[serde(default)]
    pub out_of_band: Option<Value>,
}

/// The newest condition of each kind.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ConditionList {
    /// The conditions, the open ones first.
    pub conditions: Vec<ConditionJson>,
}

/// An action requested for a server.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionJson {
    /// The id of the condition and of its job.
    pub id: String,
    /// The kind of the condition, such as `powerCycleSoft`.
    pub kind: String,
    /// `pending`, `active`, `succeeded` or `failed`.
    pub state: String,
    /// The progress of the condition.
    pub status: ConditionStatus,
    /// The time at which the condition was requested.
    pub created_at: Timestamp,
    /// The time at which the condition changed last.
    pub updated_at: Timestamp,
}

/// The progress of a condition.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionStatus {
    /// The message: what the condition waits for, does or did.
    pub message: String,
    /// The next action of an operator.
    pub next_action: String,
    /// The steps in the order of the plan.
    #[serde(default)]
    pub steps: Vec<ConditionStep>,
}

/// A step of a condition.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionStep {
    /// The name of the step.
    pub name: String,
    /// The thing that the step works on, such as a component, if the step runs for several things.
    #[serde(default)]
    pub of: Option<String>,
}

/// The preview of a condition: what a request would do.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionPreview {
    /// `accept` or `refuse`.
    pub would: String,
    /// The reason why the request would be refused; `None` if it would be accepted.
    pub refused: Option<String>,
    /// The parameters, with every default filled in.
    pub parameters: Value,
    /// The effect of the condition, in one sentence.
    pub does: String,
    /// The steps.
    pub steps: Vec<String>,
    /// The plan of an installation of firmware: one item for each component.
    pub plan: Option<Vec<PlanItemJson>>,
    /// The reason why there is no plan.
    pub plan_missing: Option<String>,
    /// The job that has the server now.
    pub waits_for: Option<String>,
    /// The closed gates.
    pub gates: Vec<String>,
}

/// One component of the plan of an installation of firmware.
#[derive(Clone, Debug, Deserialize)]
pub struct PlanItemJson {
    /// The component.
    pub component: String,
    /// The id by which the BMC names the firmware; `None` for a component that the server does not have.
    pub id: Option<String>,
    /// The installed version.
    pub now: Option<String>,
    /// The version of the file.
    pub then: Option<String>,
    /// `install`, `skip` or `refuse`.
    pub decision: String,
    /// The reason of the decision.
    pub reason: String,
    /// The number of bytes that are sent to the BMC.
    pub size: Option<u64>,
    /// Whether the host restarts.
    pub restart: Option<Value>,
}

/// The result of the last diagnostics of a server.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LastDiagnostics {
    /// The job; none before the first.
    pub diagnostics_id: Option<String>,
    /// The time at which the diagnostics ended; `None` while they run.
    pub ended_at: Option<Timestamp>,
    /// The worst status of all checks.
    pub verdict: Option<String>,
    /// The checks.
    pub checks: Vec<DiagnosticCheck>,
}

/// One check of diagnostics.
#[derive(Clone, Debug, Deserialize)]
pub struct DiagnosticCheck {
    /// The name of the check.
    pub name: String,
    /// `pass`, `warn` or `fail`.
    pub status: String,
    /// The finding of the check.
    pub found: String,
    /// The next action of an operator; empty when nothing is needed.
    pub next_action: String,
}
