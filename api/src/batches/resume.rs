//! `POST /api/v1/batches/{id}/continue`: further jobs of a batch that has stopped start.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, TextPath};
use super::show::{find, unknown};
use super::view::BatchView;

/// Continues a batch: jobs behind its canaries or its failures start, and failures are counted from 0 again.
pub(crate) async fn resume(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(id): TextPath,
) -> Result<(StatusCode, Json<BatchView>), ApiError> {
    let batch = find(&api, &id).await?;
    let (batch, opened) =
        api.store().continue_batch(batch.id, &principal.name, api.now()).await?.ok_or_else(unknown)?;
    api.engine.wake();
    let status = if opened { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(BatchView::of(&batch, &api.store().batch_counts(batch.id).await?))))
}
