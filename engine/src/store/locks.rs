//! Locks of families of runs (lock L13): who holds what, who stands in line, and who is next. Most are exclusive; some have
//! places for a few families, such as a batch of which only so many jobs may work at once.
//!
//! ```text
//!  create --all free?--> held = 1                      family over --> rows gone; each resource goes to the next in line
//!         --otherwise--> held = 0, run due at its deadline                          |
//!                            ^        (never claimed before it, but for failing)    v
//!                            +----- nothing of a family is held in part ----- held = 1, run due at once
//! ```
//!
//! A place can also be taken and given back in the middle of a run (`turn/…`): the run is told by a signal that it has it.
//!
//! Invariants: a family gets all it waits for in one transaction or nothing, so two of them never wait for each other over
//! what was asked for at creation; a freed resource is handed over in the transaction that frees it, so nobody jumps the
//! line; who cannot take everything yet does not keep others from what is free.

use rusqlite::{Connection, params};

use super::rows::{Columns, all, execute, first};
use super::{Store, StoreError, create};
use crate::model::mutant::{self, Mutant};
use crate::model::{Fairness, Head, NewRun, Run, RunId, TURN, Time, rank};

/// What a family of runs stands in line for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// What it waits for.
    pub resource: String,
    /// How many families may hold it at once.
    pub places: u32,
    /// One that holds it; `None` while it is being handed over.
    pub holder: Option<RunId>,
    /// How many hold it.
    pub taken: u64,
    /// Its own place among those who wait, by priority and age; the first is 1. Batches take turns besides.
    pub place: u64,
    /// How many wait.
    pub waiting: u64,
}

impl Store {
    /// What a family of runs stands in line for, who holds it, and which place it has.
    pub async fn queue_position(&self, root: RunId) -> Result<Option<QueuePosition>, StoreError> {
        const OPERATION: &str = "see what a family stands in line for";
        self.read(OPERATION, move |connection| {
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
            let Some((resource, places, rank)) = wanted else { return Ok(None) };
            let counts = first(
                connection,
                OPERATION,
                "SELECT count(*) FILTER (WHERE held = 1) AS taken, count(*) FILTER (WHERE held = 0) AS waiting,
                        count(*) FILTER (WHERE held = 0 AND (rank, root) <= (?2, ?3)) AS place
                 FROM locks WHERE resource = ?1",
                params![resource, rank, root.to_string()],
                |columns| Ok((columns.count("taken")?, columns.count("waiting")?, columns.count("place")?)),
            )?;
            let (taken, waiting, place) = counts.unwrap_or_default();
            let holder = holder(connection, &resource)?;
            Ok(Some(QueuePosition { resource, places, holder, taken, place, waiting }))
        })
        .await
    }

    /// Gives back a place that a run took in the middle of its way; nothing when it has none.
    pub async fn release_permit(&self, run: RunId, resource: &str, now: Time) -> Result<(), StoreError> {
        let resource = resource.to_owned();
        self.writer
            .write("give a place back", move |connection| release_permit(connection, run, &resource, now))
            .await
    }
}

/// Places taken in the middle of a run; what a family asked for before it began is named differently.
const TURNS: &str = "resource >= 'turn/' AND resource < 'turn0'";
/// How far a line is looked through for somebody who can take all that it waits for.
const LOOKED_AT: u32 = 2048;

/// A run and everything below it, found through the index on `parent`. Always joined from the family to its runs (`CROSS
/// JOIN` keeps the order): left to itself SQLite goes through all runs that wait, where there are many of them.
const FAMILY: &str = "WITH RECURSIVE family (id) AS
         (VALUES (?1) UNION SELECT runs.id FROM family CROSS JOIN runs ON runs.parent = family.id)";

/// Runs that have not begun to work: what a missing lock keeps from being claimed.
const NOT_BEGUN: &str = "lease_owner IS NULL AND lease_epoch = 0 AND phase IN ('queued', 'waiting', 'held')";

/// Who holds a resource.
pub(super) fn holder(connection: &Connection, resource: &str) -> Result<Option<RunId>, StoreError> {
    first(
        connection,
        "find the holder of a lock",
        "SELECT root FROM locks WHERE resource = ?1 AND held = 1",
        &[&resource],
        |columns| columns.parse("root", str::parse::<RunId>),
    )
}

