//! `GET /api/v1/batches/{id}`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanRead, TextPath};
use super::view::BatchView;
use engine::model::Batch;

/// Shows a batch and its progress; its jobs are listed by `GET /api/v1/jobs?batch=ID`.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    TextPath(id): TextPath,
) -> Result<Json<BatchView>, ApiError> {
    let batch = find(&api, &id).await?;
    Ok(Json(BatchView::of(&batch, &api.store().batch_counts(batch.id).await?)))
}

/// Finds the batch of a path; a malformed id is an unknown batch.
pub(super) async fn find(api: &Api, id: &str) -> Result<Batch, ApiError> {
    let found = match id.parse() {
        Ok(id) => api.store().batch(id).await?,
        Err(_) => None,
    };
    found.ok_or_else(|| {
        ApiError::new(ErrorCode::UnknownBatch, "no batch has this id; `shoal batch list` shows the batches")
    })
}
