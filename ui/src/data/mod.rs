//! The documents that the API returns, as far as pages show them. The names of fields are those of the OpenAPI document. A type
//! whose name is also that of a type of the domain ends with `Json`: `JobJson` is a job as the API shows it.

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
pub use error::{ErrorBody, ErrorDetail, RepairJson};
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
    /// The outcome of the job; `None` while it has not ended.
    pub outcome: Option<String>,
    /// The step that failed.
    pub failed_step: Option<String>,
    /// The failure of the job, if it failed.
    pub failure: Option<FailureJson>,
    /// The current step.
    pub step: Option<String>,
    /// The wait of the job, if it waits.
    pub wait: Option<WaitJson>,
    /// The hold of the job, if it is held.
    pub hold: Option<HoldJson>,
    /// The time at which the job was created.
    pub created_at: Timestamp,
    /// The time at which the job changed last.
    pub last_update: Timestamp,
    /// The time at which the job fails if it has not ended; with an outcome, the time at which its cleanup is given up.
    pub deadline_at: Timestamp,
    /// The image that the machine boots.
    pub maintenance_iso_url: Option<String>,
    /// The digest of the task image.
    pub task_iso_sha256: Option<String>,
    /// The labels of the job.
    pub labels: BTreeMap<String, String>,
    /// The priority of the job; a greater one begins first.
    pub priority: i32,
    /// The job that this job repeats.
    pub retry_of: Option<String>,
    /// The batch of the job.
    pub batch: Option<String>,
    /// The cleanup of the job.
    pub cleanup: Cleanup,
}

/// Why a job failed.
#[derive(Clone, Debug, Deserialize)]
pub struct FailureJson {
    /// The kind of failure.
    pub class: String,
    /// The step that failed.
    pub step: String,
    /// The failure in one sentence.
    pub summary: String,
    /// The next action of an operator.
    pub next_action: String,
}

/// The wait of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitJson {
    /// The kind of wait.
    pub reason: String,
    /// The wait in words.
    pub detail: String,
    /// The time at which the wait began.
    pub since: Timestamp,
    /// The time at which the wait ends at the latest.
    pub deadline: Timestamp,
}

/// The hold of a job: a decision that an operator must make.
#[derive(Clone, Debug, Deserialize)]
pub struct HoldJson {
    /// The kind of hold.
    pub class: String,
    /// The hold in words.
    pub detail: String,
    /// The time at which the hold began.
    pub since: Timestamp,
}

/// The cleanup of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct Cleanup {
    /// The state of the cleanup, such as `done` or `incomplete`.
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
    /// The verbs that an operator can use on the job now, such as `cancel` or `retry`.
    pub verbs: Vec<String>,
    /// The steps of the job, each with its state.
    pub steps: Vec<StepJson>,
    /// The latest events of the job, at most 200.
    pub events: Vec<EventJson>,
}

/// A step of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct StepJson {
    /// The name of the step.
    pub step: String,
    /// The phase of the step record, such as `intent` or `done`.
    pub phase: String,
    /// What the step works on, such as a component of a firmware installation; `None` for a step of the whole job.
    pub of: Option<String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The time at which the step began.
    pub started_at: Timestamp,
    /// The time at which the step ended; `None` before its end.
    pub ended_at: Option<Timestamp>,
}

