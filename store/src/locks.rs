//! Locks and permits of run trees (decision D13): who holds them, and their release to the next in `queues`. Most locks are exclusive. Some have
//! capacity for several run trees, such as the lock of a batch that limits its jobs in progress.
//!
//! ```text
//!  create --all free?--> held = 1                      tree ended --> rows deleted; each resource goes to the next in its queue
//!         --otherwise--> held = 0, run due at its deadline                          |
//!                            ^        (claimed before it only to end)               v
//!                            +--- behind no gate a tree holds all or none --- held = 1, run due now
//! ```
//!
//! A run behind a closed gate (its batch, or the maintenance of its server) queues for resources that other run trees may want and
//! takes none, and no hand-over gives it one: it could not start, and others, such as the canary that the gate waits for, need the
//! capacity. What it held when the gate closed goes on to the next, but for the lock of its server. An open gate makes the run due,
//! and its claim takes the resources if they are free. The runs of restored data are behind such a gate until their server is
//! released.
//!
//! A permit (`permit/…`) is acquired and released in the middle of a run. The run receives a signal when it has the permit.
//!
//! Invariants: a run tree gets all locks that it requested at creation in one transaction or none, so two trees never wait
//! for each other because of these locks. Behind a gate it holds the lock of its server, which only other trees of that server want;
//! they hold nothing while they wait. A released resource goes to its next holder in the transaction that releases it, so no other
//! tree can take it in between. A tree that cannot take all its locks yet does not block others from free ones.

use rusqlite::{Connection, params};

use super::queues::{self, QueuePosition};
use super::rows::{Columns, all, execute, first};
use super::{Store, StoreError, create, gates};
use model::mutant::{self, Mutant};
use model::{NewRun, OnConflict, PERMIT, Run, RunId, SERVER_LOCKS, Time, rank};

impl Store {
    /// The position of a run tree in the queue of the resource that it waits for; `None` when it waits for none.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn queue_position(&self, root: RunId) -> Result<Option<QueuePosition>, StoreError> {
        const OPERATION: &str = "read the queue position of a run tree";
        self.read(OPERATION, move |connection| queues::position(connection, root)).await
    }

    /// Releases a permit of a run. Does nothing when the run has no such permit.
    ///
    /// # Errors
    /// When the database cannot be written; the permit is kept then.
    pub async fn release_permit(&self, run: RunId, resource: &str, now: Time) -> Result<(), StoreError> {
        let resource = resource.to_owned();
        self.writer
            .write("release a permit", move |connection| release_permit(connection, run, &resource, now))
            .await
    }
}

/// The resources of permits. Locks that are requested at creation have other names.
const PERMITS: &str = "resource >= 'permit/' AND resource < 'permit0'";
/// A run and all its descendants, found through the index on `parent`. Always joined from the tree to its runs (`CROSS JOIN`
/// keeps the order): otherwise SQLite may scan all waiting runs when there are many.
const TREE: &str = "WITH RECURSIVE tree (id) AS
         (VALUES (?1) UNION SELECT runs.id FROM tree CROSS JOIN runs ON runs.parent = tree.id)";

/// Runs that have not started. A missing lock keeps these from being claimed.
const NOT_STARTED: &str =
    "lease_owner IS NULL AND lease_epoch = 0 AND phase IN ('queued', 'waiting', 'held')";

/// Whether a run tree holds a resource, and how many other trees hold it.
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

