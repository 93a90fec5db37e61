//! Queues: every query that says which entry of a queue goes first. The rule between batches is pure: [`Fairness`].
//!
//! ```text
//!  queue of                          order
//!  runs with a cancel request        priority, then due time               lane 0
//!  started runs                      priority, then due time               lane 1
//!  runs past their deadline          deadline                              lane 2, claimed only to fail
//!  runs that have not started        the head of each batch --> Fairness   lane 2, Queue::Starts
//!  run trees that want a resource    the head of each batch --> Fairness   Queue::Locks
//!
//!  head of a batch = its entry with the smallest rank, then the smallest id
//! ```
//!
//! Starts and permits are ordered by one rule; a lock is a permit with capacity 1. The rule needs the time at which each batch was
//! last served: the store remembers it for starts, and `lock_served` together with the held permits has it for a resource. The
//! time of service is kept after the permit is released: otherwise, with more batches than capacity, a batch would be served
//! again before the others were served once.
//!
//! A run tree behind the closed gate of its batch is in no queue of a resource until the gate opens. Behind it, a search reads the
//! queued entries of the batch, which has a maximum of rows.
//!
//! Invariants: the cost of a query does not grow with the length of a queue, except behind a closed gate of a batch; the number of batches that one decision
//! considers is bounded; `lock_served` has rows only for resources with a queue.

use rusqlite::{Connection, ToSql, params};

use super::rows::{Columns, all, execute, first};
use super::{StoreError, batch_gates};
use model::{Fairness, QueueHead, RunId, Time};

const OPERATION: &str = "read a queue";
/// Batches that one decision considers. Further batches are considered when these have no queued entry left.
const BATCHES: usize = 256;
/// Worker queues of others that one claim considers.
const OTHER_QUEUES: usize = 64;
/// The number of entries of one batch that are searched for a run tree that can take all its locks.
const SEARCHED: u32 = 2048;

/// A run that has not started and is not behind a gate. This text is the condition of `idx_runs_unstarted`.
const UNSTARTED: &str =
    "phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at < deadline_at AND restored = 0";
/// A run that has not started. This text is the condition of `idx_runs_overdue`.
const NOT_STARTED: &str =
    "phase IN ('queued', 'waiting') AND lease_epoch = 0 AND next_run_at IS NOT NULL AND restored = 0";

/// Which runs may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Runs with a cancel request.
    Cancelled,
    /// Started runs, and unstarted ones only past their deadline.
    Started,
    /// All runs.
    All,
}

/// A queue in which batches alternate.
#[derive(Clone, Copy)]
pub(super) enum Queue<'a> {
    /// The runs of a worker queue that have not started and are due.
    Starts {
        /// The worker queue.
        queue: &'a str,
        /// The present time.
        now: Time,
    },
    /// The run trees that want a resource and could take all their locks and permits now.
    Locks {
        /// The resource.
        resource: &'a str,
    },
}

