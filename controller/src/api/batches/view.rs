//! The JSON of a batch.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::error::ErrorBody;
use super::super::openapi::types;
use engine::model::{Batch, BatchId, JobStatus, Outcome, RunId, Time};
use engine::store::JobCount;

/// A batch with its progress.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Batch")]
pub(in crate::api) struct BatchView {
    #[schemars(with = "types::BatchId")]
    batch_id: BatchId,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    /// The user who created the batch.
    created_by: String,
    /// The maximum of jobs of the batch that run at once.
    max_parallel: Option<u32>,
    /// The number of rows in the request.
    total: u32,
    /// The number of jobs that were created.
    jobs: u64,
    /// Whether every job has ended.
    complete: bool,
    progress: Progress,
}

/// The jobs of a batch by state.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchProgress")]
struct Progress {
    /// Jobs that have not begun.
    queued: u64,
    /// Jobs that have begun and not ended.
    running: u64,
    /// Ended jobs with outcome `succeeded`.
    succeeded: u64,
    /// Ended jobs with outcome `failed`.
    failed: u64,
    /// Ended jobs with outcome `cancelled`.
    cancelled: u64,
}

/// One page of batches.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchPage")]
pub(in crate::api) struct BatchPage {
    pub(super) batches: Vec<BatchView>,
    /// Always null: only the newest batches are listed.
    pub(super) next: Option<String>,
}

/// A created batch with one result per row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedBatch")]
pub(in crate::api) struct CreatedBatchView {
    #[serde(flatten)]
    pub(super) batch: BatchView,
    /// The number of rows that have a job.
    pub(super) accepted: usize,
    /// The number of rows that were refused.
    pub(super) refused: usize,
    /// The results in the order of the rows.
    pub(super) rows: Vec<RowView>,
}

/// The result of a row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchRowResult")]
pub(in crate::api) struct RowView {
    /// The position of the row in the request, from 0.
    pub(super) index: usize,
    /// The serial number as the request has it.
    pub(super) server_serial: Option<String>,
    /// The job of the row; null if the row was refused.
    #[schemars(with = "Option<types::JobId>")]
    pub(super) job_id: Option<RunId>,
    pub(super) result: RowResult,
    /// Why the row was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorBody>,
}

/// The result of a row in one word.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::api) enum RowResult {
    /// A job was created.
    Accepted,
    /// An earlier request with the same idempotency key created the job.
    Exists,
    /// No job was created.
    Refused,
}

/// A batch after a cancel.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CancelledBatch")]
pub(in crate::api) struct CancelledBatchView {
    #[serde(flatten)]
    pub(super) batch: BatchView,
    /// The number of jobs that this request cancels.
    pub(super) cancelled_now: u64,
}

impl BatchView {
    /// The JSON of a batch with its progress.
    pub(super) fn of(batch: &Batch, counts: &[JobCount]) -> Self {
        let of = |wanted: &dyn Fn(&JobCount) -> bool| -> u64 {
            counts.iter().filter(|count| wanted(count)).map(|count| count.jobs).sum()
        };
        let status = |status: JobStatus| of(&|count| count.status == status);
        let ended = |outcome: Outcome| {
            of(&|count| count.status == JobStatus::Complete && count.outcome == Some(outcome))
        };
        let jobs = of(&|_| true);
        Self {
            batch_id: batch.id,
            created_at: batch.created_at,
            created_by: batch.created_by.clone(),
            max_parallel: batch.max_parallel,
            total: batch.total,
            jobs,
            complete: jobs > 0 && status(JobStatus::Complete) == jobs,
            progress: Progress {
                queued: status(JobStatus::Queued),
                running: jobs - status(JobStatus::Queued) - status(JobStatus::Complete),
                succeeded: ended(Outcome::Succeeded),
                failed: ended(Outcome::Failed),
                cancelled: ended(Outcome::Cancelled),
            },
        }
    }
}