/// Whether a family holds a place of a resource, and how many others do.
fn holders(connection: &Connection, resource: &str, root: RunId) -> Result<(bool, u64), StoreError> {
    let found = first(
        connection,
        "count the holders of a lock",
        "SELECT count(*) FILTER (WHERE root = ?2) AS ours, count(*) FILTER (WHERE root <> ?2) AS others
         FROM locks WHERE resource = ?1 AND held = 1",
        &[&resource, &root.to_string()],
        |columns| Ok((columns.count("ours")? > 0, columns.count("others")?)),
    )?;
    Ok(found.unwrap_or((false, 0)))
}

/// Takes all that a new run asks for, or puts its family in line for it.
pub(super) fn request(connection: &Connection, new: &NewRun, root: RunId) -> Result<(), StoreError> {
    const OPERATION: &str = "ask for locks";
    let mut missing = Vec::new();
    let mut free = true;
    for lock in &new.locks {
        let (ours, others) = holders(connection, &lock.resource, root)?;
        if !ours {
            free &= others < u64::from(lock.places);
            missing.push(lock);
        }
    }
    for lock in missing {
        execute(
            connection,
            OPERATION,
            "INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (resource, root) DO UPDATE SET held = max(held, excluded.held)",
            params![
                lock.resource,
                root.to_string(),
                free,
                new.priority,
                new.created_at.to_string(),
                lock.places,
                create::batch_of(new),
                rank(new.created_at, new.priority)
            ],
        )?;
    }
    if free { Ok(()) } else { sleep_until_deadline(connection, new.id, new.deadline_at) }
}

/// A gated run is due again at its deadline; whoever frees the resource makes it due earlier.
pub(super) fn sleep_until_deadline(
    connection: &Connection,
    run: RunId,
    deadline: Time,
) -> Result<(), StoreError> {
    execute(
        connection,
        "stand in line for a lock",
        "UPDATE runs SET next_run_at = ?2 WHERE id = ?1",
        params![run.to_string(), deadline.to_string()],
    )
    .map(drop)
}

/// Takes a family out of the lines it stands in, unless somebody of it is left to begin.
fn leave_queues() -> String {
    format!(
        "{FAMILY} DELETE FROM locks WHERE root = ?1 AND held = 0
         AND NOT EXISTS (SELECT 1 FROM family CROSS JOIN runs ON runs.id = family.id WHERE {NOT_BEGUN})"
    )
}

/// Whether anybody of a family has not ended.
fn at_work() -> String {
    format!(
        "{FAMILY} SELECT 1 AS working FROM family CROSS JOIN runs ON runs.id = family.id WHERE phase <> 'ended' LIMIT 1"
    )
}

/// Makes due what a family has left to begin.
fn may_begin() -> String {
    format!(
        "{FAMILY} UPDATE runs SET next_run_at = ?2, revision = revision + 1
         WHERE id IN (SELECT id FROM family) AND {NOT_BEGUN} AND phase <> 'held'"
    )
}

/// A run has left the way to its goal: if nobody of its family is left to begin, the family leaves the lines it stands in.
pub(super) fn withdraw(connection: &Connection, run: &Run) -> Result<(), StoreError> {
    if !in_line(connection, run.root)? {
        return Ok(());
    }
    execute(connection, "leave the line for a lock", &leave_queues(), &[&run.root.to_string()]).map(drop)
}

/// A run has ended: if it was the last of its family, the family's locks go to the next in line, by priority and then age.
pub(super) fn release(connection: &Connection, root: RunId, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "release locks";
    let root = root.to_string();
    let working = first(connection, OPERATION, &at_work(), &[&root], |_| Ok(()))?;
    if working.is_some() || mutant::active(Mutant::KeepsLock) {
        return Ok(());
    }
    let left = all(
        connection,
        OPERATION,
        "SELECT resource, batch, since FROM locks WHERE root = ?1 ORDER BY resource",
        &[&root],
        Left::read,
    )?;
    execute(connection, OPERATION, "DELETE FROM locks WHERE root = ?1", &[&root])?;
    left.iter().try_for_each(|left| hand_over(connection, &left.resource, Some(left), now))
}

