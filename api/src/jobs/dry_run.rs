//! `POST /api/v1/jobs?dry_run=true`: the preview of a job. Nothing is written and nothing is sent to a BMC.

use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::unknown_server;
use super::order::{created_job, find_replay, refused, with_server_resources};
use super::view::{DryRunView, GateView, LimitView, RefusalView, Would};
use access::auth::Principal;
use model::{Gate, RunId};
use provision::{DryRun, JobOrder};
use store::Created;

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
        None => (Would::Accept, None, None),
        Some(Ok((job, _))) => (Would::Replay, Some(job), None),
        Some(Err(why)) => {
            (Would::Refuse, None, Some(RefusalView { status: why.status().as_u16(), error: why.body() }))
        }
    };
    let mut order = order;
    if would == Would::Replay {
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
    let gates =
        gates.iter().map(|gate| GateView { name: gate.name().to_owned(), since: gate.since() }).collect();
    let limits = run
        .locks
        .iter()
        .map(|lock| LimitView {
            resource: lock.resource.clone(),
            capacity: lock.capacity,
            limit: workflow.limit_setting(&lock.resource),
        })
        .collect();
    let body = DryRunView {
        dry_run: true,
        would,
        refused: refusal,
        job_id: job,
        server_serial: serial,
        deadline_at: run.deadline_at,
        priority: run.priority,
        steps,
        slot_plan,
        task_image,
        maintenance_image,
        os_image_held,
        gates,
        limits,
        blocked_by,
        warnings: lints,
    };
    Ok(axum::Json(body).into_response())
}
