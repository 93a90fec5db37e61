//! Claiming due runs under a lease with an epoch, and taking over from a dead predecessor.
//!
//! ```text
//!  lane 0  asked to end        by priority, then due time          lane 2  not begun: overdue (only to fail), then
//!  lane 1  begun               by priority, then due time                  batches in turn, by priority and age
//!
//!  next_run_at <= now  --claim-->  owner, epoch + 1, expiry; next_run_at = expiry + grace
//! ```
//! A leased run is due again only when its lease has run out plus the grace in which the old owner's last request may still
//! arrive at a BMC, so stealing needs no second mechanism.
//!
//! Invariants: what has begun goes before what has not; a gate keeps back lane 2 only; who may not begin yet sleeps until
//! its deadline and costs a claim nothing; a row that cannot be read is held with an explanation and keeps nobody else.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::commit::{project, write_row};
use super::rows::{self, all, execute, find_row, first, snapshot};
use super::{Store, StoreError, gates, locks, unreadable};
use crate::model::{Fairness, Head, Lease, NewEvent, Run, Snapshot, Time, Trigger, transition};

pub(super) const OPERATION: &str = "claim runs";
/// Batches looked at in one claim. Whoever is beyond has its turn when others are through.
const BATCHES: usize = 256;
/// Rows looked at in one claim beyond those claimed: each of them is put to sleep, so the next claim does not meet it again.
const GATED: usize = 64;

/// A row that has not begun, is due, and does not sleep before a gate. These words are those of `idx_runs_fresh`.
const FRESH: &str = "phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at < deadline_at";
/// A row that has not begun. These words are those of `idx_runs_overdue`.
const NOT_BEGUN: &str = "phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at IS NOT NULL";

/// A run as its new owner got it.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The run, leased to the claimer.
    pub snapshot: Snapshot,
    /// Who held an unexpired or expired lease before, if anybody did.
    pub previous_owner: Option<String>,
}

/// Which runs may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Only those that were asked to end.
    Ending,
    /// Only those that have begun; of the others only what is overdue.
    Begun,
    /// All of them.
    All,
}

/// How much of a predecessor's work may be taken at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOver {
    /// The file lock was gained: the predecessor is dead, everything is due at once.
    Everything,
    /// Another controller may live: only what has expired.
    ExpiredOnly,
}

/// Who claims, and for how long.
pub(super) struct Claimer {
    pub(super) owner: String,
    pub(super) now: Time,
    pub(super) ttl: Duration,
    pub(super) grace: Duration,
}

impl Store {
    /// Claims up to `limit` due runs of the given queues for `owner`.
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

    /// The same for some lanes only.
    #[expect(clippy::too_many_arguments, reason = "the circumstances of one claim, named")]
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
        let claimer = Claimer { owner: owner.to_owned(), now, ttl, grace };
        let queues = queues.to_vec();
        let turns = std::sync::Arc::clone(&self.turns);
        self.writer
            .write(OPERATION, move |connection| {
                let mut turns = turns.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                claimer.claim(connection, &queues, lanes, limit, &mut turns)
            })
            .await
    }

    /// Makes the leases of a dead predecessor due at once, and after them every parked run, so that each looks around once
    /// after a start; answers how many there were.
    pub async fn take_over(&self, scope: TakeOver, now: Time) -> Result<usize, StoreError> {
        if scope == TakeOver::ExpiredOnly {
            return Ok(0);
        }
        self.writer
            .write("take over leases", move |connection| {
                execute(
                    connection,
                    "take over leases",
                    "UPDATE runs SET next_run_at = iif(lease_owner IS NULL, ?2, ?1) WHERE lease_owner IS NOT NULL
                         OR (phase = 'waiting' AND wait IS NOT NULL AND step IS NOT NULL)",
                    &[&now.to_string(), &now.plus(Duration::from_millis(1)).to_string()],
                )
            })
            .await
    }

    /// When the next run of these queues is due.
    pub async fn next_due(&self, queues: &[String]) -> Result<Option<Time>, StoreError> {
        self.next_due_of(Lanes::All, queues).await
    }

    /// The same for some lanes only.
    pub async fn next_due_of(&self, lanes: Lanes, queues: &[String]) -> Result<Option<Time>, StoreError> {
        const OPERATION: &str = "find the next due run";
        let queues = queues.to_vec();
        self.read(OPERATION, move |connection| {
            let fresh = lanes == Lanes::All && gates::drained(connection)?.is_none();
            let mut next: Vec<Time> = Vec::new();
            for queue in &queues {
                for (lane, priority) in places(connection, queue, lanes)? {
                    next.extend(one(
                        connection,
                        "SELECT min(next_run_at) AS due FROM runs
                         WHERE queue = ?1 AND lane = ?2 AND priority = ?3 AND next_run_at IS NOT NULL AND lane < 2",
                        params![queue, lane, priority],
                    )?);
                }
                if lanes == Lanes::Ending {
                    continue;
                }
                let overdue = format!("SELECT min(deadline_at) AS due FROM runs WHERE queue = ?1 AND {NOT_BEGUN}");
                next.extend(one(connection, &overdue, &[queue])?);
                if fresh {
                    let waits = format!(
                        "SELECT next_run_at AS due FROM runs WHERE queue = ?1 AND {FRESH} ORDER BY batch, rank LIMIT 1"
                    );
                    next.extend(one(connection, &waits, &[queue])?);
                }
            }
            Ok(next.into_iter().min())
        })
        .await
    }
}

