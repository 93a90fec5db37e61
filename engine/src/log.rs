//! What the engine writes to the log about a run.
//!
//! Every log line that belongs to a run carries `job_id`, `server_serial`, `workflow`, `worker_id` and `epoch`, and below a step also
//! `step`: they are fields of two spans, and every event inside a span carries the span's fields. The spans have the level
//! `error`, so that no log filter removes the fields while it keeps the line.
//!
//! ```text
//!   job { job_id, server_serial, workflow, worker_id, epoch } -> step { step } -> lines of the step, the BMC client, media ...
//! ```
//!
//! A failure is logged once, at `error`, when the run's outcome becomes `failed`: with class, step, summary and next action.

use tracing::Span;

use crate::model::{Outcome, Phase, Run, StepName};

/// The span of everything that a worker, or a delivery of the controller, does for a run.
pub(crate) fn job_span(run: &Run, worker_id: &str) -> Span {
    tracing::error_span!(
        "job",
        job_id = %run.id,
        server_serial = run.server.as_ref().map_or("", |serial| serial.as_str()),
        workflow = %run.workflow,
        worker_id,
        epoch = run.epoch,
    )
}

/// The span of one call of a step, inside the job's span.
pub(crate) fn step_span(step: &StepName) -> Span {
    tracing::error_span!("step", step = step.as_str())
}

/// Logs what a committed change means for the outcome of the run: a failure once, and the end.
pub(crate) fn outcome(before: &Run, after: &Run) {
    if let (None, Some(Outcome::Failed), Some(failure)) = (before.outcome, after.outcome, &after.failure) {
        tracing::error!(
            class = %failure.class,
            failed_step = %failure.step,
            next_action = %failure.next_action,
            "the job failed: {}",
            failure.summary
        );
    }
    if before.phase != Phase::Ended && after.phase == Phase::Ended {
        let outcome = after.outcome.map_or("unknown", Outcome::as_str);
        tracing::info!(outcome, "the job has ended");
    }
}
