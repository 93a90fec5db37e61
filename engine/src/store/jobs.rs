//! Jobs: the runs of every workflow with what their callers attached, and the rows of `jobs`, which only runs of the workflow
//! `provision` have (docs/seeds.md S000-41).

use std::collections::BTreeMap;

use rusqlite::{Connection, ToSql, params};

use super::events::last_events_json;
use super::job_cache::{CacheTicket, CachedJob};
use super::rows::{self, Columns, RUN, ReadSnapshot, all, execute, first};
use super::{Store, StoreError};
use crate::model::{
    BatchId, Job, JobStatus, JsonText, NewJob, Outcome, PROVISION, Phase, ProvisionRecord, RunId, Serial,
    StepPhase, StepSummary, Time,
};

/// The columns that [`job`] reads besides those of the run. The state comes from the run.
const JOB: &str = "runs.batch, run_inputs.labels, run_inputs.retry_of, \
     (SELECT json_group_array(step) FROM run_steps WHERE run_steps.run = runs.id \
      AND (phase = 'stuck' OR stage = 'finish' AND phase = 'failed')) AS cleanup_remaining, \
     jobs.server_serial, jobs.recipe_schema_id, jobs.task_iso_sha256, jobs.task_iso_path, \
     open_text(jobs.maintenance_iso_url, 'jobs/' || jobs.id || '/maintenance_iso_url') AS maintenance_iso_url, \
     jobs.webhook_token_hash";
/// The location of an image that was sealed with another master key.
const UNOPENED: &str = "(sealed with another master key)";
/// The tables of [`JOB`].
const TABLES: &str = "runs JOIN run_inputs ON run_inputs.run = runs.id LEFT JOIN jobs ON jobs.id = runs.id";

/// A filter for a list of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Only jobs in this public state.
    pub status: Option<JobStatus>,
    /// Only jobs with this outcome.
    pub outcome: Option<Outcome>,
    /// Only jobs of this workflow.
    pub workflow: Option<String>,
    /// Only jobs of this server.
    pub server: Option<Serial>,
    /// Only jobs with a failure of this class.
    pub failure_class: Option<String>,
    /// Only jobs of this batch.
    pub batch: Option<BatchId>,
    /// Only jobs that this job started as its children. Without it, jobs that no other job started.
    pub parent: Option<RunId>,
    /// Only jobs with all of these labels.
    pub labels: Vec<(String, String)>,
    /// Only jobs of servers with all of these labels.
    pub server_labels: BTreeMap<String, String>,
    /// The maximum of jobs to return.
    pub limit: u32,
    /// Only jobs after this one in the order of the list (newest first).
    pub after: Option<(Time, RunId)>,
}

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

    /// The labels of the server of a run; `None` for an unknown run and for one without a server.
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

    /// The newest installation of a server.
    pub async fn newest_installation(&self, server: &Serial) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "read the newest installation of a server";
        let server = server.clone();
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM {TABLES} WHERE jobs.server_serial = ?1
                     ORDER BY jobs.created_at DESC, jobs.id DESC LIMIT 1"
                ),
                &[&server.as_str()],
                job,
            )
        })
        .await
    }

    /// The installation of a server that has the report token with this hash.
    pub async fn job_of_token(&self, server: &Serial, token_hash: &str) -> Result<Option<Job>, StoreError> {
        const OPERATION: &str = "find a job by its report token";
        let (server, token_hash) = (server.clone(), token_hash.to_owned());
        self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                &format!(
                    "SELECT {RUN}, {JOB} FROM {TABLES}
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
            let (conditions, values) = conditions(&filter);
            let one_more = i64::from(filter.limit) + 1;
            let mut values: Vec<&dyn ToSql> = values.iter().map(|value| &**value).collect();
            values.push(&one_more);
            let sql = format!(
                "SELECT {RUN}, {JOB} FROM {TABLES} WHERE {conditions}
                 ORDER BY runs.created_at DESC, runs.id DESC LIMIT ?"
            );
            let mut jobs = all(connection, OPERATION, &sql, &values, job)?;
            let more = jobs.len() > filter.limit as usize;
            jobs.truncate(filter.limit as usize);
            let next = jobs.last().filter(|_| more).map(|job| (job.run.created_at, job.run.id));
            Ok(JobPage { jobs, next })
        })
        .await
    }

    /// The number of jobs in each public state.
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

