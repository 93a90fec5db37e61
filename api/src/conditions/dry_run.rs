//! `POST /api/v1/servers/{serial}/condition?dry_run=true`: what a condition would do. Nothing is written and nothing is changed on
//! a BMC; for settings of the BIOS it is read, so that their preview needs the permission to operate.

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::openapi::types;
use super::super::servers::release;
use super::request::{Request, refused};
use super::view::ConditionView;
use super::{bios, firmware, newest};
use ::firmware::{Component, Restart};
use model::{Gate, Job, Phase, Purpose, RunId, Serial, Server, Time};
use store::Created;
use upkeep::bios::SettingItem;
use upkeep::{ConditionKind, PlanItem};

/// What a request for a condition would do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerConditionPreview")]
pub(crate) struct PreviewView {
    /// Always true.
    dry_run: bool,
    /// `accept` or `refuse`.
    would: &'static str,
    /// Why the request would be refused; null if it would be accepted.
    refused: Option<String>,
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    #[schemars(with = "String")]
    kind: ConditionKind,
    #[schemars(with = "types::Object")]
    parameters: Value,
    /// What the condition does, in one sentence.
    does: String,
    /// The steps, in their order; those of the cleanup are last.
    steps: Vec<String>,
    /// For `firmwareInstall`: what happens to each component, by the stored inventory; null when it is not known.
    plan: Option<Vec<PlanView>>,
    /// For `biosApply`: what happens to each setting, by what the BMC shows now; null when it cannot be read.
    settings: Option<Vec<SettingView>>,
    /// Why there is no plan.
    plan_missing: Option<String>,
    /// For `firmwareInstall`: when the BMC was read whose inventory `plan` is made of; null when it was not.
    #[schemars(with = "Option<types::Timestamp>")]
    inventory_read_at: Option<Time>,
    /// The job that has the server now; the condition waits for its end.
    #[schemars(with = "Option<types::JobId>")]
    waits_for: Option<RunId>,
    /// The closed gates behind which the condition would wait.
    gates: Vec<String>,
    priority: i32,
    #[schemars(with = "types::Timestamp")]
    deadline_at: Time,
}

/// One component of the plan of an installation.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FirmwarePlanItem")]
pub(crate) struct PlanView {
    #[schemars(with = "types::FirmwareComponent")]
    component: Component,
    /// The id by which the BMC names the firmware, without its version; null when the server does not have the component.
    id: Option<String>,
    /// The installed version, as the BMC shows it.
    now: Option<String>,
    /// The version of the file.
    then: Option<String>,
    /// `install`, `skip`, `refuse`, or `unknown` when the BMC could not show a part of its inventory that may be such a device.
    decision: String,
    /// Why.
    reason: String,
    /// The digest of the artifact that is installed.
    digest: Option<String>,
    /// The bytes that are sent.
    size: Option<u64>,
    /// Whether the host restarts.
    #[schemars(with = "Option<types::FirmwareRestart>")]
    restart: Option<Restart>,
}

impl From<PlanItem> for PlanView {
    fn from(item: PlanItem) -> Self {
        let PlanItem { component, id, now, then, decision, reason, digest, size, restart, devices: _ } = item;
        let (now, then) = (now.map(|version| version.to_string()), then.map(|version| version.to_string()));
        Self { component, id, now, then, decision, reason, digest, size, restart }
    }
}

/// One setting of the plan of a change of BIOS settings.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BiosPlanItem")]
pub(crate) struct SettingView {
    /// The name of the attribute; `BootOrder` for the boot order.
    name: String,
    /// Whether it is the boot order.
    boot_order: bool,
    /// The value in force; null when it is not known, or a password.
    now: Value,
    /// The wanted value, in the type of the attribute; null for a password.
    then: Value,
    /// `change`, `pending`, `skip` or `refuse`.
    decision: String,
    /// Why.
    reason: String,
}

impl From<SettingItem> for SettingView {
    fn from(item: SettingItem) -> Self {
        let SettingItem { name, boot_order, now, then, decision, reason } = item;
        Self { name, boot_order, now, then, decision, reason }
    }
}

/// The schema of a response to a request for a condition.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "ServerConditionResponse")]
#[expect(dead_code, reason = "the handler returns the two types; the enum is read by the derive macro only")]
pub(crate) enum ConditionResponse {
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
        for other in ConditionKind::all().iter().filter(|other| **other != kind) {
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
    let stored = firmware::preview(api, &serial, &order.input.action).await?;
    let inventory_read_at = stored.as_ref().and_then(|stored| stored.read_at);
    let (plan, plan_missing) = match stored.map(|stored| stored.items) {
        Some(Ok(items)) => (Some(items.into_iter().map(PlanView::from).collect()), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let (settings, plan_missing) = match bios::preview(api, &server, &order.input.action).await? {
        Some(Ok(items)) => (Some(items.into_iter().map(SettingView::from).collect()), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, plan_missing),
    };
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
        plan,
        settings,
        plan_missing,
        inventory_read_at,
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
