//! `DELETE /api/v1/servers/{serial}`.

use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{SerialPath, Writer, unknown_server};
use engine::model::NewEvent;
use engine::store::DeletedServer;

/// Forgets a server; one with jobs is kept for their sake.
pub(in crate::api) async fn delete(
    State(api): State<Api>,
    Writer(principal): Writer,
    SerialPath(serial): SerialPath,
) -> Result<StatusCode, ApiError> {
    let event = NewEvent::info("server.deleted", format!("server {serial} forgotten")).by(&principal.name);
    match api.store().delete_server(&serial, event, api.now()).await? {
        DeletedServer::Deleted => Ok(StatusCode::NO_CONTENT),
        DeletedServer::Unknown => Err(unknown_server(serial.as_str())),
        DeletedServer::HasJobs(jobs) => Err(ApiError::conflict(
            "conflict.jobs",
            format!("server {serial} has {jobs} job(s) on record and is kept for their sake"),
        )),
    }
}
