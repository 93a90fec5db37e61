//! The fields of every log line about a run, and the one line of its failure.
//!
//! Every log line that belongs to a run carries `job_id`, `server_serial`, `workflow`, `worker_id` and `epoch`, and below a step also
//! `step`: they are fields of two spans, and every event inside a span carries the span's fields. The spans have the level
//! `error`, so that no log filter removes the fields while it keeps the line.
//!
//! ```text
//!   job { job_id, server_serial, workflow, worker_id, epoch } -> step { step } -> lines of the step, the BMC client, media ...
//! ```
//!
//! Lines that no step writes have no `step`: reads of media and reports come as requests from machines, and the claim and the end of a run
//! stand between two steps.
//!
//! A failure is logged once, at `error`, when the run's outcome becomes `failed`: with class, step, summary and next action.

use std::fmt::Display;

use tracing::Span;

use model::{Failure, Outcome, Phase, Run, RunId, StepName};

/// The fields of the span of a job. `worker_id` is the owner of the lease, or the controller instance that acts on a parked run.
#[derive(Clone, Copy, Debug)]
pub struct JobFields<'a, Id> {
    /// The id of the run.
    pub job_id: Id,
    /// The serial number of the server; empty for a run without a server.
    pub server_serial: &'a str,
    /// The name of the workflow.
    pub workflow: &'a str,
    /// The owner of the lease, or the controller instance that acts on a parked run.
    pub worker_id: &'a str,
    /// The epoch of the last claim.
    pub epoch: i64,
}

impl<Id: Display> JobFields<'_, Id> {
    /// The span of everything that is done for the job.
    pub fn span(&self) -> Span {
        tracing::error_span!(
            "job",
            job_id = %self.job_id,
            server_serial = self.server_serial,
            workflow = self.workflow,
            worker_id = self.worker_id,
            epoch = self.epoch,
        )
    }
}

/// The span of everything that a worker, or a delivery of the controller, does for a run.
pub fn job_span(run: &Run, worker_id: &str) -> Span {
    let server_serial = run.server.as_ref().map_or("", |serial| serial.as_str());
    JobFields { job_id: run.id, server_serial, workflow: &run.workflow, worker_id, epoch: run.epoch }.span()
}

/// The span of one call of a step, inside the job's span.
pub fn step_span(step: &StepName) -> Span {
    tracing::error_span!("step", step = step.as_str())
}

/// The span of what is decided about a run between two calls: its step is the one at which the run is.
pub fn decision_span(run: &Run, worker_id: &str) -> Span {
    let job = job_span(run, worker_id);
    match &run.step {
        Some(step) => job.in_scope(|| step_span(step)),
        None => job,
    }
}

/// Logs that a run was held because its record cannot be read.
pub(crate) fn unreadable(of: &JobFields<'_, &str>, step: &StepName, class: &str, error: &str) {
    of.span().in_scope(|| {
        step_span(step).in_scope(|| {
            tracing::error!(
                class,
                error,
                next_action = "resume the job with a program that can read its record, or cancel it, which ends it without cleanup",
                "the job is held until an operator decides: its record cannot be read"
            );
        });
    });
}

/// Logs that a run ended without cleanup.
pub(crate) fn ended_without_cleanup(of: &JobFields<'_, RunId>, failure: &Failure) {
    of.span().in_scope(|| {
        step_span(&failure.step).in_scope(|| {
            tracing::error!(
                class = %failure.class,
                failed_step = %failure.step,
                next_action = %failure.next_action,
                "the job was ended without cleanup: {}",
                failure.summary
            );
        });
    });
}

/// Logs what a committed change means for the outcome of the run: a failure once, and the end. Returns whether the change ended it.
pub fn outcome(before: &Run, after: &Run) -> bool {
    if let (None, Some(Outcome::Failed), Some(failure)) = (before.outcome, after.outcome, &after.failure) {
        tracing::error!(
            class = %failure.class,
            failed_step = %failure.step,
            next_action = %failure.next_action,
            "the job failed: {}",
            failure.summary
        );
    }
    let ended = before.phase != Phase::Ended && after.phase == Phase::Ended;
    if ended {
        let outcome = after.outcome.map_or("unknown", Outcome::as_str);
        tracing::info!(outcome, "the job has ended");
    }
    ended
}
