//! A job as clients see it.

use serde_json::{Value, json};

use crate::model::{Event, Job, Phase, StepRecord};

/// What every answer about a job holds.
pub(super) fn job(job: &Job) -> Value {
    let run = &job.run;
    json!({
        "job_id": run.id,
        "server_serial": job.server,
        "status": job.status,
        "outcome": run.outcome,
        "failed_step": job.failed_step,
        "failure": run.failure,
        "step": run.step,
        "wait": run.wait,
        "hold": run.hold,
        "created_at": run.created_at,
        "last_update": run.updated_at,
        "deadline_at": run.deadline_at,
        "recipe_schema_id": job.recipe_schema_id,
        "task_iso_sha256": job.task_iso_sha256,
        "task_iso_path": job.task_iso_path,
        "maintenance_iso_url": shown_location(&job.maintenance_iso_url),
        "labels": job.labels,
        "priority": run.priority,
        "retry_of": job.retry_of,
        "batch": job.batch,
        "cleanup": { "state": cleanup(job), "remaining": job.cleanup_remaining },
    })
}

/// The same with its steps and its latest events.
pub(super) fn whole(of: &Job, records: &[StepRecord], events: &[Event]) -> Value {
    let mut value = job(of);
    let steps: Vec<Value> = records
        .iter()
        .map(|record| {
            json!({
                "step": record.name, "phase": record.phase, "attempt": record.attempt,
                "started_at": record.started_at, "ended_at": record.ended_at,
            })
        })
        .collect();
    value["slot_plan"] = json!(crate::provision::slot_plan(records));
    value["steps"] = json!(steps);
    value["completion"] = completion(records);
    value["events"] = json!(events);
    value
}

/// How an installation that nobody reports was taken as finished: `observed` with the sign, or `assumed`.
fn completion(steps: &[StepRecord]) -> Value {
    let said = |step: &&StepRecord| step.evidence.get("completion").is_some_and(Value::is_string);
    steps.iter().rfind(said).map_or(Value::Null, |step| {
        json!({ "by": step.evidence["completion"], "sign": step.evidence.get("sign"), "at": step.evidence["at"] })
    })
}

/// The version of a job a client has seen.
pub(super) fn etag(job: &Job) -> String {
    format!("\"{}\"", job.run.revision)
}

fn cleanup(job: &Job) -> &'static str {
    match (job.run.phase, job.cleanup_remaining.is_empty()) {
        (Phase::Ended, true) => "done",
        (Phase::Ended, false) => "incomplete",
        (Phase::Unwinding | Phase::Finishing, _) => "running",
        _ => "pending",
    }
}

/// A location without its query, which may carry a signature.
fn shown_location(location: &str) -> &str {
    location.split('?').next().unwrap_or(location)
}