/// Takes all locks that a new run requests, or queues its run tree for them.
pub(super) fn request(connection: &Connection, new: &NewRun, root: RunId) -> Result<(), StoreError> {
    const OPERATION: &str = "request locks";
    let mut missing = Vec::new();
    // A permit that other run trees wait for is not kept idle behind a closed gate. A lock that only this run can want may be.
    let shared = new.locks.iter().any(|lock| lock.on_conflict == OnConflict::Wait);
    let closed = shared && gates::is_closed_for(connection, new.id)?;
    let mut all_free = true;
    for lock in &new.locks {
        let (ours, others) = holders(connection, &lock.resource, root)?;
        if !ours {
            let free = others < u64::from(lock.capacity);
            all_free &= free;
            missing.push((lock, free));
        }
    }
    for (lock, free) in missing {
        // Behind a gate a run takes the lock of its server only: whatever changes that server is behind the same gate, or follows it.
        let held = if closed { free && lock.resource.starts_with(SERVER_LOCKS) } else { all_free };
        execute(
            connection,
            OPERATION,
            "INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (resource, root) DO UPDATE SET held = max(held, excluded.held)",
            params![
                lock.resource,
                root.to_string(),
                held,
                new.priority,
                new.created_at.to_string(),
                lock.capacity,
                create::batch_of(new),
                rank(new.created_at, new.priority)
            ],
        )?;
    }
    if all_free && !closed { Ok(()) } else { sleep_until_deadline(connection, new.id, new.deadline_at) }
}

/// Takes the locks that an unstarted run tree is queued for if all are free now: the gate of its batch may have opened, which
/// hands nothing over. Whether the tree may start then.
pub(super) fn take_free(connection: &Connection, root: RunId, now: Time) -> Result<bool, StoreError> {
    if !is_queued(connection, root)? {
        return Ok(true);
    }
    let root = root.to_string();
    let free = queues::can_take(connection, &root)?;
    if free {
        give(connection, &root, now)?;
    }
    Ok(free)
}

/// Gives what other run trees wait for to the next of them, and queues the tree for it again: a gate in front of the tree, which has
/// not started, is closed. The lock of its server stays: whatever changes that server is behind the same gate, or follows this run.
pub(super) fn give_back(connection: &Connection, root: RunId, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "give back the locks of a run that may not start";
    let root = root.to_string();
    if first(connection, OPERATION, &has_started_run(), &[&root], |_| Ok(()))?.is_some() {
        return Ok(());
    }
    let held = ReleasedLock::of_tree(connection, OPERATION, &root, "AND held = 1")?;
    for lock in held.iter().filter(|lock| !lock.resource.starts_with(SERVER_LOCKS)) {
        if queues::is_wanted(connection, &lock.resource)? {
            let of_lock = "UPDATE locks SET held = 0 WHERE root = ?1 AND resource = ?2";
            execute(connection, OPERATION, of_lock, params![root, lock.resource])?;
            hand_over(connection, &lock.resource, Some(lock), now)?;
        }
    }
    Ok(())
}

/// Makes a run that may not start due at its deadline. The release of its lock or the opening of its gate makes it due earlier.
pub(super) fn sleep_until_deadline(
    connection: &Connection,
    run: RunId,
    deadline: Time,
) -> Result<(), StoreError> {
    execute(
        connection,
        "queue for a lock",
        "UPDATE runs SET next_run_at = ?2 WHERE id = ?1",
        params![run.to_string(), deadline.to_string()],
    )
    .map(drop)
}

/// Removes a run tree from the queues, unless a run of it has not started.
fn leave_queues() -> String {
    format!(
        "{TREE} DELETE FROM locks WHERE root = ?1 AND held = 0
         AND NOT EXISTS (SELECT 1 FROM tree CROSS JOIN runs ON runs.id = tree.id WHERE {NOT_STARTED})"
    )
}

/// Whether a run of a tree has not ended.
fn has_active_run() -> String {
    format!(
        "{TREE} SELECT 1 AS active FROM tree CROSS JOIN runs ON runs.id = tree.id WHERE phase <> 'ended' LIMIT 1"
    )
}

/// Whether a run of a tree has started.
fn has_started_run() -> String {
    format!(
        "{TREE} SELECT 1 AS started FROM tree CROSS JOIN runs ON runs.id = tree.id WHERE NOT ({NOT_STARTED}) LIMIT 1"
    )
}

/// Makes the unstarted runs of a tree due.
fn make_due() -> String {
    format!(
        "{TREE} UPDATE runs SET next_run_at = ?2, revision = revision + 1
         WHERE id IN (SELECT id FROM tree) AND {NOT_STARTED} AND phase <> 'held'"
    )
}

