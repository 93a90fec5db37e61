//! `POST`, `GET`, `DELETE /api/v1/drain`: whether jobs start on this controller.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::ApiError;
use super::extract::{CanRead, CanWrite, OptionalJsonBody};
use super::jobs::reason;
use super::openapi::types;
use model::{GateClosure, JobStatus, Pressure};

/// Whether jobs start on the controller.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Drain")]
pub(super) struct DrainView {
    /// Whether a drain is in force.
    drained: bool,
    /// The drain in force.
    #[schemars(with = "Option<types::GateClosure>")]
    drain: Option<GateClosure>,
    /// The shortage during which no job starts.
    #[schemars(with = "Option<types::Pressure>")]
    pressure: Option<Pressure>,
    /// The number of runs that a worker executes now.
    active_runs: usize,
    /// The number of jobs that have not begun.
    queued: u64,
    /// The number of jobs that have begun and not ended.
    running: u64,
}

/// Starts a drain: no job starts until the drain is ended, also after a restart. Running jobs continue to their end.
pub(super) async fn begin(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<DrainView>), ApiError> {
    let closed = GateClosure { since: api.now(), by: principal.name, reason: reason(&body)? };
    let (_, new) = api.store().drain(closed).await?;
    let status = if new { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((status, Json(view(&api).await?)))
}

/// Ends the drain.
pub(super) async fn end(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
) -> Result<Json<DrainView>, ApiError> {
    api.store().undrain(&principal.name, api.now()).await?;
    api.engine.wake();
    Ok(Json(view(&api).await?))
}

/// Shows the drain, pressure and the numbers of running and queued jobs.
pub(super) async fn show(State(api): State<Api>, _reader: CanRead) -> Result<Json<DrainView>, ApiError> {
    Ok(Json(view(&api).await?))
}

async fn view(api: &Api) -> Result<DrainView, ApiError> {
    let drained = api.store().drained().await?;
    let counts = api.store().job_counts().await?;
    let of = |wanted: &[JobStatus]| -> u64 {
        counts.iter().filter(|count| wanted.contains(&count.status)).map(|count| count.jobs).sum()
    };
    Ok(DrainView {
        drained: drained.is_some(),
        drain: drained,
        pressure: api.engine.pressure(),
        active_runs: api.engine.active_runs(),
        queued: of(&[JobStatus::Queued]),
        running: of(&[JobStatus::Provisioning, JobStatus::Running, JobStatus::Succeeded, JobStatus::Failed]),
    })
}
