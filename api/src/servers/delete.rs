//! `DELETE /api/v1/servers/{serial}`.

use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, SerialPath, unknown_server};
use model::NewEvent;
use store::DeletedServer;

/// Deletes a server. A server with stored jobs is not deleted.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
) -> Result<StatusCode, ApiError> {
    let event = NewEvent::info("server.deleted", format!("server {serial} deleted")).by(&principal.name);
    match api.store().delete_server(&serial, event, api.now()).await? {
        DeletedServer::Deleted => Ok(StatusCode::NO_CONTENT),
        DeletedServer::Unknown => Err(unknown_server(serial.as_str())),
        DeletedServer::HasJobs(jobs) => Err(ApiError::new(
            ErrorCode::ConflictJobs,
            format!(
                "server {serial} has {jobs} stored job(s) and is not deleted; try again after JOB_RETENTION_DAYS"
            ),
        )),
    }
}
