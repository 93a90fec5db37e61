//! Jobs: the runs of every workflow with what their callers attached, and the rows of `jobs`, which only runs of the workflow
//! `provision` have (docs/seeds.md S000-41).

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::events::last_events_json;
use super::row_cache::{CacheTicket, CachedJob};
use super::rows::{self, Columns, RUN, ReadSnapshot, all, execute, first};
use super::{Store, StoreError};
use model::{
    Job, JobStatus, JsonText, NewJob, Outcome, Phase, ProvisionRecord, RunId, Serial, StepPhase, StepSummary,
    Time,
};

/// The columns that [`job`] reads besides those of the run. The state comes from the run.
pub(super) const JOB: &str = "runs.batch, run_inputs.labels, run_inputs.retry_of, \
     (SELECT json_group_array(step) FROM run_steps WHERE run_steps.run = runs.id \
      AND (phase = 'stuck' OR stage = 'finish' AND phase = 'failed')) AS cleanup_remaining, \
     jobs.server_serial, jobs.recipe_schema_id, jobs.task_iso_sha256, jobs.task_iso_path, \
     open_text(jobs.maintenance_iso_url, 'jobs/' || jobs.id || '/maintenance_iso_url') AS maintenance_iso_url, \
     jobs.report_token_hash";
/// The location of an image that was sealed with another master key.
const UNOPENED: &str = "(sealed with another master key)";
/// The tables of [`JOB`].
pub(super) const TABLES: &str =
    "runs JOIN run_inputs ON run_inputs.run = runs.id LEFT JOIN jobs ON jobs.id = runs.id";

/// The number of jobs with one public state and outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCount {
    /// The public state.
    pub status: JobStatus,
    /// The outcome, if it is known.
    pub outcome: Option<Outcome>,
    /// The number of jobs.
    pub jobs: u64,
}

/// A job with its steps and latest events, from one read transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDetail {
    /// The job.
    pub job: Job,
    /// The steps in the order of the plan; empty when they cannot be read.
    pub steps: Vec<StepSummary>,
    /// The latest events in the order of the log, each the JSON of an [`Event`](model::Event).
    pub events: Vec<JsonText>,
}

impl Store {
    /// The cached document of a job.
    ///
    /// # Errors
    /// When the job is not cached: a ticket to cache it. The ticket must be taken before the rows are read.
    pub fn cached_job(&self, run: RunId) -> Result<CachedJob, CacheTicket> {
        self.writer.cache().job(run)
    }

