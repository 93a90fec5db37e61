//! Claiming due runs under a lease with an epoch, and taking over from a dead predecessor.
//!
//! ```text
//!  next_run_at <= now  --claim-->  owner, epoch + 1, expiry; next_run_at = expiry + grace
//! ```
//! A leased run is due again only when its lease has run out plus the grace in which the old owner's last request may still
//! arrive at a BMC, so stealing needs no second mechanism.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::commit::{project, write_row};
use super::locks;
use super::rows::{self, RUN, all, execute, first, snapshot};
use super::{Store, StoreError};
use crate::model::{Lease, NewEvent, Run, Snapshot, Time, Trigger, transition};

const OPERATION: &str = "claim runs";

/// A run as its new owner got it.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run, leased to the claimer.
    pub snapshot: Snapshot,
    /// Who held an unexpired or expired lease before, if anybody did.
    pub stolen_from: Option<String>,
}

/// How much of a predecessor's work may be taken at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// The file lock was gained: the predecessor is dead, everything is due at once.
    Everything,
    /// Another controller may live: only what has expired.
    ExpiredOnly,
}

impl Store {
    /// Claims up to `limit` due runs of the given queues for `owner`, by priority and then age.
    pub async fn claim(
        &self,
        owner: &str,
        queues: &[String],
        limit: usize,
        now: Time,
        ttl: Duration,
        grace: Duration,
    ) -> Result<Vec<Claimed>, StoreError> {
        let owner = owner.to_owned();
        let queues = queues.to_vec();
        self.writer
            .write(OPERATION, move |connection| {
                let mut claimed = Vec::new();
                for queue in &queues {
                    for run in due(connection, queue, limit.saturating_sub(claimed.len()), now)? {
                        claimed.extend(claim_one(connection, run, &owner, now, ttl, grace)?);
                    }
                }
                Ok(claimed)
            })
            .await
    }

    /// Makes the leases of a dead predecessor due at once, and every parked run, so that each looks around once after a
    /// start; answers how many there were.
    pub async fn take_over(&self, scope: TakeOver, now: Time) -> Result<usize, StoreError> {
        if scope == TakeOver::ExpiredOnly {
            return Ok(0);
        }
        self.writer
            .write("take over leases", move |connection| {
                execute(
                    connection,
                    "take over leases",
                    "UPDATE runs SET next_run_at = ?1 WHERE lease_owner IS NOT NULL
                         OR (phase = 'waiting' AND wait IS NOT NULL AND step IS NOT NULL)",
                    &[&now.to_string()],
                )
            })
            .await
    }

    /// When the next run of these queues is due.
    pub async fn next_due(&self, queues: &[String]) -> Result<Option<Time>, StoreError> {
        let queues = queues.to_vec();
        self.read("find the next due run", move |connection| {
            let mut next: Option<Time> = None;
            for queue in &queues {
                for priority in priorities(connection, queue)? {
                    let due = first(
                        connection,
                        "find the next due run",
                        "SELECT min(next_run_at) AS due FROM runs
                         WHERE queue = ?1 AND priority = ?2 AND next_run_at IS NOT NULL",
                        params![queue, priority],
                        |columns| columns.time_opt("due"),
                    )?;
                    next = [next, due.flatten()].into_iter().flatten().min();
                }
            }
            Ok(next)
        })
        .await
    }
}

/// The priorities in use in a queue, highest first. Few, and each found by one step in the index.
fn priorities(connection: &Connection, queue: &str) -> Result<Vec<i64>, StoreError> {
    let mut found = Vec::new();
    let mut below = i64::MAX;
    loop {
        let next = first(
            connection,
            OPERATION,
            "SELECT max(priority) AS priority FROM runs WHERE queue = ?1 AND priority < ?2 AND next_run_at IS NOT NULL",
            params![queue, below],
            |columns| columns.get::<Option<i64>>("priority"),
        )?;
        match next.flatten() {
            Some(priority) => {
                found.push(priority);
                below = priority;
            }
            None => return Ok(found),
        }
    }
}

fn due(connection: &Connection, queue: &str, limit: usize, now: Time) -> Result<Vec<Run>, StoreError> {
    let mut runs = Vec::new();
    if limit == 0 {
        return Ok(runs);
    }
    for priority in priorities(connection, queue)? {
        let left = limit - runs.len();
        runs.extend(all(
            connection,
            OPERATION,
            &format!(
                "SELECT {RUN} FROM runs WHERE queue = ?1 AND priority = ?2 AND next_run_at <= ?3
                 ORDER BY next_run_at LIMIT ?4"
            ),
            params![queue, priority, now.to_string(), i64::try_from(left).unwrap_or(i64::MAX)],
            rows::run,
        )?);
        if runs.len() >= limit {
            break;
        }
    }
    Ok(runs)
}

fn claim_one(
    connection: &Connection,
    old: Run,
    owner: &str,
    now: Time,
    ttl: Duration,
    grace: Duration,
) -> Result<Option<Claimed>, StoreError> {
    if locks::gated(connection, &old, now)? {
        locks::sleep_until_deadline(connection, old.id, old.deadline_at)?;
        return Ok(None);
    }
    let phase = transition(old.phase, Trigger::Claim).map_err(|why| StoreError::Corrupt {
        operation: OPERATION,
        column: "phase",
        detail: why.to_string(),
    })?;
    let expires_at = now.plus(ttl);
    let run = Run {
        phase,
        lease: Some(Lease { owner: owner.to_owned(), expires_at }),
        epoch: old.epoch + 1,
        next_run_at: Some(expires_at.plus(grace)),
        ..old.clone()
    };
    let Some(run) = write_row(connection, &run, (old.epoch, old.revision), now)? else { return Ok(None) };
    project(connection, &run, now)?;
    let stolen_from = old.lease.map(|lease| lease.owner);
    if let Some(previous) = &stolen_from {
        let event = NewEvent::warn("lease.taken-over", format!("{owner} took over from {previous}"));
        rows::append_events(connection, OPERATION, Some(run.id), run.server.as_ref(), now, &[event])?;
    }
    Ok(Some(Claimed { snapshot: snapshot(connection, OPERATION, run)?, stolen_from }))
}
