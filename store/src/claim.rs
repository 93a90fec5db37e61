//! Claims of due runs under a lease with an epoch, and takeover from a dead controller instance. The order of the runs is in
//! `queues`.
//!
//! ```text
//!  lane 0  cancel requested    by priority, then due time          lane 2  not started: overdue (only to fail), then
//!  lane 1  started             by priority, then due time                  batches alternate, by priority and age
//!  lane 3  of a restored server that is not released: never claimed, in any phase (decision D26)
//!
//!  next_run_at <= now  --claim-->  owner, epoch + 1, expiry; next_run_at = expiry + grace
//! ```
//! A leased run is due again when its lease has expired and the grace has passed in which the last request of the old owner
//! may still arrive at a BMC. So a takeover needs no second mechanism.
//!
//! A run of a queue that only workers elsewhere serve is claimed by the controller when its deadline has passed or its cancel
//! waits: the decision needs no call of a step.
//!
//! Invariants: started runs are claimed before unstarted ones; a gate holds back lane 2 only; a run that may not start yet is
//! due at its deadline and costs a claim nothing; a row that cannot be read is held with an explanation and blocks no other.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use super::commit::{project, write_row};
use super::queues::{self, Lanes, Queue};
use super::rows::{self, execute, find_row, snapshot};
use super::{Store, StoreError, gates, grants, locks, starts, unreadable};
use model::{Fairness, Lease, NewEvent, Run, Snapshot, Time, Trigger, transition};

pub(super) const OPERATION: &str = "claim runs";
/// Gated rows that one claim reads beyond the claimed ones. Each becomes due at its deadline, so the next claim skips it.
const GATED: usize = 64;
/// The shortest time between two searches for runs of other queues that need a decision.
const SEARCH_OTHERS: Duration = Duration::from_secs(10);

/// How the owner of a lease begins whose worker is not in the process of the controller.
pub const WORKER_OWNER: &str = "worker/";

/// A run as its new owner receives it.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run, leased to the new owner.
    pub snapshot: Snapshot,
    /// The owner of the previous lease, expired or not; `None` when the run had no lease.
    pub previous_owner: Option<String>,
}

/// Which leases a controller may take over when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// All leases: this process holds the file lock, so the previous controller is dead.
    Everything,
    /// Expired leases only: another controller may be alive.
    ExpiredOnly,
}

/// The owner, time and duration of one claim.
pub(super) struct Claimer {
    pub(super) owner: String,
    pub(super) now: Time,
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
    /// Whether runs of other queues are claimed too that need a decision and no call of a step.
    pub(super) decides_for_others: bool,
}

impl Store {
    /// Claims up to `limit` due runs of these queues for `owner`, in all lanes.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is claimed then. A run that cannot be read is held, which is no error.
    pub async fn claim(
        &self,
        owner: &str,
        queues: &[String],
        limit: usize,
        now: Time,
        ttl: Duration,
        grace: Duration,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.claim_lanes(Lanes::All, owner, queues, limit, now, ttl, grace).await
    }

    /// Claims up to `limit` due runs of these queues and lanes for `owner`, and writes a heartbeat when one is due.
    ///
    /// # Errors
    /// When the database cannot be written; nothing is claimed then. A run that cannot be read is held, which is no error.
    #[expect(clippy::too_many_arguments, reason = "the parameters of one claim, each with a name")]
    pub async fn claim_lanes(
        &self,
        lanes: Lanes,
        owner: &str,
        queues: &[String],
        limit: usize,
        now: Time,
        ttl: Duration,
        grace: Duration,
    ) -> Result<Vec<Claimed>, StoreError> {
        let decides_for_others = self.search_is_due(now);
        let claimer = Claimer { owner: owner.to_owned(), now, ttl, grace, decides_for_others };
        let own = queues.to_vec();
        let fairness = std::sync::Arc::clone(&self.fairness);
        let instance = std::sync::Arc::clone(&self.instance);
        let claimed = self
            .writer
            .write(OPERATION, move |connection| {
                if let Some(instance) = instance.lock().as_mut() {
                    instance.beat(connection, now)?;
                }
                let mut fairness = fairness.lock();
                claimer.claim(connection, &own, lanes, limit, &mut fairness)
            })
            .await?;
        if claimed.iter().any(|claimed| !queues.contains(&claimed.snapshot.run.queue)) {
            // There may be more than this claim had places for.
            *self.searched_others.lock() = None;
        }
        Ok(claimed)
    }