impl Queue<'_> {
    /// The head of each batch with an entry that can be served now.
    pub(super) fn heads(self, connection: &Connection) -> Result<Vec<QueueHead>, StoreError> {
        let mut heads = Vec::new();
        let mut last: Option<String> = None;
        while heads.len() < BATCHES
            && let Some((batch, head)) = self.after(connection, last.as_deref())?
        {
            heads.extend(head);
            last = Some(batch);
        }
        Ok(heads)
    }

    /// The next batch with an entry, and its head; no head when no entry can be served now.
    fn after(
        self,
        connection: &Connection,
        last: Option<&str>,
    ) -> Result<Option<(String, Option<QueueHead>)>, StoreError> {
        let (which, last) = last.map_or((">=", ""), |last| (">", last));
        match self {
            Self::Starts { queue, now } => {
                let head = start(connection, queue, which, last, now)?;
                Ok(head.map(|head| (head.batch.clone(), Some(head))))
            }
            Self::Locks { resource } => {
                let batch = first(
                    connection,
                    OPERATION,
                    &format!(
                        "SELECT min(batch) AS batch FROM locks WHERE resource = ?1 AND held = 0 AND batch {which} ?2"
                    ),
                    params![resource, last],
                    |columns| columns.get::<Option<String>>("batch"),
                )?;
                let Some(batch) = batch.flatten() else { return Ok(None) };
                let head = self.head(connection, &batch)?;
                Ok(Some((batch, head)))
            }
        }
    }

    /// The head of one batch.
    pub(super) fn head(self, connection: &Connection, batch: &str) -> Result<Option<QueueHead>, StoreError> {
        match self {
            Self::Starts { queue, now } => start(connection, queue, "=", batch, now),
            Self::Locks { resource } => first(
                connection,
                OPERATION,
                "SELECT mine.root AS entry, mine.batch, mine.rank, mine.priority FROM
                     (SELECT root, batch, rank, priority FROM locks WHERE resource = ?1 AND held = 0 AND batch = ?2
                          AND (?4 IS NULL OR EXISTS
                              (SELECT 1 FROM runs WHERE runs.id = locks.root
                               AND (lease_epoch > 0 OR (?4 = 'canary' AND canary = 1))))
                          AND NOT EXISTS
                              (SELECT 1 FROM runs LEFT JOIN servers ON servers.serial = runs.server WHERE runs.id = locks.root
                               AND (runs.restored = 1
                                    OR (lease_epoch = 0 AND purpose = 'change' AND servers.maintenance IS NOT NULL)))
                      ORDER BY rank, root LIMIT ?3) AS mine
                 WHERE NOT EXISTS
                     (SELECT 1 FROM locks AS wanted WHERE wanted.root = mine.root AND wanted.held = 0 AND wanted.capacity <=
                          (SELECT count(*) FROM locks AS other
                           WHERE other.resource = wanted.resource AND other.held = 1 AND other.root <> wanted.root))
                 ORDER BY mine.rank, mine.root LIMIT 1",
                params![resource, batch, SEARCHED, batch_gates::name_of(connection, batch)?],
                queue_head,
            ),
        }
    }
}

/// Whether a run tree can take all locks that it is queued for now.
pub(super) fn can_take(connection: &Connection, root: &str) -> Result<bool, StoreError> {
    let taken = first(
        connection,
        OPERATION,
        "SELECT 1 AS taken FROM locks AS wanted WHERE wanted.root = ?1 AND wanted.held = 0 AND wanted.capacity <=
             (SELECT count(*) FROM locks AS other
              WHERE other.resource = wanted.resource AND other.held = 1 AND other.root <> wanted.root) LIMIT 1",
        &[&root],
        |_| Ok(()),
    )?;
    Ok(taken.is_none())
}

/// The first unstarted run of the first batch that compares like this.
fn start(
    connection: &Connection,
    queue: &str,
    which: &str,
    batch: &str,
    now: Time,
) -> Result<Option<QueueHead>, StoreError> {
    first(
        connection,
        OPERATION,
        &format!(
            "SELECT id AS entry, batch, rank, priority FROM runs WHERE queue = ?1 AND batch {which} ?2 AND {UNSTARTED}
                 AND next_run_at <= ?3 ORDER BY batch, rank, id LIMIT 1"
        ),
        params![queue, batch, now.to_string()],
        queue_head,
    )
}

fn queue_head(columns: &Columns<'_>) -> Result<QueueHead, StoreError> {
    Ok(QueueHead {
        entry: columns.get("entry")?,
        batch: columns.get("batch")?,
        rank: columns.get("rank")?,
        priority: columns.get("priority")?,
    })
}

/// The root of the run tree that gets the next permit of a resource; `None` when no queued tree can take one now.
pub(super) fn next_holder(connection: &Connection, resource: &str) -> Result<Option<String>, StoreError> {
    let mut heads = Queue::Locks { resource }.heads(connection)?;
    let mut fairness = Fairness::default();
    if heads.len() > 1 {
        let served = all(
            connection,
            OPERATION,
            "SELECT batch, max(since) AS since FROM
                 (SELECT batch, since FROM locks WHERE resource = ?1 AND held = 1
                  UNION ALL SELECT batch, served_at FROM lock_served WHERE resource = ?1)
             GROUP BY batch ORDER BY 2, 1",
            &[&resource],
            |columns| Ok((columns.get::<String>("batch")?, columns.time("since")?)),
        )?;
        served.iter().for_each(|(batch, since)| fairness.served(batch, *since));
    }
    Ok(fairness.next(&heads).map(|next| heads.swap_remove(next).entry))
}

/// Whether a run tree waits for a resource.
pub(super) fn is_wanted(connection: &Connection, resource: &str) -> Result<bool, StoreError> {
    const SQL: &str = "SELECT 1 AS waits FROM locks WHERE resource = ?1 AND held = 0 LIMIT 1";
    Ok(first(connection, OPERATION, SQL, &[&resource], |_| Ok(()))?.is_some())
}