/// A run in the middle of its way asks for a place, or goes on standing in line for it. Having it is told by a signal, so
/// that it survives everything.
pub(super) fn acquire_permit(
    connection: &Connection,
    run: RunId,
    resource: &str,
    places: u32,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "ask for a place";
    let root = first(
        connection,
        OPERATION,
        "SELECT root, priority, batch FROM runs WHERE id = ?1",
        &[&run.to_string()],
        |columns| {
            let root = columns.parse("root", str::parse::<RunId>)?;
            Ok((root, columns.get::<i32>("priority")?, columns.get::<String>("batch")?))
        },
    )?;
    let Some((root, priority, batch)) = root else { return Ok(()) };
    execute(
        connection,
        OPERATION,
        "INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank, asker)
         VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (resource, root) DO UPDATE SET capacity = excluded.capacity",
        params![
            resource,
            root.to_string(),
            priority,
            now.to_string(),
            places,
            batch,
            rank(now, priority),
            run.to_string()
        ],
    )?;
    hand_over(connection, resource, None, now)
}

/// A run gives back a place that it took in the middle of its way.
pub(super) fn release_permit(
    connection: &Connection,
    run: RunId,
    resource: &str,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "give a place back";
    const OURS: &str = "resource = ?1 AND root = (SELECT root FROM runs WHERE id = ?2)";
    let ours = params![resource, run.to_string()];
    let left = first(
        connection,
        OPERATION,
        &format!("SELECT resource, batch, since FROM locks WHERE {OURS}"),
        ours,
        Left::read,
    )?;
    let Some(left) = left else { return Ok(()) };
    execute(connection, OPERATION, &format!("DELETE FROM locks WHERE {OURS}"), ours)?;
    hand_over(connection, resource, Some(&left), now)
}

/// A run has left the way to its goal: what it took on the way is given back.
pub(super) fn release_permits(connection: &Connection, run: &Run, now: Time) -> Result<(), StoreError> {
    let turns = all(
        connection,
        "give places back",
        &format!("SELECT resource FROM locks WHERE root = ?1 AND {TURNS}"),
        &[&run.root.to_string()],
        |columns| columns.get::<String>("resource"),
    )?;
    turns.iter().try_for_each(|resource| release_permit(connection, run.id, resource, now))
}

/// A place that was just left.
struct Left {
    resource: String,
    batch: String,
    since: Time,
}

impl Left {
    fn read(columns: &Columns<'_>) -> Result<Self, StoreError> {
        let (resource, batch) = (columns.get("resource")?, columns.get("batch")?);
        Ok(Self { resource, batch, since: columns.time("since")? })
    }
}

/// Gives free places of a resource, and all else they wait for, to those first in line that can take everything: by
/// priority and age, batches in turn.
fn hand_over(
    connection: &Connection,
    resource: &str,
    left: Option<&Left>,
    now: Time,
) -> Result<(), StoreError> {
    while let Some(root) = next_queued(connection, resource, left)? {
        grant(connection, &root, now)?;
    }
    Ok(())
}

