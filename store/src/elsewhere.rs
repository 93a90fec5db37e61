//! Claims and progress of a worker elsewhere: the fence is compared in the transaction that writes.
//!
//! ```text
//!   the worker orders ──── waits for a due run ────> claim        asked = when the order arrived
//!   the worker orders ── its lease ends ── due ────> no claim     the order says nothing about the worker of now
//!                                    └─ it orders again ────────> claim
//! ```
//! An order that waits is no sign of life. A worker that was stopped, or whose link is cut in one direction, keeps its order
//! open: a run that it lost would be given to it again, and would stay with it for one more lease. So an order grants nothing
//! after a lease of its worker has ended while it waited. A live worker orders again at once.
//!
//! A worker beside the database passes the record that it read. A worker elsewhere passes an output only, and its message may
//! arrive late, twice, or after its report. So the record is read here: an output is written into the record of the named
//! attempt while that step runs, and into no other. Each checkpoint of a worker has a higher number than the one before: one
//! that was overtaken, such as by its own repetition through a slow proxy, writes nothing and extends no lease.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use super::claim::{self, Claimed, Claimer};
use super::commit::{PROGRESS, stage_text, write_progress};
use super::queues::Lanes;
use super::rows::{all, execute, find_run, first, snapshot};
use super::{Store, StoreError};
use model::{Lease, Position, Run, RunId, StepPhase, StepRecord, Time};

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
    /// The number of the checkpoint. It rises with each checkpoint of a claim, and a repetition has the number of the first try.
    pub number: u64,
    /// The output.
    pub output: Value,
    /// When the lease ends from now on.
    pub expires_at: Time,
    /// When another worker may take the run over.
    pub next_run_at: Time,
}

/// An order of due runs by a worker elsewhere.
#[derive(Clone, Debug)]
pub struct ElsewhereOrder {
    /// Which runs are claimed.
    pub lanes: Lanes,
    /// The owner of the leases. It begins with [`super::WORKER_OWNER`].
    pub owner: String,
    /// The queues of the worker.
    pub queues: Vec<String>,
    /// The most runs.
    pub limit: usize,
    /// When the order arrived.
    pub asked: Time,
    /// The time of the claim.
    pub now: Time,
    /// The length of the leases.
    pub ttl: Duration,
    /// How long after its lease a run is due again.
    pub grace: Duration,
}

impl ElsewhereOrder {
    /// Whether a lease of the worker has ended while its order waited.
    fn outlived_a_lease(&self, connection: &Connection) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM runs WHERE lease_owner = ?1 AND lease_expires_at > ?2 AND lease_expires_at <= ?3 LIMIT 1";
        let (asked, now) = (self.asked.to_string(), self.now.to_string());
        let found = first(connection, claim::OPERATION, sql, &[&self.owner, &asked, &now], |_| Ok(()))?;
        Ok(found.is_some())
    }
}

/// How many queues are looked at for a worker that is not there.
const MAX_QUEUES: usize = 32;

/// The statement of [`Store::due_queues`]. It repeats the condition of its index, so that it reads no run that has ended: an ended run
/// is never due. A run of a restored server is in lane 3.
pub(super) fn due_queues_sql() -> String {
    format!(
        "SELECT queue, min(next_run_at) AS since FROM runs
         WHERE next_run_at IS NOT NULL AND lane < 3 AND next_run_at <= ?1
         GROUP BY queue ORDER BY queue LIMIT {MAX_QUEUES}"
    )
}

impl Store {
    /// Claims due runs for a worker elsewhere. `None`: a lease of the worker has ended while its order waited, so that the order
    /// is no sign of life; nothing was claimed, and the worker orders again.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is claimed then. A run that cannot be read is held, which is no error.
    pub async fn claim_elsewhere(&self, order: ElsewhereOrder) -> Result<Option<Vec<Claimed>>, StoreError> {
        let fairness = Arc::clone(&self.fairness);
        self.writer
            .write(claim::OPERATION, move |connection| {
                if order.outlived_a_lease(connection)? {
                    return Ok(None);
                }
                let ElsewhereOrder { lanes, owner, queues, limit, asked: _, now, ttl, grace } = order;
                let claimer = Claimer { owner, now, ttl, grace, decides_for_others: false };
                claimer.claim(connection, &queues, lanes, limit, &mut fairness.lock()).map(Some)
            })
            .await
    }

    /// The queues of due runs, each with the time since when its first run is due. At most 32.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn due_queues(&self, now: Time) -> Result<Vec<(String, Time)>, StoreError> {
        const OPERATION: &str = "find the queues of due runs";
        self.read(OPERATION, move |connection| {
            all(connection, OPERATION, &due_queues_sql(), &[&now.to_string()], |columns| {
                Ok((columns.get("queue")?, columns.time("since")?))
            })
        })
        .await
    }

    /// Extends the lease of a worker elsewhere and writes the output of its running step. `false`: the lease is lost, or the step
    /// does not run any more; nothing was written. A checkpoint with a number below the last one of its claim writes nothing and
    /// extends no lease, and the result is `true`: a newer one is stored.
    ///
    /// # Errors
    /// When the database cannot be written, or a row of the run cannot be read; nothing is stored then.
    pub async fn progress_elsewhere(&self, written: OutputWritten, now: Time) -> Result<bool, StoreError> {
        self.writer
            .write(PROGRESS, move |connection| {
                let OutputWritten { run, epoch, owner, at, attempt, number, output, expires_at, next_run_at } =
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
                let undoing = read.run.phase == model::Phase::Unwinding;
                let Some(record) = record.filter(|record| undoing || record.phase == StepPhase::Intent)
                else {
                    return Ok(false);
                };
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                if number < last_checkpoint(connection, run, at, epoch)? {
                    return Ok(true);
                }
                let record = StepRecord { output, epoch, ..record.clone() };
                let lease = Some(Lease { owner, expires_at });
                let run = Run { lease, next_run_at: Some(next_run_at), ..read.run };
                // A checkpoint of a worker elsewhere has no effects.
                Ok(write_progress(connection, &run, &record, &[], now)?
                    && number_checkpoint(connection, run.id, at, number)?)
            })
            .await
    }
}

/// The number of the last checkpoint that a worker elsewhere wrote under this epoch; 0 without one.
fn last_checkpoint(connection: &Connection, run: RunId, at: Position, epoch: i64) -> Result<i64, StoreError> {
    let sql = "SELECT checkpoint FROM run_steps WHERE run = ?1 AND stage = ?2 AND idx = ?3 AND epoch = ?4";
    let values: [&dyn rusqlite::ToSql; 4] = [&run.to_string(), &stage_text(at.stage), &at.index, &epoch];
    Ok(first(connection, PROGRESS, sql, &values, |columns| columns.get("checkpoint"))?.unwrap_or(0))
}

/// Stores the number of the checkpoint that was written last. Returns whether the record is there.
fn number_checkpoint(
    connection: &Connection,
    run: RunId,
    at: Position,
    number: i64,
) -> Result<bool, StoreError> {
    let sql = "UPDATE run_steps SET checkpoint = ?4 WHERE run = ?1 AND stage = ?2 AND idx = ?3";
    let values: [&dyn rusqlite::ToSql; 4] = [&run.to_string(), &stage_text(at.stage), &at.index, &number];
    Ok(execute(connection, PROGRESS, sql, &values[..])? == 1)
}
