//! `POST /api/v1/servers/{serial}/doctor`: every check an operator wants made before the first job.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{SerialPath, Writer, unknown_server};
use engine::model::RunId;
use engine::{Created, Creation};
use provision::{examination, findings};

/// How long a request waits for an examination; one that takes longer goes on.
const PATIENCE: Duration = Duration::from_secs(170);
/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// How it is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::api) struct Asked {
    /// Whether the boot override is also set and cleared.
    write: bool,
}

/// Examines the BMC of a registered server under the server's lock.
pub(in crate::api) async fn doctor(
    State(api): State<Api>,
    Writer(principal): Writer,
    SerialPath(serial): SerialPath,
    Query(asked): Query<Asked>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let id = RunId(uuid::Uuid::now_v7());
    let run = examination(&serial, asked.write, id, &principal.name, api.now());
    match api.engine.create(Creation { run }).await? {
        Created::New(_) => {}
        Created::Conflict { holder } => {
            let message =
                format!("{serial} is being worked on by {holder}; wait for its end, then examine it");
            return Err(ApiError::conflict("conflict.active_job", message));
        }
        Created::UnknownServer => return Err(unknown_server(serial.as_str())),
        // An examination has no key.
        Created::Replay(_) | Created::KeyReused(_) => {}
    }
    let ended = async {
        loop {
            if let Some(found) = api.store().snapshot(id).await?.as_ref().and_then(findings) {
                return Ok::<_, ApiError>(found);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(PATIENCE, ended).await {
        Ok(found) => {
            let found = found?;
            let body = json!({
                "server_serial": serial, "doctor_id": id, "verdict": found.verdict(), "checks": found.checks,
            });
            Ok((StatusCode::OK, Json(body)))
        }
        Err(_elapsed) => {
            let message = "the examination is still under way; its end is in the events";
            Ok((
                StatusCode::ACCEPTED,
                Json(json!({ "server_serial": serial, "doctor_id": id, "message": message })),
            ))
        }
    }
}
