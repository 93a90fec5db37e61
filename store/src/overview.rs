//! The whole installation in numbers: jobs by state, step and reason; failures of the last day by cause; servers by rack.
//!
//! Invariants: ended jobs are read by the indexes of their times, for one day; a job is in exactly one state; the states are
//! those of `explain`: `held` is held or restored, `working` is leased or due, `queued` has not begun or waits for a lock.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rusqlite::{Connection, ToSql, params};

use super::filters::{Present, Sql, field, open_failure};
use super::gate_names::name_of_gate;
use super::rows::{Columns, ReadSnapshot, all, first};
use super::{Store, StoreError};
use model::{
    BatchId, CauseKey, FailedJob, FailureClass, Hold, HoldClass, Outcome, RunId, Serial, StepName, Time,
};

/// The time for which ended jobs are counted.
const DAY: Duration = Duration::from_secs(86_400);
/// The maximum of failed jobs that are grouped by cause, and of held jobs that are grouped, newest first.
const MAX_FAILED: u32 = 1000;
/// The maximum of servers that a cause names.
const MAX_NAMED: usize = 5;
/// The maximum of groups of any kind.
const MAX_GROUPS: usize = 500;

/// The state of an unended run, and since when it is in it.
const STATE: &str = "CASE
     WHEN restored = 1 OR hold IS NOT NULL THEN 'held'
     WHEN lease_owner IS NOT NULL THEN 'working'
     WHEN wait IS NOT NULL THEN 'waiting'
     WHEN phase = 'queued' OR EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.root AND locks.held = 0) THEN 'queued'
     ELSE 'working' END";

/// The maximum of stopped batches that are named.
const MAX_STOPPED: usize = 20;

/// The whole installation in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// The number of registered servers.
    pub servers: u64,
    /// The newest position of the event log.
    pub last_seq: i64,
    /// Jobs that were created in the last day and failed.
    pub failed: u64,
    /// Jobs that were created in the last day and succeeded.
    pub succeeded: u64,
    /// Unended jobs by state, step and reason of the wait.
    pub open: Vec<OpenGroup>,
    /// Failures of the last day that no newer job of the server has followed, by cause; the largest group first.
    pub failures: Vec<FailureGroup>,
    /// Held jobs by the class of the hold.
    pub holds: Vec<HoldGroup>,
    /// Queued jobs by what keeps them from their start; the largest group first.
    pub blocked: Vec<BlockedGroup>,
    /// Batches that have stopped and have jobs that have not begun, the newest first.
    pub stopped: Vec<StoppedBatch>,
    /// Jobs that ended in the last day, by hour and outcome.
    pub ended: Vec<EndedGroup>,
    /// Servers by site, rack and the state of their newest job.
    pub racks: Vec<RackGroup>,
    /// Servers on which a job could not clean up.
    pub cleanup: Option<CleanupGroup>,
}

/// Unended jobs in one state at one step for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenGroup {
    /// `held`, `working`, `waiting` or `queued`.
    pub state: String,
    /// The step; `None` before the first.
    pub step: Option<StepName>,
    /// The reason of the wait; empty without one.
    pub reason: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest job is in its state.
    pub since: Time,
    /// The next time at which one of the jobs fails or its wait ends.
    pub next_deadline: Time,
}

/// Jobs that failed of one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureGroup {
    /// The class of the failure.
    pub class: FailureClass,
    /// The step that failed.
    pub step: StepName,
    /// The summary of the newest failure.
    pub summary: String,
    /// The next action for an operator.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The id of the newest job.
    pub newest: RunId,
    /// The time at which the newest job failed.
    pub newest_at: Time,
    /// The servers of the newest jobs.
    pub servers: Vec<Serial>,
}

/// Jobs that are held for reasons of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldGroup {
    /// The class of the hold.
    pub class: HoldClass,
    /// Why the oldest is held.
    pub detail: String,
    /// The number of jobs that are held with the same words.
    pub alike: u64,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest job is held.
    pub since: Time,
}

/// Queued jobs that one thing keeps from their start.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockedGroup {
    /// The closed gate (`drain`, `maintenance`, `batch-stopped`, `batch-canary`, `pressure`), `lock`, `limit` or `place`: a worker.
    pub blocker: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The time since which the oldest job is queued.
    pub since: Time,
    /// The next time at which one of the jobs fails.
    pub next_deadline: Time,
}

/// A batch that starts no further job until an operator continues it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoppedBatch {
    /// The batch.
    pub id: BatchId,
    /// The time since which the batch is stopped.
    pub since: Time,
    /// The number of failures that were counted.
    pub failures: u32,
    /// The number of jobs of the batch that have not begun.
    pub queued: u64,
}

