//! The result of the delivery of a report, and whether the job has powered its machine on.

use super::names;
use engine::{Engine, SignalError};
use model::{Job, Snapshot, StepPhase, Time};

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
    /// The job has not powered the machine on yet.
    NotStarted,
}

/// Returns the job's snapshot and the time of the last power-on intent. After that intent a report is valid in every step.
pub(super) async fn started(engine: &Engine, job: &Job) -> Result<Option<(Snapshot, Time)>, SignalError> {
    let Some(snapshot) = engine.store().snapshot(job.run.id).await? else { return Ok(None) };
    let announced = snapshot
        .records_of(names::POWER_ON)
        .filter(|record| !matches!(record.phase, StepPhase::Skipped | StepPhase::Undone));
    let last = announced.map(|record| record.started_at).max();
    Ok(last.map(|last| (snapshot, last)))
}
