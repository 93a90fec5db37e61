//! The JSON of a batch.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::error::ErrorBody;
use super::super::openapi::types;
use model::{
    Batch, BatchId, BatchStopReason, Cause, FailureClass, JobStatus, Outcome, RunId, Serial, StepName, Time,
};
use store::JobCount;

/// A batch with its progress.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Batch")]
pub(crate) struct BatchView {
    #[schemars(with = "types::BatchId")]
    batch_id: BatchId,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    /// The user who created the batch.
    created_by: String,
    /// The maximum of jobs of the batch that run at once.
    max_parallel: Option<u32>,
    /// The number of rows, from the first, whose jobs must succeed before the others start.
    canary: u32,
    /// The number of failed jobs after which no further job starts.
    stop_after: Option<u32>,
    /// The batch whose failed jobs this one repeats.
    #[schemars(with = "Option<types::BatchId>")]
    retry_of: Option<BatchId>,
    /// Why no further job of the batch starts now; null while they start.
    stop: Option<StopView>,
    /// The number of rows in the request.
    total: u32,
    /// The number of jobs that were created.
    jobs: u64,
    /// Whether every job has ended, also when every row was refused.
    complete: bool,
    progress: Progress,
}

/// Why no further job of a batch starts.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchStop")]
struct StopView {
    /// `canary`: the canaries have not all succeeded yet. `stopped`: a canary did not succeed, or too many jobs failed.
    #[schemars(with = "types::BatchStopReason")]
    reason: BatchStopReason,
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// Failed jobs since the batch was created or continued.
    failures: u32,
    /// What an operator can do.
    next_action: String,
}

/// A batch with its failures, grouped by cause.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchDetail")]
pub(crate) struct BatchDetailView {
    #[serde(flatten)]
    pub(super) batch: BatchView,
    /// The causes of its failures, the one with the most jobs first.
    pub(super) causes: Vec<CauseView>,
    /// The number of failed jobs whose causes are left out.
    pub(super) more_failed: u64,
    /// The number of failed jobs that a retry repeats: those that no newer installation of their server has followed.
    pub(super) retriable: u64,
    /// A digest of the ids of those jobs, in hex, with which a retry is refused if it would repeat other jobs.
    pub(super) selection: String,
}

/// What some failed jobs have in common.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FailureCause")]
pub(crate) struct CauseView {
    /// The id of the cause, by which a retry names it.
    cause: String,
    /// The class of the failures.
    #[schemars(with = "String")]
    class: FailureClass,
    /// The step that failed.
    #[schemars(with = "String")]
    step: StepName,
    /// The summary of the first of the jobs. The others differ at most in their serial number and in words with digits.
    summary: String,
    /// What an operator should do next.
    next_action: String,
    /// The number of jobs.
    jobs: u64,
    /// How many of them a newer installation of their server has followed, so that a retry leaves them out.
    superseded: u64,
    /// A digest of the ids of the jobs of this cause that a retry repeats, in hex.
    selection: String,
    /// The first of the jobs, at most 20.
    first: Vec<FailedJobView>,
}

/// A failed job of a cause.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FailedJob")]
struct FailedJobView {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    #[schemars(with = "Option<types::SerialNumber>")]
    server_serial: Option<Serial>,
}

impl CauseView {
    /// The JSON of a cause; `selection` is the digest of its jobs that a retry repeats.
    pub(super) fn of(cause: Cause, selection: String) -> Self {
        let first = cause.first.into_iter();
        Self {
            cause: cause.id,
            class: cause.class,
            step: cause.step,
            summary: cause.summary,
            next_action: cause.next_action,
            jobs: cause.jobs,
            superseded: cause.superseded,
            selection,
            first: first.map(|(job_id, server_serial)| FailedJobView { job_id, server_serial }).collect(),
        }
    }
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
pub(crate) struct BatchPage {
    pub(super) batches: Vec<BatchView>,
    /// The cursor of the next page; null on the last.
    pub(super) next: Option<String>,
}

/// A created batch with one result per row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "CreatedBatch")]
pub(crate) struct CreatedBatchView {
    #[serde(flatten)]
    pub(super) batch: BatchView,
    /// The number of rows that have a job.
    pub(super) accepted: usize,
    /// The number of rows that were refused.
    pub(super) refused: usize,
    /// The number of jobs of a retry that have no row, because a newer installation of their server exists.
    pub(super) superseded: u64,
    /// The results in the order of the rows.
    pub(super) rows: Vec<RowView>,
}

/// The result of a row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BatchRowResult")]
pub(crate) struct RowView {
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
pub(crate) enum RowResult {
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
pub(crate) struct CancelledBatchView {
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
            canary: batch.canary,
            stop_after: batch.stop_after,
            retry_of: batch.retry_of,
            stop: batch.stop.map(|stop| StopView {
                reason: stop.reason,
                since: stop.since,
                failures: stop.failures,
                next_action: match stop.reason {
                    BatchStopReason::Canary => {
                        format!("nothing: the others start when the first have succeeded; shoal batch continue {} starts them now", batch.id)
                    }
                    BatchStopReason::Stopped => format!(
                        "remove the causes; then shoal batch continue {0}, or shoal batch cancel {0} and shoal batch retry {0} --failed",
                        batch.id
                    ),
                },
            }),
            total: batch.total,
            jobs,
            // Without a job, only the end of the request says that none will follow.
            complete: (jobs > 0 || batch.filled_at.is_some()) && status(JobStatus::Complete) == jobs,
            progress: Progress {
                queued: status(JobStatus::Queued),
                running: jobs - status(JobStatus::Queued) - status(JobStatus::Complete),
                succeeded: ended(Outcome::Succeeded),
                failed: ended(Outcome::Failed),
                cancelled: ended(Outcome::Cancelled),
            },
        }
    }

    /// How many jobs have not begun, and how many have begun and not ended.
    pub(super) fn unfinished(&self) -> (u64, u64) {
        (self.progress.queued, self.progress.running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_a_job_is_complete_when_its_request_is_over() {
        let now: Time = "2026-11-20T08:00:00Z".parse().unwrap();
        let batch = Batch {
            id: BatchId::new(),
            idempotency_key: None,
            request_sha256: String::new(),
            total: 2,
            max_parallel: None,
            canary: 0,
            stop_after: None,
            retry_of: None,
            stop: None,
            filled_at: None,
            created_by: "tester".to_owned(),
            created_at: now,
        };
        let filled = Batch { filled_at: Some(now), ..batch.clone() };
        let queued = [JobCount { status: JobStatus::Queued, outcome: None, jobs: 1 }];
        let ended = [JobCount { status: JobStatus::Complete, outcome: Some(Outcome::Succeeded), jobs: 1 }];
        let complete = |batch: &Batch, counts: &[JobCount]| BatchView::of(batch, counts).complete;
        assert!(!complete(&batch, &[]), "its rows may follow");
        assert!(complete(&filled, &[]));
        assert!(!complete(&filled, &queued));
        assert!(complete(&filled, &ended));
    }
}