    /// Whether the queues of workers elsewhere are searched now. A search reads every due run of a queue without a worker, so it
    /// is not part of each claim.
    fn search_is_due(&self, now: Time) -> bool {
        let mut searched = self.searched_others.lock();
        let due = searched.is_none_or(|last| now < last || now.since(last) >= SEARCH_OTHERS);
        if due {
            *searched = Some(now);
        }
        due
    }

    /// Makes leased runs of a dead controller due now, and after them every waiting run, so that each checks its wait once
    /// after a start. Leases of workers elsewhere stay: their workers do not end with a controller. Returns the number of runs.
    ///
    /// # Errors
    /// When the database cannot be written; no lease is taken over then.
    pub async fn take_over(&self, scope: TakeOver, now: Time) -> Result<usize, StoreError> {
        if scope == TakeOver::ExpiredOnly {
            return Ok(0);
        }
        self.writer
            .write("take over leases", move |connection| {
                execute(
                    connection,
                    "take over leases",
                    "UPDATE runs SET next_run_at = iif(lease_owner IS NULL, ?2, ?1)
                     WHERE (lease_owner IS NOT NULL AND substr(lease_owner, 1, length(?3)) <> ?3)
                         OR (lease_owner IS NULL AND phase = 'waiting' AND wait IS NOT NULL AND step IS NOT NULL)",
                    &[&now.to_string(), &now.plus(Duration::from_millis(1)).to_string(), &WORKER_OWNER],
                )
            })
            .await
    }

    /// The time at which the next run of these queues is due, in all lanes.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn next_due(&self, queues: &[String]) -> Result<Option<Time>, StoreError> {
        self.next_due_of(Lanes::All, queues).await
    }

    /// The time at which the next run of these queues and lanes is due.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn next_due_of(&self, lanes: Lanes, queues: &[String]) -> Result<Option<Time>, StoreError> {
        const OPERATION: &str = "find the next due run";
        let queues = queues.to_vec();
        self.read(OPERATION, move |connection| {
            let unstarted = lanes == Lanes::All && gates::drained(connection)?.is_none();
            let due = queues.iter().map(|queue| queues::next_due(connection, queue, lanes, unstarted));
            Ok(due.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().min())
        })
        .await
    }
}

fn remaining(limit: usize, claimed: &[Claimed]) -> usize {
    limit.saturating_sub(claimed.len())
}

/// Whether a deadline of a started run has passed, so that its failure may need the reads of its media.
fn is_overdue(run: &Run, now: Time) -> bool {
    run.phase.is_forward() && run.wait.as_ref().is_some_and(|wait| wait.deadline.min(run.deadline_at) <= now)
}

impl Claimer {
    /// Claims in the writer's transaction.
    pub(super) fn claim(
        &self,
        connection: &Connection,
        queues: &[String],
        lanes: Lanes,
        limit: usize,
        fairness: &mut Fairness,
    ) -> Result<Vec<Claimed>, StoreError> {
        let drained = gates::drained(connection)?.is_some();
        let mut claimed = Vec::new();
        for queue in queues {
            self.started(connection, queue, lanes, limit, &mut claimed)?;
            if lanes == Lanes::Cancelled {
                continue;
            }
            self.overdue(connection, queue, limit, &mut claimed)?;
            if lanes == Lanes::All && !drained {
                self.unstarted(connection, queue, limit, fairness, &mut claimed)?;
            }
        }
        if self.decides_for_others {
            self.undecided(connection, queues, limit, &mut claimed)?;
        }
        Ok(claimed)
    }

    /// Claims runs of other queues whose deadline has passed, or whose cancel waits for a decision: a queue without a worker
    /// must not keep them (decision D6).
    fn undecided(
        &self,
        connection: &Connection,
        queues: &[String],
        limit: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        for queue in queues::others(connection, queues)? {
            let due = queues::undecided(connection, &queue, self.now, remaining(limit, claimed))?;
            self.claim_each(connection, &due, claimed)?;
        }
        Ok(())
    }