impl Store {
    /// The number of jobs that have not ended although their deadline has passed.
    pub async fn overdue_jobs(&self, now: Time) -> Result<u64, StoreError> {
        const OPERATION: &str = "count overdue jobs";
        let count = self.read(OPERATION, move |connection| {
            first(
                connection,
                OPERATION,
                "SELECT count(*) AS jobs FROM runs WHERE parent IS NULL AND phase <> 'ended' AND deadline_at < ?1",
                params![now.to_string()],
                |columns| columns.get::<i64>("jobs"),
            )
        });
        Ok(count.await?.and_then(|jobs| u64::try_from(jobs).ok()).unwrap_or(0))
    }
}

/// The SQL condition of a filter, with its parameters in order. Only what is filtered is in the text, so that SQLite chooses
/// the index of it.
fn conditions(filter: &JobFilter) -> (String, Vec<Box<dyn ToSql>>) {
    let (mut texts, mut values) = (Vec::new(), Vec::<Box<dyn ToSql>>::new());
    match filter.status {
        None => {}
        Some(JobStatus::Queued) => texts.push("runs.phase = 'queued'"),
        Some(JobStatus::Provisioning) => {
            texts.push("runs.phase IN ('running', 'waiting', 'held') AND runs.workflow = ?");
            values.push(Box::new(PROVISION));
        }
        Some(JobStatus::Running) => {
            texts.push("runs.phase IN ('running', 'waiting', 'held') AND runs.workflow <> ?");
            values.push(Box::new(PROVISION));
        }
        Some(JobStatus::Succeeded) => {
            texts.push("runs.phase IN ('unwinding', 'finishing') AND runs.outcome = 'succeeded'");
        }
        Some(JobStatus::Failed) => {
            texts.push("runs.phase IN ('unwinding', 'finishing') AND runs.outcome <> 'succeeded'");
        }
        Some(JobStatus::Complete) => texts.push("runs.phase = 'ended'"),
    }
    let mut equal = |text: &'static str, value: Option<String>| {
        if let Some(value) = value {
            texts.push(text);
            values.push(Box::new(value));
        }
    };
    equal("runs.outcome = ?", filter.outcome.map(|outcome| outcome.as_str().to_owned()));
    equal("runs.workflow = ?", filter.workflow.clone());
    equal("runs.server = ?", filter.server.as_ref().map(Serial::to_string));
    equal("runs.failure_class = ?", filter.failure_class.clone());
    equal("runs.batch <> '' AND runs.batch = ?", filter.batch.map(|batch| batch.to_string()));
    equal("runs.parent = ?", filter.parent.map(|parent| parent.to_string()));
    if filter.parent.is_none() {
        texts.push("runs.parent IS NULL");
    }
    for (key, value) in &filter.labels {
        texts.push(
            "EXISTS (SELECT 1 FROM json_each(run_inputs.labels) AS label WHERE label.key = ? AND label.value = ?)",
        );
        values.push(Box::new(key.clone()));
        values.push(Box::new(value.clone()));
    }
    for (key, value) in &filter.server_labels {
        texts.push(
            "EXISTS (SELECT 1 FROM servers, json_each(servers.labels) AS label
                     WHERE servers.serial = runs.server AND label.key = ? AND label.value = ?)",
        );
        values.push(Box::new(key.clone()));
        values.push(Box::new(value.clone()));
    }
    if let Some((time, id)) = filter.after {
        texts.push("(runs.created_at, runs.id) < (?, ?)");
        values.push(Box::new(time.to_string()));
        values.push(Box::new(id.to_string()));
    }
    (texts.join(" AND "), values)
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
        webhook_token_hash: columns.get("webhook_token_hash")?,
    }))
}

/// Writes the row of a new provisioning job.
pub(super) fn insert(connection: &Connection, id: RunId, job: &NewJob, now: Time) -> Result<(), StoreError> {
    const OPERATION: &str = "create a job";
    execute(
        connection,
        OPERATION,
        "INSERT INTO jobs (id, server_serial, status, recipe_json, created_at, updated_at, maintenance_iso_url,
                           recipe_schema_id, webhook_token_hash)
         VALUES (?1, ?2, 'queued', seal_text(?3, 'jobs/' || ?1 || '/recipe_json'), ?4, ?4,
                 seal_text(?5, 'jobs/' || ?1 || '/maintenance_iso_url'), ?6, ?7)",
        params![
            id.to_string(),
            job.server.as_str(),
            job.recipe.json,
            now.to_string(),
            job.maintenance_iso_url,
            job.recipe.schema_id,
            job.webhook_token_hash
        ],
    )
    .map(drop)
}
