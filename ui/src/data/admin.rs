//! What the API returns for batches, previews, the registry, accounts, settings and the audit log.

use jiff::Timestamp;
use serde::Deserialize;

use super::error::{ErrorBody, ErrorDetail};

/// A batch with its progress.
#[derive(Clone, Debug, Deserialize)]
pub struct Batch {
    /// The id.
    pub batch_id: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// The maximum of jobs that run at once.
    pub max_parallel: Option<u32>,
    /// The number of jobs.
    pub jobs: u64,
    /// Whether every job has ended.
    pub complete: bool,
    /// The jobs by state.
    pub progress: BatchProgress,
}

/// The jobs of a batch by state.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchProgress {
    /// Not begun.
    pub queued: u64,
    /// Under way.
    pub running: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

/// The newest batches.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchPage {
    /// The batches.
    pub batches: Vec<Batch>,
}

/// All users.
#[derive(Clone, Debug, Deserialize)]
pub struct UserPage {
    /// The users.
    pub users: Vec<User>,
}

/// A user.
#[derive(Clone, Debug, Deserialize)]
pub struct User {
    /// The name.
    pub name: String,
    /// The role.
    pub role: String,
    /// When the user was disabled.
    pub disabled_at: Option<Timestamp>,
    /// Whether the user is of restored data and was not confirmed.
    pub unconfirmed: bool,
    /// Who made the user.
    pub created_by: String,
    /// When.
    pub created_at: Timestamp,
}

/// All API tokens.
#[derive(Clone, Debug, Deserialize)]
pub struct TokenPage {
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// An API token.
#[derive(Clone, Debug, Deserialize)]
pub struct Token {
    /// The name.
    pub name: String,
    /// The role.
    pub role: String,
    /// When it was last used.
    pub last_used_at: Option<Timestamp>,
    /// When it ends.
    pub expires_at: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

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
#[derive(Clone, Debug, Deserialize)]
pub struct AuditPage {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// The newest entry of the whole log.
    pub head: String,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// An entry of the audit log.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditEntry {
    /// When.
    pub time: Timestamp,
    /// What was done.
    pub action: String,
    /// On what.
    pub target: String,
    /// By whom.
    pub actor: String,
    /// From where.
    pub source: String,
    /// `ok`, or the code of the refusal.
    pub result: String,
    /// How many equal requests the entry stands for.
    pub count: u64,
}

/// The registry.
#[derive(Clone, Debug, Deserialize)]
pub struct Registry {
    /// Whether pushes are accepted.
    pub accepts_pushes: bool,
    /// The free bytes of the data disk.
    pub free_bytes: u64,
    /// Why the registry is read-only.
    pub read_only: Option<String>,
    /// The number of pins.
    pub pins: u64,
    /// The quotas.
    pub quotas: Vec<Quota>,
    /// The scrub.
    pub scrub: ScrubStatus,
}

/// A quota and its use.
#[derive(Clone, Debug, Deserialize)]
pub struct Quota {
    /// The pattern of the repositories.
    pub repositories: String,
    /// The limit.
    pub limit_bytes: u64,
    /// What is stored.
    pub used_bytes: u64,
}

/// The last scrub.
#[derive(Clone, Debug, Deserialize)]
pub struct ScrubStatus {
    /// When it ended.
    pub last_verified: Option<Timestamp>,
    /// The blobs that it read.
    pub blobs: u64,
    /// The bytes that it read.
    pub bytes: u64,
    /// Corrupted content.
    pub quarantined: Vec<String>,
}

/// The repositories of the registry.
#[derive(Clone, Debug, Deserialize)]
pub struct Repositories {
    /// The repositories by name.
    pub repositories: Vec<Repository>,
}

/// A repository.
#[derive(Clone, Debug, Deserialize)]
pub struct Repository {
    /// The name.
    pub name: String,
    /// The number of tags.
    pub tags: u64,
    /// Some of the tags.
    pub names: Vec<String>,
}

/// The preview of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct DryRun {
    /// `accept`, `replay` or `refuse`.
    pub would: String,
    /// Why the request would be refused.
    pub refused: Option<Refused>,
    /// The steps in order.
    pub steps: Vec<PlannedStep>,
    /// The slot plan of the last discovery.
    pub slot_plan: Option<String>,
    /// Whether the registry holds the OS image.
    pub os_image_held: Option<bool>,
    /// The closed gates.
    pub gates: Vec<Gate>,
    /// Why the job would fail now.
    pub blocked_by: Vec<String>,
    /// Advice.
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
pub struct PlannedStep {
    /// The step.
    pub step: String,
    /// The time for all attempts, in seconds.
    pub budget_s: u64,
    /// The longest wait after it, in seconds.
    pub wait_s: Option<u64>,
}

/// A closed gate.
#[derive(Clone, Debug, Deserialize)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// Since when.
    pub since: Timestamp,
}
