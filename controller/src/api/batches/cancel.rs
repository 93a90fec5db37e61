//! `POST /api/v1/batches/{id}/cancel`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, JsonBody};
use super::show::find;
use super::view;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    reason: String,
    /// Also cancels running jobs; their cleanup runs.
    #[serde(default)]
    all: bool,
}

/// Cancels the queued jobs of a batch, or with `all` every job that has not ended.
pub(in crate::api) async fn cancel(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let request: Request = body.read()?;
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(256).collect();
    let batch = find(&api, &id).await?;
    let jobs = api.store().open_jobs_of_batch(batch.id, !request.all).await?;
    let cancelled = api.engine.cancel_all(&jobs, &principal.name, &reason).await?;
    let mut response = view::batch(&batch, &api.store().batch_counts(batch.id).await?);
    response["cancelled_now"] = json!(cancelled);
    Ok((StatusCode::ACCEPTED, Json(response)))
}
