//! `GET /api/v1/jobs/{id}/log`: the end of the log of the maintenance OS.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, JobPath, unknown_job};
use super::super::openapi::types;
use model::{RunId, Time};
use telemetry::request_span;

/// The end of the log of a maintenance OS.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "InstallLog")]
pub(crate) struct InstallLogView {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    /// When the final report arrived; null while there is none, or when it carried no log.
    #[schemars(with = "Option<types::Timestamp>")]
    received_at: Option<Time>,
    /// The log, lines divided by line feeds.
    log: Option<String>,
}

/// Shows the log that the final report carried. It is for operators: an installer may print what viewers must not read.
pub(crate) async fn log(
    State(api): State<Api>,
    _writer: CanWrite,
    JobPath(id): JobPath,
) -> Result<Json<InstallLogView>, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let (received_at, log) = match api.store().install_log(id).await? {
        Some(log) => (Some(log.received_at), Some(log.text)),
        None => (None, None),
    };
    Ok(Json(InstallLogView { job_id: id, received_at, log }))
}