fn next_queued(
    connection: &Connection,
    resource: &str,
    left: Option<&Left>,
) -> Result<Option<String>, StoreError> {
    const OPERATION: &str = "hand over a lock";
    let (mut heads, mut roots): (Vec<Head>, Vec<String>) = (Vec::new(), Vec::new());
    let mut batch = first(
        connection,
        OPERATION,
        "SELECT min(batch) AS batch FROM locks WHERE resource = ?1 AND held = 0",
        &[&resource],
        |columns| columns.get::<Option<String>>("batch"),
    )?
    .flatten();
    while let Some(current) = batch {
        let head = first(
            connection,
            OPERATION,
            "SELECT mine.root, mine.rank, mine.priority FROM
                 (SELECT root, rank, priority FROM locks WHERE resource = ?1 AND held = 0 AND batch = ?2
                  ORDER BY rank, root LIMIT ?3) AS mine
             WHERE NOT EXISTS
                 (SELECT 1 FROM locks AS wanted WHERE wanted.root = mine.root AND wanted.held = 0 AND wanted.capacity <=
                      (SELECT count(*) FROM locks AS other
                       WHERE other.resource = wanted.resource AND other.held = 1 AND other.root <> wanted.root))
             ORDER BY mine.rank, mine.root LIMIT 1",
            params![resource, current, LOOKED_AT],
            |columns| {
                let head = Head {
                    batch: current.clone(),
                    rank: columns.get("rank")?,
                    priority: columns.get("priority")?,
                };
                Ok((head, columns.get::<String>("root")?))
            },
        )?;
        if let Some((head, root)) = head {
            heads.push(head);
            roots.push(root);
        }
        batch = first(
            connection,
            OPERATION,
            "SELECT min(batch) AS batch FROM locks WHERE resource = ?1 AND held = 0 AND batch > ?2",
            params![resource, current],
            |columns| columns.get::<Option<String>>("batch"),
        )?
        .flatten();
    }
    let mut turns = Fairness::default();
    left.iter().for_each(|left| turns.served(&left.batch, left.since));
    if heads.len() > 1 {
        // Who holds a place, or has just left one, had its turn when it got it.
        let served = all(
            connection,
            OPERATION,
            "SELECT batch, max(since) AS since FROM locks WHERE resource = ?1 AND held = 1 GROUP BY batch ORDER BY 2",
            &[&resource],
            |columns| Ok((columns.get::<String>("batch")?, columns.time("since")?)),
        )?;
        served.iter().for_each(|(batch, since)| turns.served(batch, *since));
    }
    Ok(turns.next(&heads).and_then(|next| roots.get(next).cloned()))
}

/// A family gets all that it stands in line for.
fn grant(connection: &Connection, root: &str, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "hand over a lock";
    let turns = all(
        connection,
        OPERATION,
        &format!(
            "SELECT resource, asker FROM locks WHERE root = ?1 AND held = 0 AND {TURNS} AND asker IS NOT NULL"
        ),
        &[&root],
        |columns| Ok((columns.get::<String>("resource")?, columns.parse("asker", str::parse::<RunId>)?)),
    )?;
    execute(
        connection,
        OPERATION,
        "UPDATE locks SET held = 1, since = ?2 WHERE root = ?1 AND held = 0",
        params![root, now.to_string()],
    )?;
    for (resource, asker) in turns {
        super::signals::tell(connection, asker, TURN, &resource, now)?;
    }
    execute(connection, OPERATION, &may_begin(), params![root, now.to_string()]).map(drop)
}

/// Whether a family may not begin because it stands in line.
pub(super) fn in_line(connection: &Connection, root: RunId) -> Result<bool, StoreError> {
    first(
        connection,
        "see whether a family stands in line",
        &format!("SELECT 1 AS waits FROM locks WHERE root = ?1 AND held = 0 AND NOT ({TURNS}) LIMIT 1"),
        &[&root.to_string()],
        |_| Ok(()),
    )
    .map(|found| found.is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::migrate;
    use super::*;

    /// A regression: with thousands of runs in line every one that left it went through all of them.
    #[test]
    fn a_family_is_found_without_going_through_all_runs_however_many_wait() {
        let mut connection = Connection::open_in_memory().unwrap();
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        migrate::run(&mut connection, Path::new("memory"), now).unwrap();
        connection
            .execute_batch(
                "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000)
                 INSERT INTO runs (id, kind, kind_version, root, phase, queue, priority, next_run_at, deadline_at,
                                   progress_at, created_by, created_at, updated_at)
                 SELECT 'run-' || n, 'drill', 1, 'run-' || n, 'queued', 'q', 0, '2026', '2027', '2026', 'ann', '2026', '2026'
                 FROM numbers;
                 INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank)
                 SELECT 'rack', id, 0, 0, '2026', 1, '', 0 FROM runs;
                 ANALYZE;",
            )
            .unwrap();
        for statement in [leave_queues(), at_work(), may_begin()] {
            let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let parameters: &[&str] = if statement.contains("?2") { &["run-7", "2026"] } else { &["run-7"] };
            let rows = explained
                .query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>("detail"));
            let plan: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
            let all_runs = |line: &&String| {
                line.starts_with("SCAN runs")
                    || line.contains("INDEX idx_runs_") && !line.contains("(parent=?)")
            };
            assert_eq!(plan.iter().find(all_runs), None, "{statement}: {plan:#?}");
        }
    }
}
