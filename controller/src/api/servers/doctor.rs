//! `POST /api/v1/servers/{serial}/doctor`: diagnostics of a BMC before the first job.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, SerialPath, unknown_server};
use engine::model::RunId;
use engine::{Created, Creation};
use provision::{diagnostics_of, diagnostics_order};

/// How long a request waits for diagnostics; longer diagnostics continue without it.
const RESPONSE_WAIT: Duration = Duration::from_secs(170);
/// The interval of checks for the end of diagnostics.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The query of a diagnostics request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::api) struct DoctorQuery {
    /// Also sets and clears the boot override.
    write: bool,
}

/// Runs diagnostics of the BMC of a registered server under the lock of the server.
pub(in crate::api) async fn doctor(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    Query(query): Query<DoctorQuery>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let id = RunId(uuid::Uuid::now_v7());
    let run = diagnostics_order(&serial, query.write, id, &principal.name, api.now());
    match api.engine.create(Creation { run }).await? {
        Created::New(_) => {}
        Created::Conflict { holder } => {
            let message =
                format!("run {holder} is active on server {serial}; wait for its end, then run diagnostics");
            return Err(ApiError::new(ErrorCode::ConflictActiveJob, message));
        }
        Created::UnknownServer => return Err(unknown_server(serial.as_str())),
        // Diagnostics have no idempotency key.
        Created::Replay(_) | Created::KeyReused(_) => {}
    }
    let ended = async {
        loop {
            if let Some(found) = api.store().snapshot(id).await?.as_ref().and_then(diagnostics_of) {
                return Ok::<_, ApiError>(found);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(RESPONSE_WAIT, ended).await {
        Ok(found) => {
            let found = found?;
            let body = json!({
                "server_serial": serial, "doctor_id": id, "verdict": found.verdict(), "checks": found.checks,
            });
            Ok((StatusCode::OK, Json(body)))
        }
        Err(_elapsed) => {
            let message = "the diagnostics are still running; their result is an event of the server";
            Ok((
                StatusCode::ACCEPTED,
                Json(json!({ "server_serial": serial, "doctor_id": id, "message": message })),
            ))
        }
    }
}
