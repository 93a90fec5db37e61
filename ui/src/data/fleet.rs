//! What the API returns for many: batches, selections of jobs, imports of servers.

use jiff::Timestamp;
use serde::Deserialize;

use super::error::ErrorBody;

/// A batch with its progress.
#[derive(Clone, Debug, Deserialize)]
pub struct BatchJson {
    /// The id.
    pub batch_id: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// The maximum of jobs that run at once.
    pub max_parallel: Option<u32>,
    /// The number of first jobs that must succeed before the others start.
    #[serde(default)]
    pub canary: u32,
    /// The number of failures after which no further job starts.
    #[serde(default)]
    pub stop_after: Option<u32>,
    /// The batch whose failed jobs it repeats.
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
    /// Not begun.
    pub queued: u64,
    /// Under way.
    pub running: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
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
    /// Since when.
    pub since: Timestamp,
    /// The number of failures.
    pub failures: u32,
    /// What to do.
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
}

/// What some failed jobs have in common.
#[derive(Clone, Debug, Deserialize)]
pub struct CauseJson {
    /// The id, by which a retry names it.
    #[serde(default)]
    pub cause: String,
    /// The class of the failures.
    pub class: String,
    /// The step that failed.
    pub step: String,
    /// What happened.
    pub summary: String,
    /// What to do.
    pub next_action: String,
    /// The number of jobs.
    pub jobs: u64,
    /// How many of them a newer installation of their server has followed.
    #[serde(default)]
    pub superseded: u64,
    /// The first of them.
    pub first: Vec<JobOfServer>,
}

/// A job with its server.
#[derive(Clone, Debug, Deserialize)]
pub struct JobOfServer {
    /// The job.
    pub job_id: String,
    /// Its server.
    pub server_serial: Option<String>,
}

/// What a filter selects.
#[derive(Clone, Debug, Deserialize)]
pub struct SelectionJson {
    /// The number of jobs.
    pub count: u64,
    /// The number of jobs that a retry leaves out, because a newer installation of their server exists.
    #[serde(default)]
    pub superseded: u64,
    /// The first of them.
    pub first: Vec<JobOfServer>,
}

/// A created batch with a result per row.
#[derive(Clone, Debug, Deserialize)]
pub struct CreatedBatchJson {
    /// The id.
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