    /// The job with its steps and at most `events` of its latest events.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn job_detail(&self, id: RunId, events: u32) -> Result<Option<JobDetail>, StoreError> {
        const OPERATION: &str = "read a job and its events";
        self.read(OPERATION, move |connection| {
            let _snapshot = ReadSnapshot::begin(connection, OPERATION)?;
            let Some(job) = find(connection, OPERATION, id)? else { return Ok(None) };
            let steps = match steps(connection, OPERATION, id) {
                // The job is shown without steps; `explain` shows the reason.
                Err(error) if error.is_corrupt() => Vec::new(),
                other => other?,
            };
            Ok(Some(JobDetail { job, steps, events: last_events_json(connection, OPERATION, id, events)? }))
        })
        .await
    }

    /// The job with this id.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn job(&self, id: RunId) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "read a job";
        self.read(OPERATION, move |connection| find(connection, OPERATION, id)).await
    }

    /// The labels of the server of a run; `None` for an unknown run and for one without a server.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn server_labels_of_run(
        &self,
        run: RunId,
    ) -> Result<Option<BTreeMap<String, String>>, StoreError> {
        const OPERATION: &str = "read the labels of a job's server";
        self.read(OPERATION, move |connection| {
            let sql = "SELECT servers.labels AS labels FROM runs JOIN servers ON servers.serial = runs.server WHERE runs.id = ?1";
            first(connection, OPERATION, sql, &[&run.to_string()], |columns| columns.json("labels"))
        })
        .await
    }

    /// The installation of a server that was created last.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn newest_installation(&self, server: &Serial) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "read the newest installation of a server";
        let server = server.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM {TABLES} WHERE jobs.server_serial = ?1
                     ORDER BY jobs.rowid DESC LIMIT 1"
                ),
                &[&server.as_str()],
                job,
            )
        })
        .await
    }

    /// The installation of a server that has the report token with this hash.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn job_of_token(&self, server: &Serial, token_hash: &str) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "find a job by its report token";
        let (server, token_hash) = (server.clone(), token_hash.to_owned());
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM {TABLES}
                     WHERE jobs.server_serial = ?1 AND jobs.report_token_hash = ?2"
                ),
                params![server.as_str(), token_hash],
                job,
            )
        })
        .await
    }

    /// The number of characters by which each id differs from the ids of all other jobs, in the order of `ids`. Each costs two
    /// searches of the primary key: no id shares more characters with an id than its neighbours in order do.
    ///
    /// # Errors
    /// Returns an error when the database cannot be read.
    pub async fn distinct_lengths(&self, ids: Vec<RunId>) -> Result<Vec<usize>, StoreError> {
        const OPERATION: &str = "compare ids of jobs";
        self.read(OPERATION, move |connection| {
            let neighbour = |sql, id: &String| {
                first(connection, OPERATION, sql, &[id], |columns| Ok(columns.text("id")?.to_owned()))
            };
            let mut lengths = Vec::with_capacity(ids.len());
            for id in ids.iter().map(RunId::to_string) {
                let before = neighbour("SELECT id FROM runs WHERE id < ?1 ORDER BY id DESC LIMIT 1", &id)?;
                let after = neighbour("SELECT id FROM runs WHERE id > ?1 ORDER BY id LIMIT 1", &id)?;
                let shared = [before, after].into_iter().flatten().map(|other| shared_length(&id, &other));
                lengths.push((shared.max().unwrap_or(0) + 1).min(id.len()));
            }
            Ok(lengths)
        })
        .await
    }

    /// The number of jobs in each public state.
    ///
    /// # Errors
    /// When the database cannot be read, or a row has content that this version cannot read.
    pub async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        const OPERATION: &str = "count jobs";
        self.read(OPERATION, |connection| {
            all(
                connection,
                OPERATION,
                "SELECT workflow, phase, outcome, count(*) AS jobs FROM runs WHERE parent IS NULL
                 GROUP BY workflow, phase, outcome",
                &[],
                count,
            )
        })
        .await
    }
}

/// The numbers of jobs and batches that continue only when an operator acts, or should have ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NeedsOperator {
    /// Jobs that have not ended although their deadline has passed. A held job has no deadline.
    pub overdue_jobs: u64,
    /// Jobs that are held until an operator resumes or cancels them.
    pub held_jobs: u64,
    /// Batches that start no further job until an operator continues them.
    pub stopped_batches: u64,
}

impl Store {
    /// The numbers of jobs and batches that need an operator.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn needs_operator(&self, now: Time) -> Result<NeedsOperator, StoreError> {
        const OPERATION: &str = "count what needs an operator";
        let counted = self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT count(*) FILTER (WHERE hold IS NULL AND deadline_at < ?1) AS overdue,
                     count(*) FILTER (WHERE hold IS NOT NULL) AS held,
                     (SELECT count(*) FROM batches WHERE gate = 'stopped') AS stopped
                 FROM runs WHERE parent IS NULL AND phase <> 'ended'",
                params![now.to_string()],
                |columns| {
                    Ok(NeedsOperator {
                        overdue_jobs: columns.count("overdue")?,
                        held_jobs: columns.count("held")?,
                        stopped_batches: columns.count("stopped")?,
                    })
                },
            )
        });
        Ok(counted.await?.unwrap_or_default())
    }
}

