//! `POST`, `DELETE /api/v1/servers/{serial}/maintenance`: whether jobs begin on a server.
//!
//! A job that has begun goes on: a machine half way through an installation is not in a state to be maintained, and its job
//! has the verbs that end it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{Body, SerialPath, Writer, unknown_server};
use super::super::jobs::reason;
use super::view;
use engine::model::{Closed, Serial};
use engine::store::MaintenanceChange;

/// Keeps jobs from beginning on the server.
pub(in crate::api) async fn begin_maintenance(
    State(api): State<Api>,
    Writer(principal): Writer,
    SerialPath(serial): SerialPath,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let closed = Closed { since: api.now(), by: principal.name.clone(), reason: reason(&body)? };
    change(&api, serial, Some(closed), &principal.name).await
}

/// Lets jobs begin on the server again.
pub(in crate::api) async fn end_maintenance(
    State(api): State<Api>,
    Writer(principal): Writer,
    SerialPath(serial): SerialPath,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let answer = change(&api, serial, None, &principal.name).await;
    api.engine.wake();
    answer
}

async fn change(
    api: &Api,
    serial: Serial,
    closed: Option<Closed>,
    by: &str,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    match api.store().set_maintenance(&serial, closed, by, api.now()).await? {
        MaintenanceChange::Changed(server) => Ok((StatusCode::ACCEPTED, Json(view::server(&server)))),
        MaintenanceChange::Unchanged(server) => Ok((StatusCode::OK, Json(view::server(&server)))),
        MaintenanceChange::Unknown => Err(unknown_server(serial.as_str())),
    }
}