/// An entry of the event log.
#[derive(Clone, Debug, Deserialize)]
pub struct EventJson {
    /// The position of the event in the log.
    pub seq: i64,
    /// The time of the event.
    pub time: Timestamp,
    /// `info`, `warn` or `error`.
    pub level: String,
    /// The kind of event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The step to which the event belongs.
    pub step: Option<String>,
    /// The job to which the event belongs.
    #[serde(default)]
    pub job_id: Option<String>,
    /// The server to which the event belongs.
    #[serde(default)]
    pub server_serial: Option<String>,
    /// The actor of the event: `engine`, the name of a user, `maintenance-os`.
    pub actor: String,
    /// The event in one sentence, for operators.
    pub message: String,
    /// The facts of the event for programs, as JSON; their form depends on the type.
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

/// The last installation of a server that has succeeded before a job.
#[derive(Clone, Debug)]
pub struct LastSuccess {
    /// The id of the job.
    pub job_id: String,
    /// The time of its end.
    pub ended_at: Timestamp,
    /// The events of the job that say what it was to install on what machine.
    pub begun: Vec<EventJson>,
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
    /// The time at which the state ends at the latest.
    pub deadline: Option<Timestamp>,
    /// The event that ends the state, in words.
    pub ends_by: String,
    /// The next action of an operator.
    pub next_action: String,
    /// The reason of a wait, or the class of a hold or failure.
    pub reason: Option<String>,
    /// The last events.
    pub evidence: Vec<EventJson>,
}

/// The reads of the images of a job.
#[derive(Clone, Debug, Deserialize)]
pub struct MediaReads {
    /// One row per image.
    pub media: Vec<MediaRead>,
}

/// The reads of one image.
#[derive(Clone, Debug, Deserialize)]
pub struct MediaRead {
    /// `boot`, `task` or `firmware`.
    pub image: String,
    /// The length of the image in bytes.
    pub size: u64,
    /// The bytes that were sent.
    pub bytes: u64,
    /// The time of the first read of the image.
    pub first_read_at: Option<Timestamp>,
    /// The time of the first read of the boot record of the image.
    pub boot_read_at: Option<Timestamp>,
    /// The time of the last read of the image.
    pub last_read_at: Option<Timestamp>,
    /// The time at which the image was no longer served.
    pub ended_at: Option<Timestamp>,
}

/// A registered server.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerJson {
    /// The serial number of the server.
    pub serial: String,
    /// The URL of the BMC of the server.
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
    /// The labels of the server.
    pub labels: BTreeMap<String, String>,
    /// Whether a BMC that shows no serial number is accepted.
    #[serde(default)]
    pub allow_unverified_serial: bool,
    /// The URL under which the BMC reads media, if it differs from the default.
    #[serde(default)]
    pub media_base_url: Option<String>,
    /// The check of the certificate of the BMC: `verify`, `pinned` or `insecure`.
    pub tls: String,
    /// The accepted certificate.
    pub tls_fingerprint: Option<String>,
    /// The time of the last response of the BMC.
    pub last_seen: Option<Timestamp>,
    /// The facts that the last discovery observed, a JSON object.
    pub observed: Option<Value>,
    /// The behaviour of the BMC that jobs have learned, a JSON object.
    pub learned: Option<Value>,
    /// The cleanup that the last job could not do.
    #[serde(default)]
    pub pending_cleanup: Option<Value>,
    /// The maintenance during which no job starts.
    pub maintenance: Option<Closure>,
    /// The restoration, because of which nothing is done to the server; `None` for a released server.
    pub restored: Option<Value>,
    /// The revision of the server; it is the `ETag` too.
    pub revision: i64,
}

/// A gate that an operator closed.
#[derive(Clone, Debug, Deserialize)]
pub struct Closure {
    /// The time at which the gate was closed.
    pub since: Timestamp,
    /// The operator who closed the gate.
    pub by: String,
    /// The reason that the operator gave; empty without one.
    pub reason: String,
}

/// One page of servers.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerPage {
    /// The servers.
    pub servers: Vec<ServerJson>,
    /// The cursor of the following page.
    pub next: Option<String>,
    /// The serial numbers of the listed servers that an unended job has. The API lists them apart.
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
    /// The number of jobs in the state.
    pub jobs: u64,
    /// The time since which the oldest of the jobs is in the state.
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
    /// The failure of the newest of the jobs, in one sentence.
    pub summary: String,
    /// The next action of an operator.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The id of the newest of the jobs.
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
    /// The hold of the oldest of the jobs, in words.
    pub detail: String,
    /// The number of jobs that are held with equal words; absent from a controller of an older version.
    #[serde(default)]
    pub alike: Option<u64>,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest of the jobs is held.
    pub since: Timestamp,
}

