//! Batches, selections of jobs and imports of servers as the API returns them.

use jiff::Timestamp;
use serde::Deserialize;

use super::error::ErrorBody;

/// A batch with its progress.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchJson {
    /// The id of the batch.
    pub batch_id: String,
    /// The time at which the batch was created.
    pub created_at: Timestamp,
    /// The user who created the batch.
    pub created_by: String,
    /// The maximum of jobs that run at once.
    pub max_parallel: Option<u32>,
    /// The number of first jobs that must succeed before the others start.
    #[serde(default)]
    pub canary: u32,
    /// The number of failures after which no further job starts.
    #[serde(default)]
    pub stop_after: Option<u32>,
    /// The batch whose failed jobs this batch repeats.
    #[serde(default)]
    pub retry_of: Option<String>,
    /// Why no further job starts now.
    #[serde(default)]
    pub stop: Option<BatchStopJson>,
    /// The number of jobs.
    pub jobs: u64,
    /// Whether every job has ended.
    pub complete: bool,
    /// The jobs by state.
    pub progress: BatchProgress,
}

/// The jobs of a batch by state.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchProgress {
    /// The number of jobs that have not begun.
    pub queued: u64,
    /// The number of jobs that have begun and have not ended.
    pub running: u64,
    /// The number of jobs that succeeded.
    pub succeeded: u64,
    /// The number of jobs that failed.
    pub failed: u64,
    /// The number of jobs that were cancelled.
    pub cancelled: u64,
}

/// The newest batches.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchPageJson {
    /// The batches.
    pub batches: Vec<BatchJson>,
    /// The cursor of the next page.
    #[serde(default)]
    pub next: Option<String>,
}

/// Why no further job of a batch starts.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchStopJson {
    /// `canary` or `stopped`.
    pub reason: String,
    /// The time since which no further job starts.
    pub since: Timestamp,
    /// The number of failures.
    pub failures: u32,
    /// The next action of an operator.
    pub next_action: String,
}

/// A batch with the causes of its failures.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchDetail {
    /// The batch.
    #[serde(flatten)]
    pub batch: BatchJson,
    /// The causes, the one with the most jobs first.
    pub causes: Vec<CauseJson>,
    /// The number of failed jobs whose causes are left out.
    pub more_failed: u64,
    /// The number of failed jobs that a retry repeats.
    #[serde(default)]
    pub retriable: u64,
    /// The digest of those jobs, which a retry sends back.
    #[serde(default)]
    pub selection: String,
}

/// A cause of failures: what some failed jobs of a batch have in common.
#[derive(Clone, Debug, Deserialize)]
pub struct CauseJson {
    /// The id of the cause, by which a retry names it.
    #[serde(default)]
    pub cause: String,
    /// The class of the failures.
    pub class: String,
    /// The step that failed.
    pub step: String,
    /// The summary of the first of the jobs.
    pub summary: String,
    /// The next action of an operator.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of jobs that a newer installation of their server has followed, so that a retry leaves them out.
    #[serde(default)]
    pub superseded: u64,
    /// The digest of the jobs of this cause that a retry repeats.
    #[serde(default)]
    pub selection: String,
    /// The first of the jobs, at most 20.
    pub first: Vec<JobOfServer>,
}

/// A job with its server.
#[derive(Clone, Debug, Deserialize)]
pub struct JobOfServer {
    /// The job.
    pub job_id: String,
    /// The serial number of the server; `None` for a job without a server.
    pub server_serial: Option<String>,
}

/// The jobs that a filter selects.
#[derive(Clone, Debug, Deserialize)]
pub struct SelectionJson {
    /// The number of jobs.
    pub count: u64,
    /// The digest of the jobs, which the confirmation sends back.
    #[serde(default)]
    pub selection: String,
    /// The number of jobs that a retry leaves out, because a newer installation of their server exists.
    #[serde(default)]
    pub superseded: u64,
    /// The first of the selected jobs, at most 20.
    pub first: Vec<JobOfServer>,
}

/// A created batch with a result per row.
#[derive(Clone, Debug, Deserialize)]
pub struct CreatedBatchJson {
    /// The id of the batch.
    pub batch_id: String,
    /// Rows that have a job.
    pub accepted: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// The results in the order of the rows.
    pub rows: Vec<BatchRow>,
}

/// The result of a row of a batch.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchRow {
    /// The serial number.
    pub server_serial: Option<String>,
    /// `accepted`, `exists` or `refused`.
    pub result: String,
    /// Why the row was refused.
    pub error: Option<ErrorBody>,
}

/// The results of an import of servers.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerImport {
    /// Rows whose server is new.
    pub created: u64,
    /// Rows whose server is registered with equal values.
    pub exists: u64,
    /// Rows that were refused.
    pub refused: u64,
    /// The results in the order of the rows.
    pub rows: Vec<ImportRow>,
}

/// The result of a row of an import.
#[derive(Clone, Debug, Deserialize)]
pub struct ImportRow {
    /// The position of the row, from 0.
    pub index: u64,
    /// The serial number.
    pub serial: Option<String>,
    /// `created`, `exists` or `refused`.
    pub result: String,
    /// Why the row was refused.
    pub error: Option<ErrorBody>,
}