/// Remembers that a batch had a permit of a resource since this time. Called when the permit is released.
pub(super) fn remember_served(
    connection: &Connection,
    resource: &str,
    batch: &str,
    since: Time,
) -> Result<(), StoreError> {
    execute(
        connection,
        "remember the service of a batch",
        "INSERT INTO lock_served (resource, batch, served_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (resource, batch) DO UPDATE SET served_at = max(served_at, excluded.served_at)",
        params![resource, batch, since.to_string()],
    )
    .map(drop)
}

/// Forgets when each batch was served, for a resource that no run tree waits for.
pub(super) fn forget_served(connection: &Connection, resource: &str) -> Result<(), StoreError> {
    execute(
        connection,
        "forget the service of batches",
        "DELETE FROM lock_served WHERE resource = ?1",
        &[&resource],
    )
    .map(drop)
}

/// The position of a run tree in the queue of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// The resource that the run tree waits for.
    pub resource: String,
    /// The number of run trees that may hold it at the same time.
    pub capacity: u32,
    /// The root of one holder; `None` when there is no holder.
    pub holder: Option<RunId>,
    /// The number of holders.
    pub in_use: u64,
    /// The position of this run tree in the queue by priority and age, from 1. Batches alternate besides.
    pub position: u64,
    /// The number of run trees in the queue.
    pub waiting: u64,
}

/// The position of a run tree in the queue of the resource that it waits for.
pub(super) fn position(connection: &Connection, root: RunId) -> Result<Option<QueuePosition>, StoreError> {
    const OPERATION: &str = "read the queue position of a run tree";
    let wanted = first(
        connection,
        OPERATION,
        "SELECT wanted.resource, wanted.capacity, wanted.rank FROM locks AS wanted
         WHERE wanted.root = ?1 AND wanted.held = 0
         ORDER BY wanted.capacity <= (SELECT count(*) FROM locks AS other
                                      WHERE other.resource = wanted.resource AND other.held = 1) DESC,
                  wanted.resource LIMIT 1",
        &[&root.to_string()],
        |columns| {
            let resource: String = columns.get("resource")?;
            Ok((resource, columns.get::<u32>("capacity")?, columns.get::<i64>("rank")?))
        },
    )?;
    let Some((resource, capacity, rank)) = wanted else { return Ok(None) };
    let counts = first(
        connection,
        OPERATION,
        "SELECT count(*) FILTER (WHERE held = 1) AS in_use, count(*) FILTER (WHERE held = 0) AS waiting,
                count(*) FILTER (WHERE held = 0 AND (rank, root) <= (?2, ?3)) AS position
         FROM locks WHERE resource = ?1",
        params![resource, rank, root.to_string()],
        |columns| Ok((columns.count("in_use")?, columns.count("waiting")?, columns.count("position")?)),
    )?;
    let (in_use, waiting, position) = counts.unwrap_or_default();
    let holder = holder(connection, &resource)?;
    Ok(Some(QueuePosition { resource, capacity, holder, in_use, position, waiting }))
}

/// The root of one holder of a resource.
pub(super) fn holder(connection: &Connection, resource: &str) -> Result<Option<RunId>, StoreError> {
    first(
        connection,
        "find the holder of a lock",
        "SELECT root FROM locks WHERE resource = ?1 AND held = 1",
        &[&resource],
        |columns| columns.parse("root", str::parse::<RunId>),
    )
}

/// The root of another run tree that holds a resource or is queued for it; a holder is found first.
pub(super) fn other_claimant(
    connection: &Connection,
    resource: &str,
    root: RunId,
) -> Result<Option<RunId>, StoreError> {
    first(
        connection,
        "find the run tree that claims a lock",
        "SELECT root FROM locks WHERE resource = ?1 AND root <> ?2 ORDER BY held DESC, rank, root LIMIT 1",
        &[&resource, &root.to_string().as_str()],
        |columns| columns.parse("root", str::parse::<RunId>),
    )
}

