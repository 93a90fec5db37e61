//! `DELETE /api/v1/servers/{serial}`.
//!
//! ```text
//!   ?with_history=true    ended jobs of the server: their files, then their rows and the server in one transaction
//!   ?dry_run=true         how many jobs would be deleted with it
//! ```

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, Parameters, SerialPath, unknown_server};
use super::super::openapi::types;
use super::super::request_audit;
use model::{NewEvent, Serial};
use store::{DeletedServer, ServerHistory};

/// The query of a deletion.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeleteQuery {
    with_history: bool,
    dry_run: bool,
}

/// What a deletion would delete.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerDeletion")]
pub(crate) struct DeletionView {
    /// Always true: nothing was deleted.
    dry_run: bool,
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    /// The number of ended jobs that would be deleted with the server.
    jobs: u64,
}

/// Deletes a server. One with stored jobs is deleted only with its history, and never while a job is unfinished.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<DeleteQuery>,
) -> Result<Response, ApiError> {
    if query.dry_run {
        request_audit::changes_nothing();
    }
    if api.store().server(&serial).await?.is_none() {
        return Err(unknown_server(serial.as_str()));
    }
    let history = api.store().server_history(&serial).await?;
    allowed(&serial, &history, query.with_history)?;
    if query.dry_run {
        let view = DeletionView { dry_run: true, serial, jobs: history.runs };
        return Ok(Json(view).into_response());
    }
    let (message, roots) = match query.with_history {
        true => (format!("server {serial} deleted with {}", jobs(history.runs)), history.roots),
        false => (format!("server {serial} deleted"), Vec::new()),
    };
    provision::remove_task_images(&api.task_iso_dir, &roots).await;
    let event = NewEvent::info("server.deleted", message).by(&principal.name);
    match api.store().delete_server(&serial, &roots, event, api.now()).await? {
        DeletedServer::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
        DeletedServer::Unknown => Err(unknown_server(serial.as_str())),
        DeletedServer::HasJobs(_) => {
            let history = api.store().server_history(&serial).await?;
            allowed(&serial, &history, query.with_history)?;
            Err(refused(format!("a job of server {serial} began or ended meanwhile; try again")))
        }
    }
}

/// Refuses what would delete an unfinished job, a history that was not asked for, or an event that a webhook has yet to deliver.
fn allowed(serial: &Serial, history: &ServerHistory, with_history: bool) -> Result<(), ApiError> {
    if history.unfinished > 0 {
        let unfinished = jobs(history.unfinished);
        return Err(refused(format!(
            "server {serial} has {unfinished} not ended and is not deleted; wait for the end or cancel them"
        )));
    }
    if with_history && history.undelivered > 0 {
        let undelivered = jobs(history.undelivered);
        return Err(refused(format!(
            "server {serial} has {undelivered} with events that a webhook has yet to deliver, and is not deleted; try again after \
             their delivery"
        )));
    }
    if !with_history && history.blocking > 0 {
        let stored = jobs(history.blocking);
        return Err(refused(format!(
            "server {serial} has {stored} stored and is not deleted; delete it with its history (`shoal server remove \
             --with-history`), or after JOB_RETENTION_DAYS"
        )));
    }
    Ok(())
}

fn refused(message: String) -> ApiError {
    ApiError::new(ErrorCode::ConflictJobs, message)
}

fn jobs(count: u64) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}