    fn started(
        &self,
        connection: &Connection,
        queue: &str,
        lanes: Lanes,
        limit: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        for level in queues::levels(connection, queue, lanes)? {
            if claimed.len() >= limit {
                break;
            }
            let due = queues::started(connection, queue, level, self.now, remaining(limit, claimed))?;
            self.claim_each(connection, &due, claimed)?;
        }
        Ok(())
    }

    /// Claims unstarted runs past their deadline. They are claimed only to fail.
    fn overdue(
        &self,
        connection: &Connection,
        queue: &str,
        limit: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        let due = queues::overdue(connection, queue, self.now, remaining(limit, claimed))?;
        self.claim_each(connection, &due, claimed)
    }

    fn unstarted(
        &self,
        connection: &Connection,
        queue: &str,
        limit: usize,
        fairness: &mut Fairness,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        if claimed.len() >= limit {
            return Ok(());
        }
        let starts = Queue::Starts { queue, now: self.now };
        let mut heads = starts.heads(connection)?;
        let mut reads = GATED + limit - claimed.len();
        while claimed.len() < limit
            && reads > 0
            && let Some(next) = fairness.next(&heads)
            && let Some(head) = heads.get_mut(next)
        {
            reads -= 1;
            if let Some(run) = self.claim_run(connection, &head.entry)? {
                fairness.served(&head.batch, self.now);
                claimed.push(run);
            }
            match starts.head(connection, &head.batch)? {
                // The run is still the head: its due time could not be changed. This claim does not read it again.
                Some(same) if same.entry == head.entry => break,
                Some(next_head) => *head = next_head,
                None => drop(heads.swap_remove(next)),
            }
        }
        Ok(())
    }

    fn claim_each(
        &self,
        connection: &Connection,
        due: &[String],
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        for id in due {
            claimed.extend(self.claim_run(connection, id)?);
        }
        Ok(())
    }

    /// Claims one run. `None` when it may not start yet, has changed, or cannot be read; an unreadable run is held.
    fn claim_run(&self, connection: &Connection, id: &str) -> Result<Option<Claimed>, StoreError> {
        match self.try_claim(connection, id) {
            Err(error) if error.is_corrupt() => {
                unreadable::hold(connection, id, &error, &self.owner, self.now)?;
                Ok(None)
            }
            other => other,
        }
    }

    fn try_claim(&self, connection: &Connection, id: &str) -> Result<Option<Claimed>, StoreError> {
        let Some(old) = find_row(connection, OPERATION, id)? else { return Ok(None) };
        let mut before = snapshot(connection, OPERATION, old)?;
        let old = &before.run;
        if starts::is_blocked(connection, old, self.now)? {
            locks::sleep_until_deadline(connection, old.id, old.deadline_at)?;
            return Ok(None);
        }
        let phase = transition(old.phase, Trigger::Claim).map_err(|why| StoreError::Corrupt {
            operation: OPERATION,
            column: "phase",
            detail: why.to_string(),
        })?;
        let expires_at = self.now.plus(self.ttl);
        let run = Run {
            phase,
            lease: Some(Lease { owner: self.owner.clone(), expires_at }),
            epoch: old.epoch + 1,
            next_run_at: Some(expires_at.plus(self.grace)),
            ..old.clone()
        };
        let Some(run) = write_row(connection, old, &run, self.now)? else { return Ok(None) };
        project(connection, old, &run, self.now)?;
        if is_overdue(&before.run, self.now) {
            before.media = grants::media_evidence(connection, OPERATION, run.id)?;
        }
        let previous_owner = before.run.lease.as_ref().map(|lease| lease.owner.clone());
        if let Some(previous) = &previous_owner {
            let event = taken_over(&self.owner, previous, old);
            rows::append_events(
                connection,
                OPERATION,
                Some(run.id),
                run.server.as_ref(),
                self.now,
                &[event],
            )?;
        }
        Ok(Some(Claimed { snapshot: Snapshot { run, ..before }, previous_owner }))
    }
}

/// The event of a takeover: which work is continued, and in which step its former worker was.
fn taken_over(owner: &str, previous: &str, run: &Run) -> NewEvent {
    let at = run.step.as_ref().map_or_else(String::new, |step| format!(" in {step}"));
    let message = format!("{owner} took over from {previous}, and continues {}{at}", run.workflow);
    let data = json!({ "from": previous, "to": owner, "workflow": run.workflow });
    NewEvent { step: run.step.clone(), ..NewEvent::warn("lease.taken-over", message).with(data) }
}