/// Jobs that ended in one hour with one outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedGroup {
    /// The begin of the hour.
    pub hour: Time,
    /// The outcome.
    pub outcome: Outcome,
    /// The number of jobs.
    pub jobs: u64,
}

/// Servers of one rack whose newest job is in one state.
#[derive(Clone, Debug, PartialEq)]
pub struct RackGroup {
    /// The label `site`; empty without one.
    pub site: String,
    /// The label `rack`; empty without one.
    pub rack: String,
    /// The worst state of its open jobs, in the order `held`, `waiting`, `working`, `queued`; without one the outcome of the newest
    /// installation; empty for a server without that.
    pub state: String,
    /// The number of servers.
    pub servers: u64,
}

/// Servers on which a job could not clean up: those of the filter `state:pending-cleanup`.
#[derive(Clone, Debug, PartialEq)]
pub struct CleanupGroup {
    /// The number of servers.
    pub servers: u64,
    /// The serial numbers of some of the servers.
    pub named: Vec<Serial>,
    /// The time at which the oldest of their stored jobs ended.
    pub since: Option<Time>,
}

impl Store {
    /// The whole installation in numbers.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn overview(&self, present: Present) -> Result<Overview, StoreError> {
        const OPERATION: &str = "count jobs for the overview";
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let since = present.now.minus(DAY).to_string();
            let (failed, succeeded) = outcomes(connection, &since)?;
            let one =
                |sql: &str| first(connection, OPERATION, sql, &[], |columns| columns.get::<i64>("number"));
            let servers = one("SELECT count(*) AS number FROM servers")?.unwrap_or_default();
            let last_seq =
                one("SELECT seq AS number FROM sqlite_sequence WHERE name = 'events'")?.unwrap_or_default();
            Ok(Overview {
                servers: u64::try_from(servers).unwrap_or_default(),
                last_seq,
                failed,
                succeeded,
                open: open(connection)?,
                failures: failures(connection, present.now)?,
                holds: holds(connection)?,
                blocked: blocked(connection, present.pressure)?,
                stopped: stopped(connection)?,
                ended: ended(connection, &since)?,
                racks: racks(connection)?,
                cleanup: cleanup(connection)?,
            })
        })
        .await
    }
}

/// The jobs created since a time that failed and that succeeded.
fn outcomes(connection: &Connection, since: &str) -> Result<(u64, u64), StoreError> {
    const OPERATION: &str = "count jobs by outcome";
    let sql = "SELECT outcome, count(*) AS jobs FROM runs
               WHERE parent IS NULL AND outcome IN ('failed', 'succeeded') AND created_at >= ?1 GROUP BY outcome";
    let row = |columns: &Columns<'_>| Ok((columns.text("outcome")?.to_owned(), columns.count("jobs")?));
    let counts: BTreeMap<String, u64> =
        all(connection, OPERATION, sql, params![since], row)?.into_iter().collect();
    let of = |name: &str| counts.get(name).copied().unwrap_or_default();
    Ok((of("failed"), of("succeeded")))
}

fn open(connection: &Connection) -> Result<Vec<OpenGroup>, StoreError> {
    let sql = format!(
        "SELECT {STATE} AS state, step, coalesce({reason}, '') AS reason,
                count(*) AS jobs,
                min(coalesce({held}, {waits}, updated_at)) AS since,
                min(coalesce({ends}, deadline_at)) AS next_deadline
         FROM runs WHERE phase <> 'ended' AND parent IS NULL GROUP BY 1, 2, 3 ORDER BY jobs DESC, 1, 2, 3 LIMIT {MAX_GROUPS}",
        reason = field("wait", "reason"),
        held = field("hold", "since"),
        waits = field("wait", "since"),
        ends = field("wait", "deadline"),
    );
    all(connection, "count unended jobs", &sql, &[], |columns| {
        Ok(OpenGroup {
            state: columns.get("state")?,
            step: columns.text_opt("step")?.map(StepName::from),
            reason: columns.get("reason")?,
            jobs: columns.count("jobs")?,
            since: columns.time("since")?,
            next_deadline: columns.time("next_deadline")?,
        })
    })
}

