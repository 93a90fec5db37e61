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
//! Invariants: a family gets all it waits for in one transaction or nothing, so two of them never wait for each other over
//! what was asked for at creation; a freed resource is handed over in the transaction that frees it, so nobody jumps the
//! line; who cannot take everything yet does not keep others from what is free.

use rusqlite::{Connection, params};

use super::rows::{all, execute, first};
use super::{Store, StoreError};
use crate::model::mutant::{self, Mutant};
use crate::model::{NewRun, Run, RunId, Time};

/// What a family of runs cannot begin without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandsInLine {
    /// What it waits for.
    pub resource: String,
    /// How many families may hold it at once.
    pub places: u32,
    /// One that holds it; `None` while it is being handed over.
    pub holder: Option<RunId>,
}

impl Store {
    /// What a family of runs stands in line for: the resource, its places, and one of those who hold it.
    pub async fn in_line_for(&self, root: RunId) -> Result<Option<StandsInLine>, StoreError> {
        const OPERATION: &str = "see what a family stands in line for";
        self.read(OPERATION, move |connection| {
            let resource = first(
                connection,
                OPERATION,
                "SELECT wanted.resource, wanted.capacity FROM locks AS wanted WHERE wanted.root = ?1 AND wanted.held = 0
                 ORDER BY wanted.capacity <= (SELECT count(*) FROM locks AS other
                                              WHERE other.resource = wanted.resource AND other.held = 1) DESC,
                          wanted.resource LIMIT 1",
                &[&root.to_string()],
                |columns| Ok((columns.get::<String>("resource")?, columns.get::<u32>("capacity")?)),
            )?;
            let Some((resource, places)) = resource else { return Ok(None) };
            let holder = holder(connection, &resource)?;
            Ok(Some(StandsInLine { resource, places, holder }))
        })
        .await
    }
}

/// A run and everything below it, found through the index on `parent`.
const FAMILY: &str = "WITH RECURSIVE family (id) AS
         (VALUES (?1) UNION SELECT runs.id FROM runs JOIN family ON runs.parent = family.id)";

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
            "INSERT INTO locks (resource, root, held, priority, since, capacity) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (resource, root) DO UPDATE SET held = max(held, excluded.held)",
            params![
                lock.resource,
                root.to_string(),
                free,
                new.priority,
                new.created_at.to_string(),
                lock.places
            ],
        )?;
    }
    if free { Ok(()) } else { sleep_until_deadline(connection, new.id, new.deadline_at) }
}

/// Whether a run may not begin yet because its family stands in line. Who is past its deadline may: it only fails.
pub(super) fn gated(connection: &Connection, run: &Run, now: Time) -> Result<bool, StoreError> {
    if run.epoch > 0 || !run.phase.is_forward() || now >= run.deadline_at {
        return Ok(false);
    }
    in_line(connection, run.root)
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

/// A run has left the way to its goal: if nobody of its family is left to begin, the family leaves the lines it stands in.
pub(super) fn withdraw(connection: &Connection, run: &Run) -> Result<(), StoreError> {
    if !in_line(connection, run.root)? {
        return Ok(());
    }
    execute(
        connection,
        "leave the line for a lock",
        &format!(
            "{FAMILY} DELETE FROM locks WHERE root = ?1 AND held = 0
             AND NOT EXISTS (SELECT 1 FROM runs JOIN family ON family.id = runs.id WHERE {NOT_BEGUN})"
        ),
        &[&run.root.to_string()],
    )
    .map(drop)
}

/// A run has ended: if it was the last of its family, the family's locks go to the next in line, by priority and then age.
pub(super) fn release(connection: &Connection, root: RunId, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "release locks";
    let root = root.to_string();
    let working = first(
        connection,
        OPERATION,
        &format!(
            "{FAMILY} SELECT 1 AS working FROM runs JOIN family ON family.id = runs.id WHERE phase <> 'ended' LIMIT 1"
        ),
        &[&root],
        |_| Ok(()),
    )?;
    if working.is_some() || mutant::active(Mutant::KeepsLock) {
        return Ok(());
    }
    let resources = all(
        connection,
        OPERATION,
        "SELECT resource FROM locks WHERE root = ?1 ORDER BY resource",
        &[&root],
        |columns| columns.get::<String>("resource"),
    )?;
    execute(connection, OPERATION, "DELETE FROM locks WHERE root = ?1", &[&root])?;
    resources.iter().try_for_each(|resource| hand_over(connection, resource, now))
}

/// Gives a free resource, and all else it waits for, to the first in line that can take everything.
fn hand_over(connection: &Connection, resource: &str, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "hand over a lock";
    let next = first(
        connection,
        OPERATION,
        "SELECT mine.root FROM locks AS mine WHERE mine.resource = ?1 AND mine.held = 0 AND NOT EXISTS
             (SELECT 1 FROM locks AS wanted WHERE wanted.root = mine.root AND wanted.held = 0 AND wanted.capacity <=
                  (SELECT count(*) FROM locks AS other
                   WHERE other.resource = wanted.resource AND other.held = 1 AND other.root <> wanted.root))
         ORDER BY mine.priority DESC, mine.since, mine.root LIMIT 1",
        &[&resource],
        |columns| columns.get::<String>("root"),
    )?;
    let Some(root) = next else { return Ok(()) };
    execute(connection, OPERATION, "UPDATE locks SET held = 1 WHERE root = ?1 AND held = 0", &[&root])?;
    execute(
        connection,
        OPERATION,
        &format!(
            "{FAMILY} UPDATE runs SET next_run_at = ?2, revision = revision + 1
             WHERE id IN (SELECT id FROM family) AND {NOT_BEGUN} AND phase <> 'held'"
        ),
        params![root, now.to_string()],
    )
    .map(drop)
}

fn in_line(connection: &Connection, root: RunId) -> Result<bool, StoreError> {
    first(
        connection,
        "see whether a family stands in line",
        "SELECT 1 AS waits FROM locks WHERE root = ?1 AND held = 0 LIMIT 1",
        &[&root.to_string()],
        |_| Ok(()),
    )
    .map(|found| found.is_some())
}
