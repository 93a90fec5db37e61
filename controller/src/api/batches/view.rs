//! The JSON of a batch.

use serde_json::{Value, json};

use engine::model::{Batch, JobStatus, Outcome};
use engine::store::BatchCount;

/// The JSON of a batch with its progress.
pub(super) fn batch(batch: &Batch, counts: &[BatchCount]) -> Value {
    let of = |wanted: &dyn Fn(&BatchCount) -> bool| -> u64 {
        counts.iter().filter(|count| wanted(count)).map(|count| count.jobs).sum()
    };
    let status = |status: JobStatus| of(&|count| count.status == status);
    let ended =
        |outcome: Outcome| of(&|count| count.status == JobStatus::Complete && count.outcome == Some(outcome));
    let jobs = of(&|_| true);
    json!({
        "batch_id": batch.id,
        "created_at": batch.created_at,
        "created_by": batch.created_by,
        "max_parallel": batch.max_parallel,
        "total": batch.total,
        "jobs": jobs,
        "complete": jobs > 0 && status(JobStatus::Complete) == jobs,
        "progress": {
            "queued": status(JobStatus::Queued),
            "running": jobs - status(JobStatus::Queued) - status(JobStatus::Complete),
            "succeeded": ended(Outcome::Succeeded),
            "failed": ended(Outcome::Failed),
            "cancelled": ended(Outcome::Cancelled),
        },
    })
}
