//! The JSON of a job.

use serde::Serialize;
use serde_json::{Value, json};

use engine::model::{
    BatchId, Failure, Hold, Job, JobStatus, JsonText, Outcome, Phase, RunId, Serial, StepPhase, StepSummary,
    Time, Wait,
};
use provision;

/// The fields of a job in every response.
#[derive(Serialize)]
pub(super) struct JobView<'a> {
    job_id: RunId,
    server_serial: &'a Serial,
    status: JobStatus,
    outcome: Option<Outcome>,
    failed_step: Option<&'a str>,
    failure: Option<&'a Failure>,
    step: Option<&'a str>,
    wait: Option<&'a Wait>,
    hold: Option<&'a Hold>,
    created_at: Time,
    last_update: Time,
    deadline_at: Time,
    recipe_schema_id: &'a str,
    task_iso_sha256: Option<&'a str>,
    task_iso_path: Option<&'a str>,
    maintenance_iso_url: &'a str,
    labels: &'a Value,
    priority: i32,
    retry_of: Option<RunId>,
    batch: Option<BatchId>,
    cleanup: Cleanup<'a>,
}

#[derive(Serialize)]
struct Cleanup<'a> {
    state: &'static str,
    remaining: &'a [String],
}

impl<'a> JobView<'a> {
    pub(super) fn of(job: &'a Job) -> Self {
        let run = &job.run;
        Self {
            job_id: run.id,
            server_serial: &job.server,
            status: job.status,
            outcome: run.outcome,
            failed_step: job.failed_step.as_deref(),
            failure: run.failure.as_ref(),
            step: run.step.as_deref(),
            wait: run.wait.as_ref(),
            hold: run.hold.as_ref(),
            created_at: run.created_at,
            last_update: run.updated_at,
            deadline_at: run.deadline_at,
            recipe_schema_id: &job.recipe_schema_id,
            task_iso_sha256: job.task_iso_sha256.as_deref(),
            task_iso_path: job.task_iso_path.as_deref(),
            maintenance_iso_url: shown_location(&job.maintenance_iso_url),
            labels: &job.labels,
            priority: run.priority,
            retry_of: job.retry_of,
            batch: job.batch,
            cleanup: Cleanup { state: cleanup(job), remaining: &job.cleanup_remaining },
        }
    }
}

/// A job with its steps and latest events.
#[derive(Serialize)]
pub(super) struct JobDetailView<'a> {
    #[serde(flatten)]
    job: JobView<'a>,
    slot_plan: Option<Value>,
    steps: Vec<StepView<'a>>,
    completion: Option<Value>,
    events: &'a [JsonText],
}

#[derive(Serialize)]
struct StepView<'a> {
    step: &'a str,
    phase: StepPhase,
    attempt: u32,
    started_at: Time,
    ended_at: Option<Time>,
}

impl<'a> JobDetailView<'a> {
    pub(super) fn of(job: &'a Job, steps: &'a [StepSummary], events: &'a [JsonText]) -> Self {
        let shown = |step: &'a StepSummary| StepView {
            step: &step.name,
            phase: step.phase,
            attempt: step.attempt,
            started_at: step.started_at,
            ended_at: step.ended_at,
        };
        Self {
            job: JobView::of(job),
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

fn cleanup(job: &Job) -> &'static str {
    match (job.run.phase, job.cleanup_remaining.is_empty()) {
        (Phase::Ended, true) => "done",
        (Phase::Ended, false) => "incomplete",
        (Phase::Unwinding | Phase::Finishing, _) => "running",
        _ => "pending",
    }
}

/// A location without its query, which may contain a signature.
fn shown_location(location: &str) -> &str {
    location.split('?').next().unwrap_or(location)
}
