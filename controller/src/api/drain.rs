//! `POST`, `GET`, `DELETE /api/v1/drain`: whether jobs start on this controller.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::error::ApiError;
use super::extract::{CanRead, CanWrite, JsonBody};
use super::jobs::reason;
use engine::model::{GateClosure, JobStatus};

/// Starts a drain: no job starts until the drain is ended, also after a restart. Running jobs continue to their end.
pub(super) async fn begin(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let closed = GateClosure { since: api.now(), by: principal.name, reason: reason(&body)? };
    let (_, new) = api.store().drain(closed).await?;
    let status = if new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(view(&api).await?)))
}

/// Ends the drain.
pub(super) async fn end(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
) -> Result<Json<Value>, ApiError> {
    api.store().undrain(&principal.name, api.now()).await?;
    api.engine.wake();
    Ok(Json(view(&api).await?))
}

/// Shows the drain, pressure and the numbers of running and queued jobs.
pub(super) async fn show(State(api): State<Api>, _reader: CanRead) -> Result<Json<Value>, ApiError> {
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
        "active_runs": api.engine.active_runs(),
        "queued": of(&[JobStatus::Queued]),
        "running": of(&[JobStatus::Provisioning, JobStatus::Succeeded, JobStatus::Failed]),
    }))
}
