//! What the API returns, as far as pages show it. The names of fields are those of the OpenAPI document. A type whose name is also
//! that of a type of the domain ends with `Json`: `JobJson` is a job as the API shows it.

mod accounts;
mod admin;
mod error;
mod firmware;
mod fleet;
mod media;
mod registry;
mod restored;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

pub use accounts::{IssuedToken, Token, TokenPage, User, UserPage};
pub use admin::{
    AuditEntryJson, AuditPage, DryRunJson, GateJson, PlannedStepJson, Refused, Setting, SettingPage,
};
pub use error::{ErrorBody, ErrorDetail};
pub use firmware::{
    ConditionJson, ConditionList, ConditionPreview, ConditionStatus, ConditionStep, DiagnosticCheck,
    FirmwareJson, FirmwarePage, FirmwareSetJson, FirmwareSetPage, InventoryJson, LastDiagnostics,
    PlanItemJson, UnusableFirmwareJson,
};
pub use fleet::{
    BatchDetail, BatchJson, BatchPageJson, BatchProgress, BatchRow, BatchStopJson, CauseJson,
    CreatedBatchJson, ImportRow, JobOfServer, SelectionJson, ServerImport,
};
pub use media::{Media, MediaPage};
pub use registry::{
    HeldContent, ImageTag, QuotaJson, RegistryJson, Repositories, Repository, RepositoryDetail,
    ScrubStatusJson,
};
pub use restored::{
    BelievedJob, BelievedMachine, ObservedMachine, ObservedSlot, RestorationJson, RestoredServerJson,
};
pub use webhooks::{DeadLetterJson, DeadLetterPage, RetryStreamJson, WebhookJson, WebhookPage, WebhookTest};

/// A job of a list, and the part of one job that both have.
#[derive(Clone, Debug, Deserialize)]
pub struct JobJson {
    /// The id.
    pub job_id: String,
    /// The kind of job.
    pub workflow: String,
    /// The server, if it has one.
    pub server_serial: Option<String>,
    /// The public state.
    pub status: String,
    /// How it ended.
    pub outcome: Option<String>,
    /// The step that failed.
    pub failed_step: Option<String>,
    /// Why it failed.
    pub failure: Option<FailureJson>,
    /// The current step.
    pub step: Option<String>,
    /// What it waits for.
    pub wait: Option<WaitJson>,
    /// What an operator must decide.
    pub hold: Option<HoldJson>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it changed last.
    pub last_update: Timestamp,
    /// When it fails if it has not ended.
    pub deadline_at: Timestamp,
    /// The image that the machine boots.
    pub maintenance_iso_url: Option<String>,
    /// The digest of the task image.
    pub task_iso_sha256: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its priority.
    pub priority: i32,
    /// The job that it repeats.
    pub retry_of: Option<String>,
    /// Its batch.
    pub batch: Option<String>,
    /// Its cleanup.
    pub cleanup: Cleanup,
}

/// Why a job failed.
#[derive(Clone, Debug, Deserialize)]
pub struct FailureJson {
    /// The kind of failure.
    pub class: String,
    /// The step.
    pub step: String,
    /// What happened.
    pub summary: String,
    /// What to do.
    pub next_action: String,
}

/// What a job waits for.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitJson {
    /// The kind of wait.
    pub reason: String,
    /// What is known about it.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// When it ends at the latest.
    pub deadline: Timestamp,
}

/// What an operator must decide.
#[derive(Clone, Debug, Deserialize)]
pub struct HoldJson {
    /// The kind of hold.
    pub class: String,
    /// Why it is held.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
}

/// The cleanup of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct Cleanup {
    /// Its state.
    pub state: String,
    /// The steps that are pending.
    pub remaining: Vec<String>,
}

/// One page of jobs.
#[derive(Clone, Debug, Deserialize)]
pub struct JobPageJson {
    /// The jobs.
    pub jobs: Vec<JobJson>,
    /// The cursor of the following page.
    pub next: Option<String>,
}