/// The failures that the filter `failure:open` lists, by cause: jobs that differ only in what names their machine have one. With more
/// than [`MAX_FAILED`] failures a group is all failures of one class at one step, so that its number is right.
fn failures(connection: &Connection, now: Time) -> Result<Vec<FailureGroup>, StoreError> {
    const OPERATION: &str = "group failed jobs";
    let [step, summary, next_action] =
        ["step", "summary", "next_action"].map(|name| field("runs.failure", name));
    let Sql { text: is_open, values } = open_failure(now);
    let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
    let columns = format!(
        "coalesce(runs.failure_class, '') AS class, coalesce({step}, '') AS step, runs.id AS id, runs.server AS server,
         coalesce({summary}, '') AS summary, coalesce({next_action}, '') AS next_action"
    );
    let sql = format!(
        "SELECT {columns}, runs.updated_at AS newest_at FROM runs WHERE {is_open} AND runs.parent IS NULL
         ORDER BY runs.updated_at DESC LIMIT {MAX_FAILED} + 1"
    );
    let mut newest = all(connection, OPERATION, &sql, &values, failed_job)?;
    let groups = (newest.len() > MAX_FAILED as usize).then(|| {
        // SQLite takes the other columns of a group from the row that has the maximum, the newest.
        let sql = format!(
            "SELECT {columns}, max(runs.updated_at) AS newest_at, count(*) AS jobs
             FROM runs WHERE {is_open} AND runs.parent IS NULL GROUP BY 1, 2"
        );
        let row = |columns: &Columns<'_>| Ok((failed_job(columns)?, columns.count("jobs")?));
        all(connection, OPERATION, &sql, &values, row)
    });
    let mut found = HashMap::new();
    let is_one_cause = groups.is_none();
    let alike = |job: &FailedJob| CauseKey { words: String::new(), ..job.key() };
    for ((job, at), jobs) in groups.transpose()?.into_iter().flatten() {
        found.insert(alike(&job), group_of(job, at, jobs));
    }
    for (job, at) in newest.drain(..) {
        let key = if is_one_cause { job.key() } else { alike(&job) };
        let server = job.server.clone();
        let group = found.entry(key).or_insert_with(|| group_of(job, at, 0));
        group.jobs += u64::from(is_one_cause);
        group.servers.extend(server.filter(|_| group.servers.len() < MAX_NAMED));
    }
    let mut groups: Vec<FailureGroup> = found.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.jobs, group.newest_at, group.newest)));
    groups.truncate(MAX_GROUPS);
    Ok(groups)
}

/// A failed job, and when it ended.
fn failed_job(columns: &Columns<'_>) -> Result<(FailedJob, Time), StoreError> {
    let job = FailedJob {
        id: columns.parse("id", str::parse)?,
        server: columns.parse_opt("server", str::parse)?,
        class: columns.text("class")?.into(),
        step: columns.text("step")?.into(),
        summary: columns.get("summary")?,
        next_action: columns.get("next_action")?,
        superseded: false,
    };
    Ok((job, columns.time("newest_at")?))
}

fn group_of(job: FailedJob, newest_at: Time, jobs: u64) -> FailureGroup {
    let FailedJob { id, class, step, summary, next_action, .. } = job;
    FailureGroup { class, step, summary, next_action, jobs, newest: id, newest_at, servers: Vec::new() }
}

fn holds(connection: &Connection) -> Result<Vec<HoldGroup>, StoreError> {
    let sql = format!(
        "SELECT hold FROM runs WHERE phase <> 'ended' AND parent IS NULL AND json_valid(hold)
         ORDER BY json_extract(hold, '$.since') LIMIT {MAX_FAILED}"
    );
    let mut groups: Vec<HoldGroup> = Vec::new();
    for hold in all(connection, "group held jobs", &sql, &[], |columns| columns.json::<Hold>("hold"))? {
        match groups.iter_mut().find(|group| group.class == hold.class) {
            Some(group) => {
                group.jobs += 1;
                group.alike += u64::from(group.detail == hold.detail);
            }
            None => {
                let Hold { class, detail, since, .. } = hold;
                groups.push(HoldGroup { class, detail, alike: 1, jobs: 1, since })
            }
        }
    }
    Ok(groups)
}

/// The servers with pending cleanup, by the partial index of them.
fn cleanup(connection: &Connection) -> Result<Option<CleanupGroup>, StoreError> {
    const OPERATION: &str = "count servers with pending cleanup";
    let serials = all(connection, OPERATION, &cleanup_sql(), &[], |columns| {
        Ok((columns.parse("serial", str::parse::<Serial>)?, columns.time_opt("ended")?))
    })?;
    Ok((!serials.is_empty()).then(|| CleanupGroup {
        servers: serials.len() as u64,
        named: serials.iter().take(MAX_NAMED).map(|(serial, _)| serial.clone()).collect(),
        since: serials.iter().filter_map(|(_, ended)| *ended).min(),
    }))
}

/// The servers with pending cleanup by name, each with the time at which its job ended.
pub(super) fn cleanup_sql() -> String {
    format!(
        "SELECT serial, (SELECT updated_at FROM runs WHERE runs.id = {job}) AS ended
         FROM server_observed WHERE pending_cleanup IS NOT NULL ORDER BY serial",
        job = field("pending_cleanup", "job_id")
    )
}

