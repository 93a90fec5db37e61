//! `POST /api/v1/batches/{id}/cancel`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, OptionalJsonBody, TextPath};
use super::show::find;
use super::view::{BatchView, CancelledBatchView};

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "BatchCancelRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The reason, which is recorded in events.
    #[serde(default)]
    reason: String,
    /// Also cancels running jobs; their cleanup runs.
    #[serde(default)]
    all: bool,
}

/// Cancels the queued jobs of a batch, or with `all` every job that has not ended.
pub(crate) async fn cancel(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(id): TextPath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<CancelledBatchView>), ApiError> {
    let request: Request = body.read()?;
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(256).collect();
    let batch = find(&api, &id).await?;
    let jobs = api.store().open_jobs_of_batch(batch.id, !request.all).await?;
    let cancelled = api.engine.cancel_all(&jobs, &principal.name, &reason).await?;
    let batch = BatchView::of(&batch, &api.store().batch_counts(batch.id).await?);
    Ok((StatusCode::ACCEPTED, Json(CancelledBatchView { batch, cancelled_now: cancelled })))
}