/// A job with its steps and latest events.
#[derive(Clone, Debug, Deserialize)]
pub struct JobDetailJson {
    /// The job.
    #[serde(flatten)]
    pub job: JobJson,
    /// The slots that the job uses.
    pub slot_plan: Option<Value>,
    /// What an operator can do with it.
    pub verbs: Vec<String>,
    /// Its steps.
    pub steps: Vec<StepJson>,
    /// Its latest events.
    pub events: Vec<EventJson>,
}

/// A step of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct StepJson {
    /// Its name.
    pub step: String,
    /// Its state.
    pub phase: String,
    /// What the step works on, if a step of this name runs for several things. The condition of the job says it.
    #[serde(default)]
    pub of: Option<String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// An entry of the event log.
#[derive(Clone, Debug, Deserialize)]
pub struct EventJson {
    /// Its position in the log.
    pub seq: i64,
    /// When it happened.
    pub time: Timestamp,
    /// `info`, `warn` or `error`.
    pub level: String,
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The step.
    pub step: Option<String>,
    /// The job.
    #[serde(default)]
    pub job_id: Option<String>,
    /// The server.
    #[serde(default)]
    pub server_serial: Option<String>,
    /// Who caused it.
    pub actor: String,
    /// What happened.
    pub message: String,
    /// What else is known, by the kind of event.
    #[serde(default)]
    pub data: Value,
}

/// One page of events.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EventPage {
    /// The events in the order of the log.
    pub events: Vec<EventJson>,
    /// The position after which to continue.
    pub next: i64,
    /// The position before which older events may be.
    pub previous: Option<i64>,
}

/// Why a job is in its state.
#[derive(Clone, Debug, Deserialize)]
pub struct ExplanationJson {
    /// The kind of state.
    pub condition: String,
    /// The explanation.
    pub summary: String,
    /// When the state began.
    pub since: Timestamp,
    /// When it ends at the latest.
    pub deadline: Option<Timestamp>,
    /// What ends it.
    pub ends_by: String,
    /// What an operator can do.
    pub next_action: String,
    /// The reason of a wait, or the class of a hold or failure.
    pub reason: Option<String>,
    /// The last events.
    pub evidence: Vec<EventJson>,
}

/// What was read of the images of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct MediaReads {
    /// One row per image.
    pub media: Vec<MediaRead>,
}

/// What was read of one image.
#[derive(Clone, Debug, Deserialize)]
pub struct MediaRead {
    /// `boot`, `task` or `firmware`.
    pub image: String,
    /// The length of the image in bytes.
    pub size: u64,
    /// The bytes that were sent.
    pub bytes: u64,
    /// When it was first read.
    pub first_read_at: Option<Timestamp>,
    /// When its boot record was first read.
    pub boot_read_at: Option<Timestamp>,
    /// When it was last read.
    pub last_read_at: Option<Timestamp>,
    /// When it stopped being served.
    pub ended_at: Option<Timestamp>,
}

/// A registered server.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerJson {
    /// Its serial number.
    pub serial: String,
    /// The URL of its BMC.
    pub bmc_address: String,
    /// The login at the BMC.
    pub bmc_username: String,
    /// The vendor, as the operator gave it.
    pub vendor: Option<String>,
    /// The profile that the operator has chosen.
    pub bmc_profile: Option<String>,
    /// The flags of the profile that the operator has overridden.
    #[serde(default)]
    pub quirks: Option<serde_json::Map<String, Value>>,
    /// The network of the machine, for jobs whose recipe has none.
    #[serde(default)]
    pub network: Option<serde_json::Map<String, Value>>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether a BMC that shows no serial number is accepted.
    #[serde(default)]
    pub allow_unverified_serial: bool,
    /// The URL under which the BMC reads media, if it differs from the default.
    #[serde(default)]
    pub media_base_url: Option<String>,
    /// How the certificate of the BMC is checked.
    pub tls: String,
    /// The accepted certificate.
    pub tls_fingerprint: Option<String>,
    /// When the BMC responded last.
    pub last_seen: Option<Timestamp>,
    /// What the last discovery observed.
    pub observed: Option<Value>,
    /// What jobs have learned about the BMC.
    pub learned: Option<Value>,
    /// The cleanup that the last job could not do.
    #[serde(default)]
    pub pending_cleanup: Option<Value>,
    /// The maintenance during which no job starts.
    pub maintenance: Option<Closure>,
    /// Why nothing is done to the server.
    pub restored: Option<Value>,
    /// The revision.
    pub revision: i64,
}