/// The lanes of started runs with the priorities in use, in the order of service. They are few, and each is found with one
/// index lookup.
pub(super) fn levels(
    connection: &Connection,
    queue: &str,
    lanes: Lanes,
) -> Result<Vec<(i64, i64)>, StoreError> {
    let mut found = Vec::new();
    for lane in if lanes == Lanes::Cancelled { 0..1 } else { 0..2 } {
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

/// The due started runs of one lane and priority, by due time.
pub(super) fn started(
    connection: &Connection,
    queue: &str,
    (lane, priority): (i64, i64),
    now: Time,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    ids(
        connection,
        "SELECT id FROM runs WHERE queue = ?1 AND lane = ?2 AND priority = ?3 AND next_run_at <= ?4 AND lane < 2
         ORDER BY next_run_at LIMIT ?5",
        params![queue, lane, priority, now.to_string(), i64::try_from(limit).unwrap_or(i64::MAX)],
    )
}

/// The unstarted runs past their deadline, by deadline.
pub(super) fn overdue(
    connection: &Connection,
    queue: &str,
    now: Time,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    ids(
        connection,
        &format!(
            "SELECT id FROM runs WHERE queue = ?1 AND deadline_at <= ?2 AND {NOT_STARTED} ORDER BY deadline_at LIMIT ?3"
        ),
        params![queue, now.to_string(), i64::try_from(limit).unwrap_or(i64::MAX)],
    )
}

/// The worker queues with unended runs, except these. At most [`OTHER_QUEUES`].
pub(super) fn others(connection: &Connection, own: &[String]) -> Result<Vec<String>, StoreError> {
    const STARTED: &str =
        "SELECT min(queue) AS queue FROM runs WHERE queue > ?1 AND next_run_at IS NOT NULL AND lane < 2";
    let unstarted = format!("SELECT min(queue) AS queue FROM runs WHERE queue > ?1 AND {NOT_STARTED}");
    let mut found = Vec::new();
    let mut last = String::new();
    for _ in 0..OTHER_QUEUES + own.len() {
        let mut next: Option<String> = None;
        for sql in [STARTED, &unstarted] {
            let read = first(connection, OPERATION, sql, &[&last], |columns| {
                columns.get::<Option<String>>("queue")
            })?;
            next = match (next, read.flatten()) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        let Some(queue) = next else { break };
        last.clone_from(&queue);
        if !own.contains(&queue) {
            found.push(queue);
        }
    }
    Ok(found)
}

/// The due runs of a queue that need a decision and no call of a step: their deadline has passed, or a cancel waits. The cost
/// grows with the due runs of the queue, which has many only while it has no worker.
pub(super) fn undecided(
    connection: &Connection,
    queue: &str,
    now: Time,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut due = ids(
        connection,
        "SELECT id FROM runs WHERE queue = ?1 AND lane < 2 AND next_run_at <= ?2
             AND (deadline_at <= ?2
                  OR (lane = 0 AND phase NOT IN ('unwinding', 'finishing', 'held', 'ended')))
         ORDER BY next_run_at LIMIT ?3",
        params![queue, now.to_string(), limit],
    )?;
    let rest = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(due.len());
    due.extend(overdue(connection, queue, now, rest)?);
    Ok(due)
}

/// The ids of a query as text, because an id may be unreadable.
fn ids(connection: &Connection, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<String>, StoreError> {
    all(connection, OPERATION, sql, parameters, |columns| columns.get::<String>("id"))
}

/// The time at which the next run of a worker queue is due. Queued runs count only if `starts`.
pub(super) fn next_due(
    connection: &Connection,
    queue: &str,
    lanes: Lanes,
    starts: bool,
) -> Result<Option<Time>, StoreError> {
    let mut next: Vec<Time> = Vec::new();
    for (lane, priority) in levels(connection, queue, lanes)? {
        next.extend(due_time(
            connection,
            "SELECT min(next_run_at) AS due FROM runs
             WHERE queue = ?1 AND lane = ?2 AND priority = ?3 AND next_run_at IS NOT NULL AND lane < 2",
            params![queue, lane, priority],
        )?);
    }
    if lanes != Lanes::Cancelled {
        let overdue = format!("SELECT min(deadline_at) AS due FROM runs WHERE queue = ?1 AND {NOT_STARTED}");
        next.extend(due_time(connection, &overdue, &[&queue])?);
    }
    if starts {
        let waits = format!(
            "SELECT next_run_at AS due FROM runs WHERE queue = ?1 AND {UNSTARTED} ORDER BY batch, rank LIMIT 1"
        );
        next.extend(due_time(connection, &waits, &[&queue])?);
    }
    Ok(next.into_iter().min())
}

fn due_time(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn ToSql],
) -> Result<Option<Time>, StoreError> {
    const OPERATION: &str = "find the next due run";
    first(connection, OPERATION, sql, parameters, |columns| columns.time_opt("due")).map(Option::flatten)
}
