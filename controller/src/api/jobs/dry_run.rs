//! `POST /api/v1/jobs?dry_run=true`: what the order would come to. Nothing is written.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::unknown_server;
use super::create::{earlier, made, placed, refused};
use crate::auth::Principal;
use engine::Created;
use engine::model::{Gate, RunId};
use provision::{DryRun, JobOrder};

/// Answers with the plan of an order. What would refuse it only now (another job of the server, a key that is taken) is part
/// of the answer; what is wrong with the order itself is refused as always.
pub(super) async fn answer(api: &Api, principal: &Principal, order: JobOrder) -> Result<Response, ApiError> {
    let serial = order.server_serial.clone();
    let now = api.now();
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let created = match earlier(api, &order).await? {
        Some(earlier) => Some(earlier),
        None => api.store().active_job(&serial).await?.map(|holder| Created::Conflict { holder }),
    };
    let (would, job, refusal) = match created.map(|created| made(RunId::new(), &serial, &created)) {
        None => ("accept", None, Value::Null),
        Some(Ok((job, _))) => ("replay", Some(job), Value::Null),
        Some(Err(why)) => ("refuse", None, json!({ "status": why.status().as_u16(), "error": why.body() })),
    };
    let mut order = order;
    if would == "replay" {
        // It was accepted when it was new; its deadline may have passed since.
        order.deadline = order.deadline.filter(|deadline| *deadline > now);
    }
    let standing = api.store().resources_of(vec![serial.clone()]).await?;
    let order = placed(order, standing.get(&serial));
    let kind = api.engine.kinds().get(provision::KIND).cloned();
    let kind =
        kind.ok_or_else(|| ApiError::not_found("unknown_kind", "this controller provisions nothing"))?;
    let rehearsal = api.site.dry_run(&*kind, order, &server, &principal.name, now).await.map_err(refused)?;
    let DryRun { run, steps, slot_plan, task_image, maintenance_image, os_image_held, lints, blocked_by } =
        rehearsal;
    let mut gates = Vec::new();
    gates.extend(api.store().drained().await?.map(Gate::Drain));
    gates.extend(server.maintenance.map(|closed| Gate::Maintenance(serial.clone(), closed)));
    gates.extend(api.engine.pressure().map(Gate::Pressure));
    let gates: Vec<Value> =
        gates.iter().map(|gate| json!({ "name": gate.name(), "since": gate.since() })).collect();
    let limits: Vec<Value> = run
        .locks
        .iter()
        .map(|lock| json!({ "resource": lock.resource, "places": lock.places, "limit": kind.limit(&lock.resource) }))
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
