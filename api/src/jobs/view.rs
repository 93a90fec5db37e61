//! The JSON of a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::error::ErrorBody;
use super::super::openapi::types;
use engine::Explanation;
use media::shown_location;
use model::{
    BatchId, Event, Failure, Hold, Job, JobStatus, JsonText, Outcome, Phase, RunId, Serial, StepName,
    StepPhase, StepSummary, Time, Wait,
};
use provision::{PlannedImage, PlannedStep};
use recipe::Lint;

/// A job: the fields in every response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Job")]
pub(crate) struct JobView<'a> {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    /// What kind of job it is: `provision` installs a server, `diagnostics` checks its BMC, `power.cycle`,
    /// `bmc.reset` and `inventory.out-of-band` are conditions of it.
    workflow: &'a str,
    /// The job that started this one.
    #[schemars(with = "Option<types::JobId>")]
    parent: Option<RunId>,
    /// The server; null for a job without a server.
    #[schemars(with = "Option<types::SerialNumber>")]
    server_serial: Option<&'a Serial>,
    #[schemars(with = "types::JobStatus")]
    status: JobStatus,
    /// How the job ended; null while it has not.
    #[schemars(with = "Option<types::Outcome>")]
    outcome: Option<Outcome>,
    /// The step that failed.
    failed_step: Option<&'a str>,
    /// Why the job failed.
    #[schemars(with = "Option<types::Failure>")]
    failure: Option<&'a Failure>,
    /// The current step.
    step: Option<&'a str>,
    /// What the job waits for.
    #[schemars(with = "Option<types::Wait>")]
    wait: Option<&'a Wait>,
    /// What an operator must decide.
    #[schemars(with = "Option<types::Hold>")]
    hold: Option<&'a Hold>,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    /// When the job changed last.
    #[schemars(with = "types::Timestamp")]
    last_update: Time,
    /// When the job fails if it has not ended; with an outcome, when its cleanup is given up.
    #[schemars(with = "types::Timestamp")]
    deadline_at: Time,
    /// The `$id` of the recipe schema; null for a job that installs nothing, as are the following fields of images.
    recipe_schema_id: Option<&'a str>,
    /// The digest of the task image, if it is built.
    #[schemars(with = "Option<types::Sha256>")]
    task_iso_sha256: Option<&'a str>,
    /// The path of the task image on the controller, if it is stored as a file.
    task_iso_path: Option<&'a str>,
    /// The image that the machine boots. Of a URL with credentials or a query only the host is shown.
    maintenance_iso_url: Option<String>,
    labels: &'a BTreeMap<String, String>,
    /// The priority; a greater one begins first.
    priority: i32,
    /// The job that this job repeats.
    #[schemars(with = "Option<types::JobId>")]
    retry_of: Option<RunId>,
    /// The batch of the job.
    #[schemars(with = "Option<types::BatchId>")]
    batch: Option<BatchId>,
    cleanup: Cleanup<'a>,
}

/// The cleanup of a job.
#[derive(Serialize, JsonSchema)]
struct Cleanup<'a> {
    state: CleanupState,
    /// The steps of the cleanup that are pending.
    #[schemars(with = "Vec<String>")]
    remaining: &'a [StepName],
}

/// The state of the cleanup of a job.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CleanupState {
    /// The job has not come to its end.
    Pending,
    /// The cleanup runs.
    Running,
    /// Everything was cleaned up.
    Done,
    /// The job has ended, and some cleanup is pending.
    Incomplete,
}

impl<'a> JobView<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        let (run, record) = (&job.run, job.provision.as_ref());
        Self {
            job_id: run.id,
            workflow: &run.workflow,
            parent: run.parent,
            server_serial: run.server.as_ref(),
            status: job.status,
            outcome: run.outcome,
            failed_step: job.failed_step().map(StepName::as_str),
            failure: run.failure.as_ref(),
            step: run.step.as_deref(),
            wait: run.wait.as_ref(),
            hold: run.hold.as_ref(),
            created_at: run.created_at,
            last_update: run.updated_at,
            deadline_at: run.deadline_at,
            recipe_schema_id: record.map(|record| record.recipe_schema_id.as_str()),
            task_iso_sha256: record.and_then(|record| record.task_iso_sha256.as_deref()),
            task_iso_path: record.and_then(|record| record.task_iso_path.as_deref()),
            maintenance_iso_url: record.map(|record| shown_location(&record.maintenance_iso_url)),
            labels: &job.labels,
            priority: run.priority,
            retry_of: job.retry_of,
            batch: job.batch,
            cleanup: Cleanup { state: cleanup(job), remaining: &job.cleanup_remaining },
        }
    }
}

