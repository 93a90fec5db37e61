//! `POST`, `GET`, `DELETE /api/v1/drain`: whether jobs begin.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::extract::{Body, Reader, Writer};
use super::jobs::reason;
use engine::model::{Closed, JobStatus};

/// Keeps jobs from beginning until the drain is ended, also over a restart. What has begun goes on to its end.
pub(super) async fn begin(
    State(api): State<Api>,
    Writer(principal): Writer,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let closed = Closed { since: api.now(), by: principal.name, reason: reason(&body)? };
    let (_, new) = api.store().drain(closed).await?;
    let status = if new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(view(&api).await?)))
}

/// Lets jobs begin again.
pub(super) async fn end(State(api): State<Api>, Writer(principal): Writer) -> Result<Json<Value>, ApiError> {
    api.store().undrain(&principal.name, api.now()).await?;
    api.engine.wake();
    Ok(Json(view(&api).await?))
}

/// Whether the controller is drained, and what is still under way.
pub(super) async fn show(State(api): State<Api>, _reader: Reader) -> Result<Json<Value>, ApiError> {
    Ok(Json(view(&api).await?))
}

async fn view(api: &Api) -> Result<Value, ApiError> {
    let drained = api.store().drained().await?;
    let counts = api.store().job_counts().await?;
    let of = |wanted: &[JobStatus]| -> u64 {
        counts.iter().filter(|(status, _)| wanted.contains(status)).map(|(_, jobs)| jobs).sum()
    };
    Ok(json!({
        "drained": drained.is_some(),
        "drain": drained,
        "pressure": api.engine.pressure(),
        "working": api.engine.working(),
        "queued": of(&[JobStatus::Queued]),
        "under_way": of(&[JobStatus::Provisioning, JobStatus::Succeeded, JobStatus::Failed]),
    }))
}
