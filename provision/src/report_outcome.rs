//! The result of the delivery of a report, and whether the job has powered its machine on.

use super::names;
use engine::{Engine, SignalError};
use model::{Job, Outcome, Run, Snapshot, StepPhase, Time};

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// The report was accepted.
    Accepted {
        /// The time when the machine was last powered on; for a final report.
        powered_on: Option<Time>,
    },
    /// The report repeats an earlier one.
    Duplicate,
    /// The report contradicts an earlier one.
    Contradiction {
        /// The status of the earlier report.
        first: String,
    },
    /// The machine is about to write a disk, and the job has written another one before.
    OtherDisk {
        /// The identity of the disk that was written.
        first: String,
    },
    /// The machine begins or continues to work on a job that has ended, or whose cancel was requested: it must not write.
    Over {
        /// How the job ended.
        how: &'static str,
    },
    /// The job has not powered the machine on yet.
    NotStarted,
}

/// Returns how a job ended, for a machine that still works on it; `None` while it may. A boot medium can be started again long after
/// its job, such as from a copy in the BMC, and a machine can start just when its job is cancelled.
pub(super) fn over(run: &Run) -> Option<ReportOutcome> {
    let how = match run.outcome {
        Some(outcome) => outcome.as_str(),
        None => run.cancel_requested_at.map(|_| Outcome::Cancelled.as_str())?,
    };
    Some(ReportOutcome::Over { how })
}

/// Returns the job's snapshot and the time of the last power-on intent. After that intent a report is valid in every step.
pub(super) async fn started(engine: &Engine, job: &Job) -> Result<Option<(Snapshot, Time)>, SignalError> {
    let Some(snapshot) = engine.store().snapshot(job.run.id).await? else { return Ok(None) };
    let announced = snapshot
        .records_of(names::POWER_ON)
        .filter(|record| !matches!(record.phase, StepPhase::Skipped | StepPhase::Undone));
    let last = announced.max_by_key(|record| record.at).map(|record| record.started_at);
    Ok(last.map(|last| (snapshot, last)))
}