/// A run has left its forward phases. If no run of its tree is unstarted, the tree leaves the queues.
pub(super) fn withdraw(connection: &Connection, run: &Run) -> Result<(), StoreError> {
    if !is_queued(connection, run.root)? {
        return Ok(());
    }
    execute(connection, "leave the queue for a lock", &leave_queues(), &[&run.root.to_string()]).map(drop)
}

/// A run has ended. If it was the last of its tree, each lock of the tree goes to the next tree in its queue.
pub(super) fn release(connection: &Connection, root: RunId, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "release locks";
    let root = root.to_string();
    let active = first(connection, OPERATION, &has_active_run(), &[&root], |_| Ok(()))?;
    if active.is_some() || mutant::active(Mutant::KeepsLock) {
        return Ok(());
    }
    let released = ReleasedLock::of_tree(connection, OPERATION, &root, "")?;
    execute(connection, OPERATION, "DELETE FROM locks WHERE root = ?1", &[&root])?;
    released.iter().try_for_each(|lock| hand_over(connection, &lock.resource, Some(lock), now))
}

/// Requests a permit for a run, or keeps its queue position. The run receives a durable signal when it has the permit.
pub(super) fn acquire_permit(
    connection: &Connection,
    run: RunId,
    resource: &str,
    capacity: u32,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "request a permit";
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
        "INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank, requester)
         VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (resource, root) DO UPDATE SET capacity = excluded.capacity",
        params![
            resource,
            root.to_string(),
            priority,
            now.to_string(),
            capacity,
            batch,
            rank(now, priority),
            run.to_string()
        ],
    )?;
    hand_over(connection, resource, None, now)
}

/// Releases a permit of a run.
pub(super) fn release_permit(
    connection: &Connection,
    run: RunId,
    resource: &str,
    now: Time,
) -> Result<(), StoreError> {
    const OPERATION: &str = "release a permit";
    // The locks that a run got when it was created are released at its end only.
    let ours_is = format!("resource = ?1 AND {PERMITS} AND root = (SELECT root FROM runs WHERE id = ?2)");
    let ours = params![resource, run.to_string()];
    let released = first(
        connection,
        OPERATION,
        &format!("SELECT resource, batch, since FROM locks WHERE {ours_is}"),
        ours,
        ReleasedLock::read,
    )?;
    let Some(released) = released else { return Ok(()) };
    execute(connection, OPERATION, &format!("DELETE FROM locks WHERE {ours_is}"), ours)?;
    // The signal says that the tree has the permit: a later step of it queues again.
    execute(
        connection,
        OPERATION,
        "DELETE FROM signals WHERE name = ?3 AND key = ?1
             AND run IN (SELECT id FROM runs WHERE root = (SELECT root FROM runs WHERE id = ?2))",
        params![resource, run.to_string(), PERMIT],
    )?;
    hand_over(connection, resource, Some(&released), now)
}

/// A run has left its forward phases: its permits are released.
pub(super) fn release_permits(connection: &Connection, run: &Run, now: Time) -> Result<(), StoreError> {
    let permits = all(
        connection,
        "release permits",
        &format!("SELECT resource FROM locks WHERE root = ?1 AND {PERMITS}"),
        &[&run.root.to_string()],
        |columns| columns.get::<String>("resource"),
    )?;
    permits.iter().try_for_each(|resource| release_permit(connection, run.id, resource, now))
}

/// A lock or permit that was just released.
struct ReleasedLock {
    resource: String,
    batch: String,
    since: Time,
}

impl ReleasedLock {
    fn read(columns: &Columns<'_>) -> Result<Self, StoreError> {
        let (resource, batch) = (columns.get("resource")?, columns.get("batch")?);
        Ok(Self { resource, batch, since: columns.time("since")? })
    }

    /// The locks of a run tree for which `and` holds too, in the order of their names.
    fn of_tree(
        connection: &Connection,
        operation: &'static str,
        root: &str,
        and: &str,
    ) -> Result<Vec<Self>, StoreError> {
        let sql = format!("SELECT resource, batch, since FROM locks WHERE root = ?1 {and} ORDER BY resource");
        all(connection, operation, &sql, &[&root], Self::read)
    }
}

