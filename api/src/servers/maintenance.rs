//! `POST`, `DELETE /api/v1/servers/{serial}/maintenance`: whether jobs start on a server.
//!
//! A running job continues: a machine in the middle of an installation cannot be serviced. An operator can cancel the job.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, OptionalJsonBody, SerialPath, unknown_server};
use super::super::jobs::reason;
use super::view::ServerView;
use model::{GateClosure, Serial};
use store::MaintenanceChange;

/// Starts maintenance: no job starts on the server.
pub(crate) async fn begin_maintenance(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<ServerView>), ApiError> {
    let closed = GateClosure { since: api.now(), by: principal.name.clone(), reason: reason(&body)? };
    change(&api, serial, Some(closed), &principal.name).await
}

/// Ends maintenance of the server.
pub(crate) async fn end_maintenance(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
) -> Result<(StatusCode, Json<ServerView>), ApiError> {
    let response = change(&api, serial, None, &principal.name).await;
    api.engine.wake();
    response
}

async fn change(
    api: &Api,
    serial: Serial,
    closed: Option<GateClosure>,
    by: &str,
) -> Result<(StatusCode, Json<ServerView>), ApiError> {
    match api.store().set_maintenance(&serial, closed, by, api.now()).await? {
        MaintenanceChange::Changed(server) => Ok((StatusCode::ACCEPTED, Json(ServerView::of(&server)))),
        MaintenanceChange::Unchanged(server) => Ok((StatusCode::OK, Json(ServerView::of(&server)))),
        MaintenanceChange::Unknown => Err(unknown_server(serial.as_str())),
    }
}