/// Who closed a gate, and why.
#[derive(Clone, Debug, Deserialize)]
pub struct Closure {
    /// Since when.
    pub since: Timestamp,
    /// By whom.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// One page of servers.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerPage {
    /// The servers.
    pub servers: Vec<ServerJson>,
    /// The cursor of the following page.
    pub next: Option<String>,
    /// Those of them that a job has. The API lists them apart.
    #[serde(skip)]
    pub busy: BTreeSet<String>,
}

/// The last card of a BMC.
#[derive(Clone, Debug, Deserialize)]
pub struct KeptCard {
    /// The card; null before the first probe.
    pub card: Option<Value>,
    /// When the probe was made.
    pub probed_at: Option<Timestamp>,
}

/// The whole installation in numbers.
#[derive(Clone, Debug, Deserialize)]
pub struct OverviewJson {
    /// When the numbers were taken.
    pub at: Timestamp,
    /// The number of registered servers.
    pub servers: u64,
    /// The newest position of the event log.
    pub last_seq: i64,
    /// Jobs of the last day that failed.
    pub failed: u64,
    /// Jobs of the last day that succeeded.
    pub succeeded: u64,
    /// Unended jobs by state.
    pub open: Vec<OpenJobs>,
    /// Failures of the last day that no newer job of the server has followed.
    pub failures: Vec<FailureGroupJson>,
    /// Holds by class.
    pub holds: Vec<HoldGroupJson>,
    /// Waits by reason.
    pub waits: Vec<WaitGroup>,
    /// Queued jobs by what keeps them from their start; absent from a controller of an older version.
    #[serde(default)]
    pub blocked: Vec<BlockedGroupJson>,
    /// Batches that have stopped; absent from a controller of an older version.
    #[serde(default)]
    pub stopped_batches: Vec<StoppedBatchJson>,
    /// Unended jobs by step.
    pub steps: Vec<StepGroup>,
    /// Jobs that ended in the last day, by hour and outcome.
    pub ended: Vec<EndedHour>,
    /// Servers by site and rack.
    pub racks: Vec<Rack>,
    /// Servers on which a job could not clean up.
    #[serde(default)]
    pub cleanup: Option<CleanupJson>,
}

/// The number of unended jobs in one state.
#[derive(Clone, Debug, Deserialize)]
pub struct OpenJobs {
    /// `queued`, `waiting`, `working` or `held`.
    pub state: String,
    /// How many.
    pub jobs: u64,
    /// Since when the oldest of them is in it.
    pub since: Timestamp,
    /// The next deadline.
    pub next_deadline: Timestamp,
}

/// Jobs that failed of one cause.
#[derive(Clone, Debug, Deserialize)]
pub struct FailureGroupJson {
    /// The class of the failure.
    pub class: String,
    /// The step.
    pub step: String,
    /// What happened to the newest of them.
    pub summary: String,
    /// What to do.
    pub next_action: String,
    /// How many.
    pub jobs: u64,
    /// The newest of them.
    pub newest_job: String,
    /// When the newest failed.
    pub newest_at: Timestamp,
    /// Some of the servers.
    pub servers: Vec<String>,
}

/// Jobs that are held for one reason.
#[derive(Clone, Debug, Deserialize)]
pub struct HoldGroupJson {
    /// The class of the hold.
    pub class: String,
    /// Why the oldest of them is held.
    pub detail: String,
    /// How many are held with the same words; absent from a controller of an older version.
    #[serde(default)]
    pub alike: Option<u64>,
    /// How many.
    pub jobs: u64,
    /// Since when the oldest is held.
    pub since: Timestamp,
}

/// Jobs that wait for one reason.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitGroup {
    /// The reason.
    pub reason: String,
    /// How many.
    pub jobs: u64,
    /// Since when the oldest waits.
    pub since: Timestamp,
    /// The next deadline.
    pub next_deadline: Timestamp,
}