fn one(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Option<Time>, StoreError> {
    const OPERATION: &str = "find the next due run";
    first(connection, OPERATION, sql, parameters, |columns| columns.time_opt("due")).map(Option::flatten)
}

/// The lanes of what has begun and the priorities in use there, in the order they are served. Few, and each found by one
/// step in the index.
fn places(connection: &Connection, queue: &str, lanes: Lanes) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut found = Vec::new();
    for lane in if lanes == Lanes::Ending { 0..1 } else { 0..2 } {
        let mut below = i64::MAX;
        while let Some(priority) = first(
            connection,
            OPERATION,
            "SELECT max(priority) AS priority FROM runs
             WHERE queue = ?1 AND lane = ?2 AND priority < ?3 AND next_run_at IS NOT NULL AND lane < 2",
            params![queue, lane, below],
            |columns| columns.get::<Option<i64>>("priority"),
        )?
        .flatten()
        {
            found.push((lane, priority));
            below = priority;
        }
    }
    Ok(found)
}

/// The ids of a query, as they stand in the database.
fn ids(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<String>, StoreError> {
    all(connection, OPERATION, sql, parameters, |columns| columns.get::<String>("id"))
}

fn left(limit: usize, claimed: &[Claimed]) -> i64 {
    i64::try_from(limit.saturating_sub(claimed.len())).unwrap_or(i64::MAX)
}

/// The first in line of a batch, and which run that is.
fn head(
    connection: &Connection,
    queue: &str,
    which: &str,
    batch: &str,
    now: Time,
) -> Result<Option<(Head, String)>, StoreError> {
    first(
        connection,
        OPERATION,
        &format!(
            "SELECT id, batch, rank, priority FROM runs WHERE queue = ?1 AND batch {which} ?2 AND {FRESH}
                 AND next_run_at <= ?3 ORDER BY batch, rank, id LIMIT 1"
        ),
        params![queue, batch, now.to_string()],
        |columns| {
            let (batch, rank, priority) =
                (columns.get("batch")?, columns.get("rank")?, columns.get("priority")?);
            Ok((Head { batch, rank, priority }, columns.get("id")?))
        },
    )
}

/// The first in line of each batch that has anybody in line.
fn heads(connection: &Connection, queue: &str, now: Time) -> Result<(Vec<Head>, Vec<String>), StoreError> {
    let (mut heads, mut firsts): (Vec<Head>, Vec<String>) = (Vec::new(), Vec::new());
    let mut next = head(connection, queue, ">=", "", now)?;
    while let Some((found, id)) = next {
        next = match heads.len() + 1 < BATCHES {
            true => head(connection, queue, ">", &found.batch, now)?,
            false => None,
        };
        heads.push(found);
        firsts.push(id);
    }
    Ok((heads, firsts))
}

impl Claimer {
    /// Claims inside the writer's transaction.
    pub(super) fn claim(
        &self,
        connection: &Connection,
        queues: &[String],
        lanes: Lanes,
        limit: usize,
        turns: &mut Fairness,
    ) -> Result<Vec<Claimed>, StoreError> {
        let drained = gates::drained(connection)?.is_some();
        let mut claimed = Vec::new();
        for queue in queues {
            self.begun(connection, queue, lanes, limit, &mut claimed)?;
            if lanes == Lanes::Ending {
                continue;
            }
            self.overdue(connection, queue, limit, &mut claimed)?;
            if lanes == Lanes::All && !drained {
                self.fresh(connection, queue, limit, turns, &mut claimed)?;
            }
        }
        Ok(claimed)
    }

    fn begun(
        &self,
        connection: &Connection,
        queue: &str,
        lanes: Lanes,
        limit: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        for (lane, priority) in places(connection, queue, lanes)? {
            if claimed.len() >= limit {
                break;
            }
            let due = ids(
                connection,
                "SELECT id FROM runs WHERE queue = ?1 AND lane = ?2 AND priority = ?3 AND next_run_at <= ?4 AND lane < 2
                 ORDER BY next_run_at LIMIT ?5",
                params![queue, lane, priority, self.now.to_string(), left(limit, claimed)],
            )?;
            self.each(connection, &due, claimed)?;
        }
        Ok(())
    }

    /// What has not begun and never will: claimed only to fail.
    fn overdue(
        &self,
        connection: &Connection,
        queue: &str,
        limit: usize,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        let due = ids(
            connection,
            &format!(
                "SELECT id FROM runs WHERE queue = ?1 AND deadline_at <= ?2 AND {NOT_BEGUN} ORDER BY deadline_at LIMIT ?3"
            ),
            params![queue, self.now.to_string(), left(limit, claimed)],
        )?;
        self.each(connection, &due, claimed)
    }

    fn fresh(
        &self,
        connection: &Connection,
        queue: &str,
        limit: usize,
        turns: &mut Fairness,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        if claimed.len() >= limit {
            return Ok(());
        }
        let (mut heads, mut firsts) = heads(connection, queue, self.now)?;
        let mut looks = GATED + limit - claimed.len();
        while claimed.len() < limit
            && looks > 0
            && let Some(next) = turns.next(&heads)
            && let (Some(place), Some(id)) = (heads.get_mut(next), firsts.get_mut(next))
        {
            looks -= 1;
            if let Some(one) = self.one(connection, id)? {
                turns.served(&place.batch, self.now);
                claimed.push(one);
            }
            match head(connection, queue, "=", &place.batch, self.now)? {
                // Still the same one: it could not be put to sleep, and is not tried again in this round.
                Some((_, same)) if same == *id => break,
                Some((head, first)) => (*place, *id) = (head, first),
                None => {
                    heads.swap_remove(next);
                    firsts.swap_remove(next);
                }
            }
        }
        Ok(())
    }

    fn each(
        &self,
        connection: &Connection,
        due: &[String],
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), StoreError> {
        for id in due {
            claimed.extend(self.one(connection, id)?);
        }
        Ok(())
    }

    /// Claims one run; `None` when it may not begin, has changed, or cannot be read (it is held then, with the reason).
    fn one(&self, connection: &Connection, id: &str) -> Result<Option<Claimed>, StoreError> {
        match self.try_one(connection, id) {
            Err(error) if error.is_corrupt() => {
                tracing::error!(run = id, error = %crate::model::error_chain(&error), "a run cannot be read and is held");
                unreadable::hold(connection, id, &error, self.now)?;
                Ok(None)
            }
            other => other,
        }
    }

    fn try_one(&self, connection: &Connection, id: &str) -> Result<Option<Claimed>, StoreError> {
        let Some(old) = find_row(connection, OPERATION, id)? else { return Ok(None) };
        let before = snapshot(connection, OPERATION, old)?;
        let old = &before.run;
        if gates::keeps(connection, old, self.now)? {
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
        let expected = (old.epoch, old.revision);
        let Some(run) = write_row(connection, &run, expected, self.now)? else { return Ok(None) };
        project(connection, &run, self.now)?;
        let previous_owner = before.run.lease.as_ref().map(|lease| lease.owner.clone());
        if let Some(previous) = &previous_owner {
            let owner = &self.owner;
            let event = NewEvent::warn("lease.taken-over", format!("{owner} took over from {previous}"));
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
