//! What the API returns for firmware and for conditions of servers.

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
    /// The models that it is for.
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
    /// Why.
    pub reason: String,
}

/// A firmware set.
#[derive(Clone, Debug, Deserialize)]
pub struct FirmwareSetJson {
    /// The name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Who made it.
    pub created_by: String,
    /// When.
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

/// What a server is made of.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InventoryJson {
    /// When its BMC was read.
    #[serde(default)]
    pub out_of_band_read_at: Option<Timestamp>,
    /// What its BMC showed.
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
    /// The id, which is that of its job.
    pub id: String,
    /// The kind.
    pub kind: String,
    /// `pending`, `active`, `succeeded` or `failed`.
    pub state: String,
    /// How far it is.
    pub status: ConditionStatus,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it changed last.
    pub updated_at: Timestamp,
}

/// How far a condition is.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionStatus {
    /// What it waits for, does or did.
    pub message: String,
    /// What to do.
    pub next_action: String,
    /// The steps in the order of the plan.
    #[serde(default)]
    pub steps: Vec<ConditionStep>,
}

/// A step of a condition.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionStep {
    /// Its name.
    pub name: String,
    /// What it works on, if it runs for several things.
    #[serde(default)]
    pub of: Option<String>,
}

/// What a request for a condition would do.
#[derive(Clone, Debug, Deserialize)]
pub struct ConditionPreview {
    /// `accept` or `refuse`.
    pub would: String,
    /// Why it would be refused.
    pub refused: Option<String>,
    /// The parameters, with every default filled in.
    pub parameters: Value,
    /// What it does, in one sentence.
    pub does: String,
    /// The steps.
    pub steps: Vec<String>,
    /// What happens to each component.
    pub plan: Option<Vec<PlanItemJson>>,
    /// Why there is no plan.
    pub plan_missing: Option<String>,
    /// The job that has the server now.
    pub waits_for: Option<String>,
    /// The closed gates.
    pub gates: Vec<String>,
}

/// What happens to a component.
#[derive(Clone, Debug, Deserialize)]
pub struct PlanItemJson {
    /// The component.
    pub component: String,
    /// The name that the BMC has for it.
    pub id: Option<String>,
    /// The installed version.
    pub now: Option<String>,
    /// The version of the file.
    pub then: Option<String>,
    /// `install`, `skip` or `refuse`.
    pub decision: String,
    /// Why.
    pub reason: String,
    /// The bytes that are sent.
    pub size: Option<u64>,
    /// Whether the host restarts.
    pub restart: Option<Value>,
}

/// The result of the last diagnostics of a server.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LastDiagnostics {
    /// The job; none before the first.
    pub doctor_id: Option<String>,
    /// When it ended; none while it runs.
    pub ended_at: Option<Timestamp>,
    /// The worst status of all checks.
    pub verdict: Option<String>,
    /// The checks.
    pub checks: Vec<DiagnosticCheck>,
}

/// One check of diagnostics.
#[derive(Clone, Debug, Deserialize)]
pub struct DiagnosticCheck {
    /// Its name.
    pub name: String,
    /// `pass`, `warn` or `fail`.
    pub status: String,
    /// What was found.
    pub found: String,
    /// What to do.
    pub next_action: String,
}