/// A job with its steps and latest events.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobDetail")]
pub(crate) struct JobDetailView<'a> {
    #[serde(flatten)]
    job: JobView<'a>,
    /// The slots that the job uses for virtual media, after the discovery of the BMC.
    #[schemars(with = "Option<types::Object>")]
    slot_plan: Option<Value>,
    /// What an operator can do with the job now: `cancel`, `hold`, `resume`, `finish` (a rescue session), `retry`.
    verbs: Vec<&'static str>,
    steps: Vec<StepView<'a>>,
    /// How an installation without report was completed.
    #[schemars(with = "Option<types::Object>")]
    completion: Option<Value>,
    /// The latest events, at most 200.
    #[schemars(with = "Vec<types::Event>")]
    events: &'a [JsonText],
}

/// A step of a job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Step")]
struct StepView<'a> {
    /// The name of the step.
    step: &'a str,
    /// What the step works on, such as the component `bios` of a firmware installation; null for a step of the whole job.
    of: Option<&'a str>,
    #[schemars(with = "types::StepPhase")]
    phase: StepPhase,
    /// The attempt, from 1.
    attempt: u32,
    #[schemars(with = "types::Timestamp")]
    started_at: Time,
    #[schemars(with = "Option<types::Timestamp>")]
    ended_at: Option<Time>,
}

/// A job in a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobRow")]
pub(crate) struct JobRowView<'a> {
    #[serde(flatten)]
    job: JobView<'a>,
    /// The beginning of the id, of eight or more characters, by which it differs from the ids of all other jobs. The parameter
    /// `id` of the list takes it.
    short_id: String,
}

/// The least number of characters of a short id.
const SHORT_ID: usize = 8;

impl<'a> JobRowView<'a> {
    /// `distinct` is the number of characters by which the id differs from all others.
    pub(super) fn of(job: &'a Job, distinct: usize) -> Self {
        let mut short_id = job.run.id.to_string();
        let shortest = distinct.max(SHORT_ID);
        // A hyphen at the end distinguishes nothing.
        let ends_with_hyphen = short_id.as_bytes().get(shortest - 1) == Some(&b'-');
        short_id.truncate(if ends_with_hyphen { shortest + 1 } else { shortest });
        Self { job: JobView::of(job), short_id }
    }
}

/// One page of jobs.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobPage")]
pub(crate) struct JobPage<'a> {
    pub(super) jobs: Vec<JobRowView<'a>>,
    /// The cursor of the following page; null on the last one.
    pub(super) next: Option<String>,
}

/// A job that a request created or found.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedJob")]
pub(crate) struct CreatedJobView<'a> {
    #[schemars(with = "types::JobId")]
    pub(super) job_id: RunId,
    #[schemars(with = "types::JobStatus")]
    pub(super) status: JobStatus,
    #[schemars(with = "types::SerialNumber")]
    pub(super) server_serial: &'a Serial,
    #[schemars(with = "types::Timestamp")]
    pub(super) created_at: Time,
    /// Advice about the recipe of a new job.
    #[schemars(with = "Vec<types::Warning>")]
    pub(super) warnings: Vec<Lint>,
}

/// The schema of a 200 response to a job request: a found job, or the preview of a new one.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "the handler returns the two types; the enum is read by the derive macro only")]
pub(crate) enum JobResponse<'a> {
    /// The job of an earlier request.
    Found(CreatedJobView<'a>),
    /// The preview.
    Preview(Box<DryRunView>),
}

/// A job after a verb.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobAfterVerb")]
pub(crate) struct JobVerbView<'a> {
    #[serde(flatten)]
    pub(super) job: JobView<'a>,
    /// What happens next.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "types::Explanation")]
    pub(super) explain: Option<Explanation>,
}

/// Why a job is in its state, with the last events.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobExplanation")]
pub(crate) struct JobExplanationView {
    #[serde(flatten)]
    #[schemars(with = "types::Explanation")]
    pub(super) explanation: Explanation,
    #[schemars(with = "types::JobId")]
    pub(super) job_id: RunId,
    /// The server; null if the record of the job cannot be read.
    #[schemars(with = "Option<types::SerialNumber>")]
    pub(super) server_serial: Option<String>,
    /// The state; null if the record of the job cannot be read.
    #[schemars(with = "Option<types::JobStatus>")]
    pub(super) status: Option<JobStatus>,
    /// The last events.
    #[schemars(with = "Vec<types::Event>")]
    pub(super) evidence: Vec<Event>,
}