/// Gives the free capacity of a resource to the queued run trees that can now take all their locks, in the order of
/// [`queues::next_holder`].
fn hand_over(
    connection: &Connection,
    resource: &str,
    released: Option<&ReleasedLock>,
    now: Time,
) -> Result<(), StoreError> {
    if !queues::is_wanted(connection, resource)? {
        return queues::forget_served(connection, resource);
    }
    if let Some(lock) = released {
        queues::remember_served(connection, resource, &lock.batch, lock.since)?;
    }
    while let Some(root) = queues::next_holder(connection, resource)? {
        grant(connection, &root, now)?;
    }
    Ok(())
}

/// Gives a run tree all locks and permits that it is queued for, and makes its unstarted runs due.
fn grant(connection: &Connection, root: &str, now: Time) -> Result<(), StoreError> {
    give(connection, root, now)?;
    execute(connection, HAND_OVER, &make_due(), params![root, now.to_string()]).map(drop)
}

const HAND_OVER: &str = "hand over a lock";

/// Gives a run tree all locks and permits that it is queued for.
fn give(connection: &Connection, root: &str, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = HAND_OVER;
    let permits = all(
        connection,
        OPERATION,
        &format!(
            "SELECT resource, requester FROM locks WHERE root = ?1 AND held = 0 AND {PERMITS} AND requester IS NOT NULL"
        ),
        &[&root],
        |columns| Ok((columns.get::<String>("resource")?, columns.parse("requester", str::parse::<RunId>)?)),
    )?;
    execute(
        connection,
        OPERATION,
        "UPDATE locks SET held = 1, since = ?2 WHERE root = ?1 AND held = 0",
        params![root, now.to_string()],
    )?;
    for (resource, requester) in permits {
        super::signals::send(connection, requester, PERMIT, &resource, now)?;
    }
    Ok(())
}

/// Whether a run tree may not start because it is queued for a lock.
pub(super) fn is_queued(connection: &Connection, root: RunId) -> Result<bool, StoreError> {
    first(
        connection,
        "see whether a run tree is queued for a lock",
        &format!("SELECT 1 AS waits FROM locks WHERE root = ?1 AND held = 0 AND NOT ({PERMITS}) LIMIT 1"),
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

    /// A regression: with thousands of queued runs, each run that left the queue scanned all of them.
    #[test]
    fn finding_a_run_tree_scans_no_index_of_all_runs() {
        let mut connection = Connection::open_in_memory().unwrap();
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        migrate::run(&mut connection, Path::new("memory"), now).unwrap();
        connection
            .execute_batch(
                "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 3000)
                 INSERT INTO runs (id, workflow, workflow_version, root, phase, queue, priority, next_run_at, deadline_at,
                                   progress_at, created_by, created_at, updated_at)
                 SELECT 'run-' || n, 'drill', 1, 'run-' || n, 'queued', 'q', 0, '2026', '2027', '2026', 'ann', '2026', '2026'
                 FROM numbers;
                 INSERT INTO locks (resource, root, held, priority, since, capacity, batch, rank)
                 SELECT 'rack', id, 0, 0, '2026', 1, '', 0 FROM runs;
                 ANALYZE;",
            )
            .unwrap();
        for statement in [leave_queues(), has_active_run(), has_started_run(), make_due()] {
            let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let parameters: &[&str] = if statement.contains("?2") { &["run-7", "2026"] } else { &["run-7"] };
            let rows = explained
                .query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>("detail"));
            let plan: Vec<String> = rows.unwrap().map(Result::unwrap).collect();
            let scans_all_runs = |line: &&String| {
                line.starts_with("SCAN runs")
                    || line.contains("INDEX idx_runs_") && !line.contains("(parent=?)")
            };
            assert_eq!(plan.iter().find(scans_all_runs), None, "{statement}: {plan:#?}");
        }
    }
}
