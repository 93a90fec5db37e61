//! `POST /api/v1/servers/{serial}/diagnostics`: diagnostics of a BMC before the first job; `GET`: the result of the last ones.
//!
//! The result of the last diagnostics is that of their run, so nothing is stored twice.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanRead, CanWrite, Parameters, SerialPath, unknown_server};
use super::super::openapi::types;
use super::super::request_audit;
use super::release;
use diagnostics::DiagnosticsOrder;
use diagnostics::checks::{Check, CheckStatus};
use model::{RunId, Serial, Time};
use store::{Created, Creation, JobFilter};

/// How long a request waits for diagnostics; longer diagnostics continue without it.
const RESPONSE_WAIT: Duration = Duration::from_secs(170);
/// The interval of checks for the end of diagnostics.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The query of a diagnostics request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DiagnosticsQuery {
    /// Also sets and clears the boot override.
    write: bool,
}

/// The result of diagnostics.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Diagnostics")]
pub(crate) struct DiagnosticsReport {
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    /// The id of the diagnostics run.
    #[schemars(with = "types::JobId")]
    diagnostics_id: RunId,
    /// The worst status of all checks.
    #[schemars(with = "types::CheckStatus")]
    verdict: CheckStatus,
    #[schemars(with = "Vec<types::Check>")]
    checks: Vec<Check>,
}

/// The response while diagnostics are running.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DiagnosticsRunning")]
pub(crate) struct DiagnosticsRunning {
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    /// The id of the diagnostics run.
    #[schemars(with = "types::JobId")]
    diagnostics_id: RunId,
    /// What happens next.
    message: &'static str,
}

/// The result of the last diagnostics of a server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LastDiagnostics")]
pub(crate) struct LastReport {
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    /// The id of the diagnostics run; null before the first.
    #[schemars(with = "Option<types::JobId>")]
    diagnostics_id: Option<RunId>,
    /// When the run ended; null while it runs.
    #[schemars(with = "Option<types::Timestamp>")]
    ended_at: Option<Time>,
    /// The worst status of all checks; null while there is no result.
    #[schemars(with = "Option<types::CheckStatus>")]
    verdict: Option<CheckStatus>,
    #[schemars(with = "Vec<types::Check>")]
    checks: Vec<Check>,
}

/// Shows the result of the last diagnostics without a request to the BMC.
pub(crate) async fn last(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(serial): SerialPath,
) -> Result<Json<LastReport>, ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let newest = JobFilter {
        server: Some(serial.clone()),
        workflow: Some(diagnostics::WORKFLOW.to_owned()),
        limit: 1,
        ..JobFilter::default()
    };
    let mut report = LastReport {
        server_serial: serial,
        diagnostics_id: None,
        ended_at: None,
        verdict: None,
        checks: Vec::new(),
    };
    if let Some(job) = api.store().jobs(newest).await?.jobs.pop() {
        report.diagnostics_id = Some(job.run.id);
        let snapshot = api.store().snapshot(job.run.id).await?;
        if let Some(found) = snapshot.as_ref().and_then(diagnostics::result_of) {
            report.ended_at = Some(job.run.updated_at);
            report.verdict = Some(found.verdict());
            report.checks = found.checks;
        }
    }
    Ok(Json(report))
}

/// Runs diagnostics of the BMC of a registered server under the lock of the server.
pub(crate) async fn diagnose(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<DiagnosticsQuery>,
) -> Result<Response, ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    if server.restored.is_some() {
        // The run would not be claimed before the release.
        return Err(release::not_released(&serial));
    }
    let id = RunId(uuid::Uuid::now_v7());
    let order = DiagnosticsOrder { server: serial.clone(), write_boot: query.write, retry_of: None };
    let run = diagnostics::order(&order, id, api.services.seed(id), &principal.name, api.now());
    request_audit::target("server", &format!("{serial}/job/{id}"));
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
            if let Some(found) = api.store().snapshot(id).await?.as_ref().and_then(diagnostics::result_of) {
                return Ok::<_, ApiError>(found);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(RESPONSE_WAIT, ended).await {
        Ok(found) => {
            let found = found?;
            let verdict = found.verdict();
            let report = DiagnosticsReport {
                server_serial: serial,
                diagnostics_id: id,
                verdict,
                checks: found.checks,
            };
            Ok(Json(report).into_response())
        }
        Err(_elapsed) => {
            let message = "the diagnostics are still running; their result is an event of the server";
            let running = DiagnosticsRunning { server_serial: serial, diagnostics_id: id, message };
            Ok((StatusCode::ACCEPTED, Json(running)).into_response())
        }
    }
}