/// The preview of a job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DryRun")]
pub(crate) struct DryRunView {
    /// Always true.
    pub(super) dry_run: bool,
    pub(super) would: Would,
    /// The error response to the request without `dry_run`.
    pub(super) refused: Option<RefusalView>,
    /// The job that the request would find.
    #[schemars(with = "Option<types::JobId>")]
    pub(super) job_id: Option<RunId>,
    #[schemars(with = "types::SerialNumber")]
    pub(super) server_serial: Serial,
    #[schemars(with = "types::Timestamp")]
    pub(super) deadline_at: Time,
    pub(super) priority: i32,
    /// The steps in order, with their time limits.
    #[schemars(with = "Vec<types::PlannedStep>")]
    pub(super) steps: Vec<PlannedStep>,
    /// The name of the slot plan of the last discovery of the server.
    #[schemars(with = "Option<String>")]
    pub(super) slot_plan: Option<Value>,
    #[schemars(with = "types::PlannedImage")]
    pub(super) task_image: PlannedImage,
    #[schemars(with = "types::PlannedImage")]
    pub(super) maintenance_image: PlannedImage,
    /// Whether the registry of the controller holds the OS image; null when the recipe names none.
    pub(super) os_image_held: Option<bool>,
    /// The closed gates, which would keep the job in the queue.
    pub(super) gates: Vec<GateView>,
    /// The limits that the job shares with other jobs.
    pub(super) limits: Vec<LimitView>,
    /// Why the job would fail now.
    pub(super) blocked_by: Vec<String>,
    /// Advice about the recipe.
    #[schemars(with = "Vec<types::Warning>")]
    pub(super) warnings: Vec<Lint>,
}

/// What the controller would do with a request.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Would {
    /// Create a job.
    Accept,
    /// Return the job of an earlier request with the same idempotency key.
    Replay,
    /// Refuse the request.
    Refuse,
}

/// An error response in a preview.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Refusal")]
pub(crate) struct RefusalView {
    /// The HTTP status.
    pub(super) status: u16,
    pub(super) error: ErrorBody,
}

/// A closed gate.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ClosedGate")]
pub(crate) struct GateView {
    /// The gate: `drain`, `maintenance`, or the name of a shortage.
    pub(super) name: String,
    #[schemars(with = "types::Timestamp")]
    pub(super) since: Time,
}

/// A limit that jobs share.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Limit")]
pub(crate) struct LimitView {
    /// The lock or permit.
    pub(super) resource: String,
    /// How many jobs may hold it at once.
    pub(super) capacity: u32,
    /// The setting of the limit.
    pub(super) limit: Option<&'static str>,
}

impl<'a> JobDetailView<'a> {
    pub(super) fn of(
        job: &'a Job,
        verbs: Vec<&'static str>,
        steps: &'a [StepSummary],
        events: &'a [JsonText],
    ) -> Self {
        let shown = |step: &'a StepSummary| StepView {
            step: &step.name,
            of: Some(step.key.trim_end_matches('/')).filter(|key| !key.is_empty()),
            phase: step.phase,
            attempt: step.attempt,
            started_at: step.started_at,
            ended_at: step.ended_at,
        };
        Self {
            job: JobView::of(job),
            verbs,
            slot_plan: provision::slot_plan(steps),
            steps: steps.iter().map(shown).collect(),
            completion: completion(steps),
            events,
        }
    }
}

/// How an installation without report was completed: `observed` with the completion sign, or `assumed`.
fn completion(steps: &[StepSummary]) -> Option<Value> {
    // Parses only outputs that can contain it.
    let may_contain = |step: &&StepSummary| step.output.as_str().contains("\"completion\"");
    let mut outputs = steps.iter().rev().filter(may_contain).map(|step| step.output.value());
    let output = outputs.find(|output| output["completion"].is_string())?;
    Some(json!({ "by": output["completion"], "sign": output.get("sign"), "at": output["at"] }))
}

/// The `ETag` of a job: its revision.
pub(super) fn etag(revision: i64) -> String {
    format!("\"{revision}\"")
}

fn cleanup(job: &Job) -> CleanupState {
    match (job.run.phase, job.cleanup_remaining.is_empty()) {
        (Phase::Ended, true) => CleanupState::Done,
        (Phase::Ended, false) => CleanupState::Incomplete,
        (Phase::Unwinding | Phase::Finishing, _) => CleanupState::Running,
        _ => CleanupState::Pending,
    }
}
