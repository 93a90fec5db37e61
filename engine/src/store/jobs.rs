//! Jobs: the public rows of runs of the workflow `provision` (docs/seeds.md S000-41).

use rusqlite::{Connection, params};

use super::events::last_events_json;
use super::job_cache::{CacheTicket, CachedJob};
use super::rows::{self, Columns, RUN, ReadSnapshot, all, execute, first};
use super::{Store, StoreError};
use crate::model::{
    BatchId, Job, JobStatus, JsonText, NewJob, Outcome, RunId, Serial, StepPhase, StepSummary, Time,
};

/// The columns that [`job`] reads besides those of the run. Status and times come from the run.
const JOB: &str = "jobs.server_serial, jobs.recipe_schema_id, jobs.task_iso_sha256, jobs.task_iso_path, \
     jobs.maintenance_iso_url, jobs.webhook_token_hash, jobs.labels, jobs.retry_of, jobs.batch, \
     (SELECT json_group_array(step) FROM run_steps WHERE run_steps.run = jobs.id \
      AND (phase = 'stuck' OR stage = 'finish' AND phase = 'failed')) AS cleanup_remaining";

/// A filter for a list of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Only jobs in this public state.
    pub status: Option<JobStatus>,
    /// Only jobs with this outcome.
    pub outcome: Option<Outcome>,
    /// Only jobs of this server.
    pub server: Option<Serial>,
    /// Only jobs with a failure of this class.
    pub failure_class: Option<String>,
    /// Only jobs of this batch.
    pub batch: Option<BatchId>,
    /// The maximum of jobs to return.
    pub limit: u32,
    /// Only jobs after this one in the order of the list (newest first).
    pub after: Option<(Time, RunId)>,
}

/// One page of a list of jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<Job>,
    /// The last job of this page, as `after` of the next page; `None` on the last page.
    pub next: Option<(Time, RunId)>,
}

/// A job with its steps and latest events, from one read transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDetail {
    /// The job.
    pub job: Job,
    /// The steps in the order of the plan; empty when they cannot be read.
    pub steps: Vec<StepSummary>,
    /// The latest events in the order of the log, each the JSON of an [`Event`](crate::model::Event).
    pub events: Vec<JsonText>,
}

impl Store {
    /// The cached document of a job.
    ///
    /// # Errors
    /// When the job is not cached: a ticket to cache it. The ticket must be taken before the rows are read.
    pub fn cached_job(&self, run: RunId) -> Result<CachedJob, CacheTicket> {
        self.writer.cache().cached(run)
    }

    /// The job with its steps and at most `events` of its latest events.
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
    pub async fn job(&self, id: RunId) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "read a job";
        self.read(OPERATION, move |connection| find(connection, OPERATION, id)).await
    }

    /// The newest job of a server.
    pub async fn newest_job(&self, server: &Serial) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "read the newest job of a server";
        let server = server.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM jobs JOIN runs ON runs.id = jobs.id WHERE jobs.server_serial = ?1
                     ORDER BY jobs.created_at DESC, jobs.id DESC LIMIT 1"
                ),
                &[&server.as_str()],
                job,
            )
        })
        .await
    }

    /// The job of a server that has the report token with this hash.
    pub async fn job_of_token(&self, server: &Serial, token_hash: &str) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "find a job by its report token";
        let (server, token_hash) = (server.clone(), token_hash.to_owned());
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM jobs JOIN runs ON runs.id = jobs.id
                     WHERE jobs.server_serial = ?1 AND jobs.webhook_token_hash = ?2"
                ),
                params![server.as_str(), token_hash],
                job,
            )
        })
        .await
    }

    /// One page of jobs, the newest first.
    pub async fn jobs(&self, filter: JobFilter) -> Result<JobPage, StoreError> {
        const OPERATION: &str = "list jobs";
        self.read(OPERATION, move |connection| {
            let (after_time, after_id) = match filter.after {
                Some((time, id)) => (Some(time.to_string()), Some(id.to_string())),
                None => (None, None),
            };
            let mut jobs = all(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM jobs JOIN runs ON runs.id = jobs.id
                     WHERE (?1 IS NULL OR jobs.status = ?1) AND (?2 IS NULL OR jobs.outcome = ?2)
                       AND (?3 IS NULL OR jobs.server_serial = ?3) AND (?4 IS NULL OR runs.failure_class = ?4)
                       AND (?5 IS NULL OR (jobs.created_at, jobs.id) < (?5, ?6))
                       AND (?8 IS NULL OR jobs.batch = ?8)
                     ORDER BY jobs.created_at DESC, jobs.id DESC LIMIT ?7"
                ),
                params![
                    filter.status.map(JobStatus::as_str),
                    filter.outcome.map(Outcome::as_str),
                    filter.server.as_ref().map(Serial::as_str),
                    filter.failure_class,
                    after_time,
                    after_id,
                    i64::from(filter.limit) + 1,
                    filter.batch.map(|batch| batch.to_string())
                ],
                job,
            )?;
            let more = jobs.len() > filter.limit as usize;
            jobs.truncate(filter.limit as usize);
            let next = jobs.last().filter(|_| more).map(|job| (job.run.created_at, job.run.id));
            Ok(JobPage { jobs, next })
        })
        .await
    }

    /// The number of jobs in each public state.
    pub async fn job_counts(&self) -> Result<Vec<(JobStatus, u64)>, StoreError> {
        const OPERATION: &str = "count jobs";
        self.read(OPERATION, |connection| {
            all(
                connection,
                OPERATION,
                "SELECT status, count(*) AS jobs FROM jobs GROUP BY status",
                &[],
                |columns| {
                    let status = columns.parse("status", |name| {
                        JobStatus::parse(name).ok_or_else(|| format!("unknown {name:?}"))
                    })?;
                    Ok((status, columns.count("jobs")?))
                },
            )
        })
        .await
    }
}