/// Jobs that wait for one reason.
#[derive(Clone, Debug, Deserialize)]
pub struct WaitGroup {
    /// The reason.
    pub reason: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest of the jobs waits.
    pub since: Timestamp,
    /// The next deadline.
    pub next_deadline: Timestamp,
}

/// Queued jobs that one thing keeps from their start.
#[derive(Clone, Debug, Deserialize)]
pub struct BlockedGroupJson {
    /// The name of what keeps the jobs from their start, such as `drain`, `lock` or `limit`.
    pub blocker: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest of the jobs is queued.
    pub since: Timestamp,
    /// The next deadline.
    pub next_deadline: Timestamp,
}

/// A batch that has stopped.
#[derive(Clone, Debug, Deserialize)]
pub struct StoppedBatchJson {
    /// The id.
    pub batch_id: String,
    /// The time at which the batch stopped.
    pub since: Timestamp,
    /// The failures that were counted.
    pub failures: u64,
    /// The number of jobs of the batch that have not begun.
    pub queued: u64,
}

/// Servers on which a job could not clean up.
#[derive(Clone, Debug, Deserialize)]
pub struct CleanupJson {
    /// The number of servers.
    pub servers: u64,
    /// The serial numbers of some of the servers, at most five.
    pub named: Vec<String>,
    /// The time at which the oldest of their last jobs ended; `None` when these jobs are removed.
    pub since: Option<Timestamp>,
}

/// Jobs at one step.
#[derive(Clone, Debug, Deserialize)]
pub struct StepGroup {
    /// The step.
    pub step: String,
    /// The number of jobs that wait.
    pub waiting: u64,
    /// The number of jobs that work.
    pub working: u64,
}

/// Jobs that ended in one hour.
#[derive(Clone, Debug, Deserialize)]
pub struct EndedHour {
    /// The begin of the hour.
    pub hour: Timestamp,
    /// The number of jobs that succeeded.
    pub succeeded: u64,
    /// The number of jobs that failed.
    pub failed: u64,
    /// The number of jobs that were cancelled.
    pub cancelled: u64,
}

/// The servers of one rack by the state of their newest job.
#[derive(Clone, Debug, Deserialize)]
pub struct Rack {
    /// The label `site`.
    pub site: String,
    /// The label `rack`.
    pub rack: String,
    /// The number of servers whose newest job failed.
    pub failed: u64,
    /// The number of servers whose newest job is held.
    pub held: u64,
    /// The number of servers whose newest job waits.
    pub waiting: u64,
    /// The number of servers whose newest job works.
    pub working: u64,
    /// The number of servers whose newest job is queued.
    pub queued: u64,
    /// The number of servers whose newest installation succeeded.
    pub done: u64,
    /// The number of servers without an installation, or whose newest one was cancelled.
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
    /// The shortage in words.
    pub detail: String,
    /// The next action of an operator.
    pub next_action: String,
}

/// The readiness of the controller: whether it can do its work.
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
    /// Whether the check passed.
    pub ok: bool,
    /// The free bytes of the data disk.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// The age of the last backup in seconds.
    #[serde(default)]
    pub age_seconds: Option<u64>,
    /// The problem in words, if there is one.
    #[serde(default)]
    pub message: Option<String>,
}

/// The caller as the API knows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Me {
    /// The name.
    pub name: String,
    /// The way of the login: `password`, `token`, `jwt`, `session`, or `none` without authentication.
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
    /// The `User-Agent` of the browser at the login.
    pub agent: String,
    /// The time of the login.
    pub created_at: Timestamp,
    /// The time of the last use, accurate to a minute.
    pub last_used_at: Timestamp,
    /// The time at which the session ends, however much it is used.
    pub expires_at: Timestamp,
    /// Whether the session is the one of this request.
    pub current: bool,
}