/// How many characters two ids have in common at their beginning.
fn shared_length(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// The public state and number of a group of runs.
pub(super) fn count(columns: &Columns<'_>) -> Result<JobCount, StoreError> {
    let workflow = columns.text("workflow")?;
    let phase = columns.parse("phase", rows::named(Phase::parse))?;
    let outcome = columns.parse_opt("outcome", rows::named(Outcome::parse))?;
    Ok(JobCount { status: JobStatus::of(workflow, phase, outcome), outcome, jobs: columns.count("jobs")? })
}

fn find(connection: &Connection, operation: &'static str, id: RunId) -> Result<Option<Job>, StoreError> {
    first(
        connection,
        operation,
        &format!("SELECT {RUN}, {JOB} FROM {TABLES} WHERE runs.id = ?1"),
        &[&id.to_string()],
        job,
    )
}

/// The summaries of a job's steps, in the order of its plan.
fn steps(
    connection: &Connection,
    operation: &'static str,
    id: RunId,
) -> Result<Vec<StepSummary>, StoreError> {
    all(
        connection,
        operation,
        "SELECT step, key, attempt, phase, output, started_at, ended_at
         FROM run_steps WHERE run = ?1 ORDER BY stage DESC, idx",
        &[&id.to_string()],
        |columns| {
            Ok(StepSummary {
                name: columns.step()?,
                key: columns.get("key")?,
                phase: columns.parse("phase", rows::named(StepPhase::parse))?,
                attempt: columns.get("attempt")?,
                started_at: columns.time("started_at")?,
                ended_at: columns.time_opt("ended_at")?,
                output: columns.parse("output", JsonText::parse)?,
            })
        },
    )
}

pub(super) fn job(columns: &Columns<'_>) -> Result<Job, StoreError> {
    let run = rows::run(columns)?;
    let batch = columns.text("batch")?;
    let batch = match batch {
        "" => None,
        id => Some(id.parse().map_err(|why: uuid::Error| columns.corrupt("batch", why.to_string()))?),
    };
    Ok(Job {
        status: JobStatus::of(&run.workflow, run.phase, run.outcome),
        batch,
        labels: columns.json("labels")?,
        retry_of: columns.parse_opt("retry_of", str::parse)?,
        cleanup_remaining: columns.json("cleanup_remaining")?,
        provision: provision(columns)?,
        run,
    })
}

fn provision(columns: &Columns<'_>) -> Result<Option<ProvisionRecord>, StoreError> {
    let Some(server) = columns.parse_opt("server_serial", str::parse)? else { return Ok(None) };
    Ok(Some(ProvisionRecord {
        server,
        recipe_schema_id: columns.get("recipe_schema_id")?,
        task_iso_sha256: columns.get("task_iso_sha256")?,
        task_iso_path: columns.get("task_iso_path")?,
        // A job stays visible after the master key was lost.
        maintenance_iso_url: columns.text_opt("maintenance_iso_url")?.unwrap_or(UNOPENED).to_owned(),
        report_token_hash: columns.get("report_token_hash")?,
    }))
}

/// Writes the row of a new provisioning job.
pub(super) fn insert(connection: &Connection, id: RunId, job: &NewJob, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "create a job";
    execute(
        connection,
        OPERATION,
        "INSERT INTO jobs (id, server_serial, status, recipe_json, created_at, updated_at, maintenance_iso_url,
                           recipe_schema_id, report_token_hash)
         VALUES (?1, ?2, 'queued', seal_text(?3, 'jobs/' || ?1 || '/recipe_json'), ?4, ?4,
                 seal_text(?5, 'jobs/' || ?1 || '/maintenance_iso_url'), ?6, ?7)",
        params![
            id.to_string(),
            job.server.as_str(),
            job.recipe.json,
            now.to_string(),
            job.maintenance_iso_url,
            job.recipe.schema_id,
            job.report_token_hash
        ],
    )
    .map(drop)
}
