//! `GET /api/v1/batches/{id}`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanRead, TextPath};
use super::super::jobs::selected;
use super::view::{BatchDetailView, BatchView, CauseView};
use model::{Batch, RunId, causes};

/// Shows a batch, its progress and the causes of its failures; its jobs are listed by `GET /api/v1/jobs?batch=ID`.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    TextPath(id): TextPath,
) -> Result<Json<BatchDetailView>, ApiError> {
    let batch = find(&api, &id).await?;
    let failed = api.store().failed_jobs_of_batch(batch.id, None).await?;
    let mut retriable = Vec::new();
    let mut of_causes: HashMap<String, Vec<RunId>> = HashMap::new();
    for job in failed.iter().filter(|job| !job.superseded) {
        retriable.push(job.id);
        of_causes.entry(job.cause()).or_default().push(job.id);
    }
    let (causes, more_failed) = causes(failed);
    let causes = causes.into_iter().map(|cause| {
        let jobs = of_causes.get(&cause.id).map(Vec::as_slice).unwrap_or_default();
        CauseView::of(cause, selected::digest(jobs))
    });
    Ok(Json(BatchDetailView {
        batch: BatchView::of(&batch, &api.store().batch_counts(batch.id).await?),
        causes: causes.collect(),
        more_failed,
        retriable: retriable.len() as u64,
        selection: selected::digest(&retriable),
    }))
}

/// Finds the batch of a path; a malformed id is an unknown batch.
pub(super) async fn find(api: &Api, id: &str) -> Result<Batch, ApiError> {
    let found = match id.parse() {
        Ok(id) => api.store().batch(id).await?,
        Err(_) => None,
    };
    found.ok_or_else(unknown)
}

/// 404 for an unknown batch.
pub(super) fn unknown() -> ApiError {
    ApiError::new(ErrorCode::UnknownBatch, "no batch has this id; `shoal batch list` shows the batches")
}
