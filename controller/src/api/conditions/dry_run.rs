//! `POST /api/v1/servers/{serial}/condition?dry_run=true`: what a condition would do. Nothing is written and nothing is sent to
//! a BMC.

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::openapi::types;
use super::super::servers::release;
use super::newest;
use super::request::{Request, refused};
use super::view::ConditionView;
use engine::Created;
use engine::model::{Gate, Job, Phase, Purpose, RunId, Serial, Server, Time};
use upkeep::Kind;

/// What a request for a condition would do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerConditionPreview")]
pub(in crate::api) struct PreviewView {
    /// Always true.
    dry_run: bool,
    /// `accept` or `refuse`.
    would: &'static str,
    /// Why the request would be refused; null if it would be accepted.
    refused: Option<String>,
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    #[schemars(with = "String")]
    kind: Kind,
    #[schemars(with = "types::Object")]
    parameters: Value,
    /// What the condition does, in one sentence.
    does: String,
    /// The steps, in their order; those of the cleanup are last.
    steps: Vec<String>,
    /// The job that has the server now; the condition waits for its end.
    #[schemars(with = "Option<types::JobId>")]
    waits_for: Option<RunId>,
    /// The closed gates behind which the condition would wait.
    gates: Vec<String>,
    priority: i32,
    #[schemars(with = "types::Timestamp")]
    deadline_at: Time,
}

/// The schema of a response to a request for a condition.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ServerConditionResponse")]
#[expect(dead_code, reason = "the handler returns the two types; the enum is read by the derive macro only")]
pub(in crate::api) enum ConditionResponse {
    /// The stored condition.
    Stored(ConditionView),
    /// The preview.
    Preview(PreviewView),
}

/// Responds with the preview of a checked request.
pub(super) async fn respond(
    api: &Api,
    caller: &str,
    server: Server,
    request: Request,
    earlier: Option<Job>,
) -> Result<Response, ApiError> {
    let Request { server: serial, kind, order } = request;
    let mut open = earlier.filter(is_open).map(|job| job.run.id);
    if open.is_none() && !order.queue {
        for other in Kind::all().iter().filter(|other| **other != kind) {
            open = newest(api, &serial, *other).await?.filter(is_open).map(|job| job.run.id);
            if open.is_some() {
                break;
            }
        }
    }
    let refusal = match (&server.restored, open) {
        (Some(_), _) => Some(release::not_released(&serial)),
        (None, Some(holder)) => Some(refused(&serial, kind, &Created::Conflict { holder })),
        (None, None) => None,
    };
    let (parameters, does) = (order.input.action.parameters(), order.input.action.sentence());
    let run = order.run(RunId::new(), caller, api.now());
    let gates = gates(api, &server, run.purpose).await?;
    let body = PreviewView {
        dry_run: true,
        would: if refusal.is_some() { "refuse" } else { "accept" },
        refused: refusal.map(|why| why.body().message),
        waits_for: api.store().active_job(&serial).await?,
        server_serial: serial,
        kind,
        parameters,
        does,
        steps: run.plan.forward.iter().chain(&run.plan.finish).map(|step| step.name.to_string()).collect(),
        gates,
        priority: run.priority,
        deadline_at: run.deadline_at,
    };
    Ok(Json(body).into_response())
}

fn is_open(job: &Job) -> bool {
    job.run.phase != Phase::Ended
}

/// The names of the gates that are closed for a run of this purpose.
async fn gates(api: &Api, server: &Server, purpose: Purpose) -> Result<Vec<String>, ApiError> {
    let mut gates = Vec::new();
    gates.extend(api.store().drained().await?.map(Gate::Drain));
    if purpose == Purpose::Change {
        let closed = server.maintenance.clone();
        gates.extend(closed.map(|closed| Gate::Maintenance(server.serial.clone(), closed)));
    }
    gates.extend(api.engine.pressure().map(Gate::Pressure));
    Ok(gates.iter().map(|gate| gate.name().to_owned()).collect())
}
