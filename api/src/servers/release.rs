//! `GET /api/v1/servers/{serial}/restored`, `POST /api/v1/servers/{serial}/release`: what the restored data says about a machine,
//! beside what its BMC shows now, and the release of the server (decision D26).

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, JsonBody, SerialPath, unknown_server};
use super::super::openapi::types;
use super::super::restored::{JobsDecision, unpin};
use super::view::ServerView;
use model::{Restoration, RunId, Serial, Snapshot, StepPhase, Time, UnfinishedRuns};
use store::ReleasedServer;

/// A server of restored data: what is believed, and what is observed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RestoredServerDetail")]
pub(crate) struct RestoredDetail {
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    /// Why the server is not released; null when it is released.
    #[schemars(with = "Option<types::Restoration>")]
    restored: Option<Restoration>,
    /// What the data says.
    believed: Believed,
    /// What the BMC shows now; null when it could not be read.
    observed: Option<Observed>,
    /// Why the BMC could not be read.
    problem: Option<String>,
}

/// What the data says about a machine.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BelievedMachine")]
struct Believed {
    jobs: Vec<BelievedJob>,
    /// When the BMC responded last.
    #[schemars(with = "Option<types::Timestamp>")]
    last_seen: Option<Time>,
    /// What was observed then.
    #[schemars(with = "Option<types::Object>")]
    observed: Option<Value>,
}

/// A job that has not ended in the data.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BelievedJob")]
struct BelievedJob {
    #[schemars(with = "types::JobId")]
    job_id: RunId,
    workflow: String,
    /// The position of the job in its state machine.
    phase: String,
    /// The step at which the job was.
    step: Option<String>,
    /// The last step that was completed.
    completed: Option<String>,
    /// What the job was waiting for.
    waiting: Option<String>,
    /// The time of the last change of the job.
    #[schemars(with = "types::Timestamp")]
    updated_at: Time,
}

/// What a BMC shows.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ObservedMachine")]
struct Observed {
    #[schemars(with = "types::Timestamp")]
    at: Time,
    /// The power state of the host.
    power: Option<String>,
    /// Whether the BMC belongs to the registered machine: `match`, `another machine` or `not shown`.
    serial_check: Option<String>,
    /// The boot override.
    boot: Value,
    /// The virtual media slots.
    media: Vec<ObservedSlot>,
}

/// A virtual media slot.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ObservedSlot")]
struct ObservedSlot {
    id: String,
    empty: bool,
}

/// The release of one server.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Release")]
#[serde(deny_unknown_fields)]
pub(crate) struct Release {
    /// What happens to unfinished jobs; needed only when there are any.
    #[serde(default)]
    jobs: Option<JobsDecision>,
}

impl From<Snapshot> for BelievedJob {
    fn from(snapshot: Snapshot) -> Self {
        let done = snapshot.steps.iter().rev().find(|record| record.phase == StepPhase::Done);
        let completed = done.map(|record| record.name.to_string());
        let run = snapshot.run;
        Self {
            job_id: run.id,
            workflow: run.workflow,
            phase: run.phase.as_str().to_owned(),
            step: run.step.map(|step| step.to_string()),
            completed,
            waiting: run.wait.map(|wait| wait.detail),
            updated_at: run.updated_at,
        }
    }
}

impl Observed {
    /// The part of a capability card that shows what a job may have left.
    fn of(card: &Value, at: Time) -> Self {
        let text = |pointer: &str| card.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let slots = card["slots"].as_array().map(Vec::as_slice).unwrap_or_default();
        let slot = |slot: &Value| ObservedSlot {
            id: slot["id"].as_str().unwrap_or_default().to_owned(),
            empty: slot["empty"].as_bool().unwrap_or(false),
        };
        Self {
            at,
            power: text("/host/power"),
            serial_check: text("/host/serial_check"),
            boot: card["boot"].clone(),
            media: slots.iter().map(slot).collect(),
        }
    }
}

/// Reads the BMC and shows it beside the data. Changes nothing.
pub(crate) async fn show_restored(
    State(api): State<Api>,
    _writer: CanWrite,
    SerialPath(serial): SerialPath,
) -> Result<Json<RestoredDetail>, ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let unfinished = api.store().unfinished_runs(&serial).await?;
    let mut jobs = Vec::new();
    for snapshot in api.store().snapshots(unfinished).await? {
        jobs.extend(snapshot.map(BelievedJob::from));
    }
    let probed = api.services.bmc.probe(&server, false, api.now()).await;
    let (observed, problem) = match probed {
        Ok(probed) => (Some(Observed::of(&probed.card, api.now())), None),
        Err(why) => (None, Some(format!("{}; {}", why.sentence, why.next_action))),
    };
    Ok(Json(RestoredDetail {
        serial,
        restored: server.restored,
        believed: Believed { jobs, last_seen: server.last_seen, observed: server.observed },
        observed,
        problem,
    }))
}

/// Releases a server of restored data.
pub(crate) async fn release(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    body: JsonBody,
) -> Result<Json<ServerView>, ApiError> {
    let request: Release = body.read()?;
    let decision = request.jobs.map(UnfinishedRuns::from);
    match api.engine.release_server(&serial, decision, &principal.name, api.now()).await? {
        ReleasedServer::Released(runs) => {
            unpin(&api, decision, &runs).await;
        }
        ReleasedServer::NotRestored => {}
        ReleasedServer::Unknown => return Err(unknown_server(serial.as_str())),
        ReleasedServer::Undecided(jobs) => {
            let jobs = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let message = format!(
                "server {serial} has unfinished jobs ({jobs}): decide with `jobs` whether they continue where the data says they \
                 were (`continue`), or end without a request to the BMC (`end`)"
            );
            return Err(ApiError::new(ErrorCode::ConflictRestored, message));
        }
    }
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    Ok(Json(ServerView::of(&server)))
}

/// The refusal of a request that would change the machine of a server that is not released.
pub(crate) fn not_released(serial: &Serial) -> ApiError {
    let message = format!(
        "the data about server {serial} was restored: compare it with the machine (shoal server restored {serial}), then \
         release the server (shoal server release {serial})"
    );
    ApiError::new(ErrorCode::ConflictRestored, message)
}