/// Queued runs by what keeps them from their start: the first that applies, as `explain` says it.
fn blocked(connection: &Connection, pressure: bool) -> Result<Vec<BlockedGroup>, StoreError> {
    // A tree holds all of its locks or none, so it wants its server too while it waits for a permit of a limit. It waits for the
    // server only if another tree has that. The limits are of a batch, a site, a kind of job, or a permit.
    const LOCK: &str = "CASE
         WHEN EXISTS (SELECT 1 FROM locks JOIN locks AS other ON other.resource = locks.resource AND other.held = 1
             WHERE locks.root = runs.root AND locks.held = 0 AND locks.resource NOT GLOB 'batch/*'
             AND locks.resource NOT GLOB 'site/*' AND locks.resource NOT GLOB 'parallel/*'
             AND locks.resource NOT GLOB 'permit/*') THEN 'lock'
         WHEN EXISTS (SELECT 1 FROM locks WHERE locks.root = runs.root AND locks.held = 0) THEN 'limit'
         ELSE 'place' END";
    let sql = format!(
        "SELECT blocker, count(*) AS jobs, min(updated_at) AS since, min(deadline_at) AS next_deadline FROM
             (SELECT {STATE} AS state, coalesce({gate}, {LOCK}) AS blocker, updated_at, deadline_at FROM runs
              WHERE phase <> 'ended' AND parent IS NULL)
         WHERE state = 'queued' GROUP BY 1 ORDER BY jobs DESC, 1",
        gate = name_of_gate(pressure),
    );
    all(connection, "group queued jobs", &sql, &[], |columns| {
        Ok(BlockedGroup {
            blocker: columns.get("blocker")?,
            jobs: columns.count("jobs")?,
            since: columns.time("since")?,
            next_deadline: columns.time("next_deadline")?,
        })
    })
}

/// Stopped batches with queued jobs.
pub(super) fn stopped_sql() -> String {
    // From the open runs: a batch that stopped keeps its gate after all of its jobs have ended.
    format!(
        "WITH waiting AS MATERIALIZED
             (SELECT batch, count(*) AS queued FROM runs INDEXED BY idx_runs_open
              WHERE phase <> 'ended' AND phase = 'queued' AND parent IS NULL AND batch <> '' GROUP BY batch)
         SELECT id, gate_since, failures, queued FROM waiting JOIN batches ON batches.id = waiting.batch
         WHERE gate = 'stopped' ORDER BY gate_since DESC LIMIT {MAX_STOPPED}"
    )
}

fn stopped(connection: &Connection) -> Result<Vec<StoppedBatch>, StoreError> {
    all(connection, "read stopped batches", &stopped_sql(), &[], |columns| {
        Ok(StoppedBatch {
            id: columns.parse("id", str::parse)?,
            since: columns.time("gate_since")?,
            failures: columns.get("failures")?,
            queued: columns.count("queued")?,
        })
    })
}

fn ended(connection: &Connection, since: &str) -> Result<Vec<EndedGroup>, StoreError> {
    let sql = "SELECT substr(updated_at, 1, 13) || ':00:00.000Z' AS hour, outcome, count(*) AS jobs FROM runs
               WHERE phase = 'ended' AND parent IS NULL AND updated_at >= ?1 GROUP BY 1, 2 ORDER BY 1, 2";
    all(connection, "count ended jobs", sql, params![since], |columns| {
        Ok(EndedGroup {
            hour: columns.time("hour")?,
            outcome: columns.parse("outcome", super::rows::named(Outcome::parse))?,
            jobs: columns.count("jobs")?,
        })
    })
}

/// Servers by rack and state.
pub(super) fn racks_sql() -> String {
    format!(
        // SQLite takes the state of a group from the row that has the minimum, the worst. The sign keeps it from the index of the servers,
        // which has all ended runs.
        "WITH worst AS MATERIALIZED
             (SELECT server, min(instr('held waiting working queued', {STATE})) AS rank, {STATE} AS state FROM runs
              WHERE phase <> 'ended' AND parent IS NULL AND +server IS NOT NULL GROUP BY server)
         SELECT coalesce(json_extract(labels, '$.site'), '') AS site, coalesce(json_extract(labels, '$.rack'), '') AS rack,
                coalesce((SELECT worst.state FROM worst WHERE worst.server = servers.serial),
                         (SELECT outcome FROM runs
                          WHERE runs.server = servers.serial AND parent IS NULL AND phase = 'ended' AND workflow = 'provision'
                          ORDER BY runs.rowid DESC LIMIT 1), '') AS state,
                count(*) AS servers
         FROM servers GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT {}",
        MAX_GROUPS * 8
    )
}

fn racks(connection: &Connection) -> Result<Vec<RackGroup>, StoreError> {
    all(connection, "count servers by rack", &racks_sql(), &[], |columns| {
        Ok(RackGroup {
            site: columns.get("site")?,
            rack: columns.get("rack")?,
            state: columns.get("state")?,
            servers: columns.count("servers")?,
        })
    })
}
