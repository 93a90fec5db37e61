//! `POST /api/v1/jobs?dry_run=true`: the preview of a job. Nothing is written and nothing is sent to a BMC.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::unknown_server;
use super::create::{created_job, find_replay, refused, with_server_resources};
use crate::auth::Principal;
use engine::Created;
use engine::model::{Gate, RunId};
use provision::{DryRun, JobOrder};

/// Responds with the plan of an order. A refusal by the present state (an active job of the server, a used key) is part of
/// the response; an invalid order is refused as without `dry_run`.
pub(super) async fn respond(api: &Api, principal: &Principal, order: JobOrder) -> Result<Response, ApiError> {
    let serial = order.server_serial.clone();
    let now = api.now();
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let created = match find_replay(api, &order).await? {
        Some(earlier) => Some(earlier),
        None => api.store().active_job(&serial).await?.map(|holder| Created::Conflict { holder }),
    };
    let (would, job, refusal) = match created.map(|created| created_job(RunId::new(), &serial, &created)) {
        None => ("accept", None, Value::Null),
        Some(Ok((job, _))) => ("replay", Some(job), Value::Null),
        Some(Err(why)) => ("refuse", None, json!({ "status": why.status().as_u16(), "error": why.body() })),
    };
    let mut order = order;
    if would == "replay" {
        // The order was accepted by its first request; its deadline may have passed since.
        order.deadline = order.deadline.filter(|deadline| *deadline > now);
    }
    let resources = api.store().resources_of(vec![serial.clone()]).await?;
    let order = with_server_resources(order, resources.get(&serial));
    let workflow = api.engine.workflows().get(provision::WORKFLOW).cloned();
    let workflow = workflow.ok_or_else(|| {
        ApiError::new(ErrorCode::UnknownWorkflow, "this controller has no provisioning workflow")
    })?;
    let preview =
        api.services.dry_run(&*workflow, order, &server, &principal.name, now).await.map_err(refused)?;
    let DryRun { run, steps, slot_plan, task_image, maintenance_image, os_image_held, lints, blocked_by } =
        preview;
    let mut gates = Vec::new();
    gates.extend(api.store().drained().await?.map(Gate::Drain));
    gates.extend(server.maintenance.map(|closed| Gate::Maintenance(serial.clone(), closed)));
    gates.extend(api.engine.pressure().map(Gate::Pressure));
    let gates: Vec<Value> =
        gates.iter().map(|gate| json!({ "name": gate.name(), "since": gate.since() })).collect();
    let limits: Vec<Value> = run
        .locks
        .iter()
        .map(|lock| json!({ "resource": lock.resource, "capacity": lock.capacity, "limit": workflow.limit_setting(&lock.resource) }))
        .collect();
    let warnings: Vec<Value> =
        lints.iter().map(|lint| json!({ "path": lint.path, "message": lint.message })).collect();
    let body = json!({
        "dry_run": true,
        "would": would,
        "refused": refusal,
        "job_id": job,
        "server_serial": serial,
        "deadline_at": run.deadline_at,
        "priority": run.priority,
        "steps": steps,
        "slot_plan": slot_plan,
        "task_image": task_image,
        "maintenance_image": maintenance_image,
        "os_image_held": os_image_held,
        "gates": gates,
        "limits": limits,
        "blocked_by": blocked_by,
        "warnings": warnings,
    });
    Ok(axum::Json(body).into_response())
}
