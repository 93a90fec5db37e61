//! Progress of a worker elsewhere: the fence is compared in the transaction that writes.
//!
//! A worker beside the database passes the record that it read. A worker elsewhere passes an output only, and its message may
//! arrive late, twice, or after its report. So the record is read here: an output is written into the record of the named
//! attempt while that step runs, and into no other.

use serde_json::Value;

use super::commit::{PROGRESS, write_progress};
use super::rows::{all, find_run, snapshot};
use super::{Store, StoreError};
use crate::model::{Lease, Position, Run, RunId, StepPhase, StepRecord, Time};

/// The output of a running step, with the claim and the attempt that it belongs to.
#[derive(Clone, Debug)]
pub struct OutputWritten {
    /// The run.
    pub run: RunId,
    /// The epoch of the claim.
    pub epoch: i64,
    /// The owner of the lease.
    pub owner: String,
    /// The position of the step.
    pub at: Position,
    /// The attempt.
    pub attempt: u32,
    /// The output.
    pub output: Value,
    /// When the lease ends from now on.
    pub expires_at: Time,
    /// When another worker may take the run over.
    pub next_run_at: Time,
}

/// How many queues are looked at for a worker that is not there.
const MAX_QUEUES: usize = 32;

impl Store {
    /// The queues of due runs, each with the time since when its first run is due. At most 32.
    pub async fn due_queues(&self, now: Time) -> Result<Vec<(String, Time)>, StoreError> {
        const OPERATION: &str = "find the queues of due runs";
        let sql = format!(
            "SELECT queue, min(next_run_at) AS since FROM runs
             WHERE phase <> 'ended' AND restored = 0 AND next_run_at <= ?1
             GROUP BY queue ORDER BY queue LIMIT {MAX_QUEUES}"
        );
        self.read(OPERATION, move |connection| {
            all(connection, OPERATION, &sql, &[&now.to_string()], |columns| {
                Ok((columns.get("queue")?, columns.time("since")?))
            })
        })
        .await
    }

    /// Extends the lease of a worker elsewhere and writes the output of its running step. `false`: the lease is lost, or the step
    /// does not run any more; nothing was written.
    ///
    /// # Errors
    /// When the database cannot be written, or a row of the run cannot be read; nothing is stored then.
    pub async fn progress_elsewhere(&self, written: OutputWritten, now: Time) -> Result<bool, StoreError> {
        self.writer
            .write(PROGRESS, move |connection| {
                let OutputWritten { run, epoch, owner, at, attempt, output, expires_at, next_run_at } =
                    written;
                let Some(row) = find_run(connection, PROGRESS, run)? else { return Ok(false) };
                let held = row.epoch == epoch && row.lease.as_ref().is_some_and(|lease| lease.owner == owner);
                if !held {
                    return Ok(false);
                }
                let read = snapshot(connection, PROGRESS, row)?;
                let record = read.record(at).filter(|record| {
                    record.attempt == attempt && matches!(record.phase, StepPhase::Intent | StepPhase::Done)
                });
                // A finished step has an end; a step that is undone is called with the record of its end.
                let undoing = read.run.phase == crate::model::Phase::Unwinding;
                let Some(record) = record.filter(|record| undoing || record.phase == StepPhase::Intent)
                else {
                    return Ok(false);
                };
                let record = StepRecord { output, epoch, ..record.clone() };
                let lease = Some(Lease { owner, expires_at });
                let run = Run { lease, next_run_at: Some(next_run_at), ..read.run };
                // A checkpoint of a worker elsewhere has no effects.
                write_progress(connection, &run, &record, &[], now)
            })
            .await
    }
}