/// Queued jobs that one thing keeps from their start.
#[derive(Clone, Debug, Deserialize)]
pub struct BlockedGroupJson {
    /// What it is.
    pub blocker: String,
    /// How many.
    pub jobs: u64,
    /// Since when the oldest is queued.
    pub since: Timestamp,
    /// The next deadline.
    pub next_deadline: Timestamp,
}

/// A batch that has stopped.
#[derive(Clone, Debug, Deserialize)]
pub struct StoppedBatchJson {
    /// The id.
    pub batch_id: String,
    /// Since when.
    pub since: Timestamp,
    /// The failures that were counted.
    pub failures: u64,
    /// Its jobs that have not begun.
    pub queued: u64,
}

/// Servers on which a job could not clean up.
#[derive(Clone, Debug, Deserialize)]
pub struct CleanupJson {
    /// How many.
    pub servers: u64,
    /// Some of them.
    pub named: Vec<String>,
    /// When the oldest of their jobs ended.
    pub since: Option<Timestamp>,
}

/// Jobs at one step.
#[derive(Clone, Debug, Deserialize)]
pub struct StepGroup {
    /// The step.
    pub step: String,
    /// Those that wait.
    pub waiting: u64,
    /// Those at work.
    pub working: u64,
}

/// Jobs that ended in one hour.
#[derive(Clone, Debug, Deserialize)]
pub struct EndedHour {
    /// The begin of the hour.
    pub hour: Timestamp,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
}

/// The servers of one rack by the state of their newest job.
#[derive(Clone, Debug, Deserialize)]
pub struct Rack {
    /// The label `site`.
    pub site: String,
    /// The label `rack`.
    pub rack: String,
    /// Newest job failed.
    pub failed: u64,
    /// Newest job held.
    pub held: u64,
    /// Newest job waiting.
    pub waiting: u64,
    /// Newest job working.
    pub working: u64,
    /// Newest job queued.
    pub queued: u64,
    /// Newest job succeeded.
    pub done: u64,
    /// No job, or the newest was cancelled.
    pub idle: u64,
}

/// Whether jobs start.
#[derive(Clone, Debug, Deserialize)]
pub struct Drain {
    /// The drain in force.
    pub drain: Option<Closure>,
    /// The shortage during which no job starts.
    pub pressure: Option<PressureJson>,
    /// The runs that a worker executes now.
    pub active_runs: u64,
}

/// A shortage.
#[derive(Clone, Debug, Deserialize)]
pub struct PressureJson {
    /// What is short.
    pub detail: String,
    /// What to do.
    pub next_action: String,
}

/// Whether the controller can do its work.
#[derive(Clone, Debug, Deserialize)]
pub struct Readiness {
    /// `ready` or `not ready`.
    pub status: String,
    /// The checks by name.
    pub checks: BTreeMap<String, ReadinessCheck>,
}

/// A check of readiness.
#[derive(Clone, Debug, Deserialize)]
pub struct ReadinessCheck {
    /// Whether it passed.
    pub ok: bool,
    /// The free bytes of the data disk.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// The age of the last backup in seconds.
    #[serde(default)]
    pub age_seconds: Option<u64>,
    /// What is wrong.
    #[serde(default)]
    pub message: Option<String>,
}

/// Who the caller is.
#[derive(Clone, Debug, Deserialize)]
pub struct Me {
    /// The name.
    pub name: String,
    /// How the caller logged in.
    pub login: String,
    /// The role.
    pub role: Option<String>,
    /// The labels of the servers that the caller may see.
    pub labels: BTreeMap<String, String>,
}

/// Web sessions.
#[derive(Clone, Debug, Deserialize)]
pub struct SessionPage {
    /// The sessions.
    pub sessions: Vec<Session>,
}

/// A login of a browser.
#[derive(Clone, Debug, Deserialize)]
pub struct Session {
    /// The id.
    pub session_id: String,
    /// The user or API token.
    pub name: String,
    /// `password` or `token`.
    #[serde(default)]
    pub login: String,
    /// The address of the client.
    pub address: String,
    /// The browser.
    pub agent: String,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last used.
    pub last_used_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Whether it is the one of this request.
    pub current: bool,
}