fn find(connection: &Connection, operation: &'static str, id: RunId) -> Result<Option<Job>, StoreError> {
    first(
        connection,
        operation,
        &format!("SELECT {RUN}, {JOB} FROM jobs JOIN runs ON runs.id = jobs.id WHERE jobs.id = ?1"),
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
        "SELECT step, attempt, phase, output, started_at, ended_at
         FROM run_steps WHERE run = ?1 ORDER BY stage DESC, idx",
        &[&id.to_string()],
        |columns| {
            Ok(StepSummary {
                name: columns.get("step")?,
                phase: columns.parse("phase", rows::named(StepPhase::parse))?,
                attempt: columns.get("attempt")?,
                started_at: columns.time("started_at")?,
                ended_at: columns.time_opt("ended_at")?,
                output: columns.parse("output", JsonText::parse)?,
            })
        },
    )
}

fn job(columns: &Columns<'_>) -> Result<Job, StoreError> {
    let run = rows::run(columns)?;
    Ok(Job {
        status: JobStatus::of(run.phase, run.outcome),
        failed_step: run.failure.as_ref().map(|failure| failure.step.clone()),
        server: columns.parse("server_serial", str::parse)?,
        recipe_schema_id: columns.get("recipe_schema_id")?,
        task_iso_sha256: columns.get("task_iso_sha256")?,
        task_iso_path: columns.get("task_iso_path")?,
        maintenance_iso_url: columns.get("maintenance_iso_url")?,
        webhook_token_hash: columns.get("webhook_token_hash")?,
        labels: columns.json("labels")?,
        retry_of: columns.parse_opt("retry_of", str::parse)?,
        batch: columns.parse_opt("batch", str::parse)?,
        cleanup_remaining: columns.json("cleanup_remaining")?,
        run,
    })
}

/// Writes the row of a new job.
pub(super) fn insert(connection: &Connection, id: RunId, job: &NewJob, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "create a job";
    execute(
        connection,
        OPERATION,
        "INSERT INTO jobs (id, server_serial, status, recipe_json, created_at, updated_at, maintenance_iso_url,
                           recipe_schema_id, request_sha256, idempotency_key, webhook_token_hash, labels, retry_of,
                           batch)
         VALUES (?1, ?2, 'queued', ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            id.to_string(),
            job.server.as_str(),
            job.recipe_json,
            now.to_string(),
            job.maintenance_iso_url,
            job.recipe_schema_id,
            job.request_sha256,
            job.idempotency_key,
            job.webhook_token_hash,
            rows::to_json(OPERATION, &job.labels)?,
            job.retry_of.map(|id| id.to_string()),
            job.batch.map(|id| id.to_string())
        ],
    )
    .map(drop)
}
