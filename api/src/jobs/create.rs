//! `POST /api/v1/jobs`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanWrite, JsonBody};
use super::super::{request_audit, visible};
use super::order::{
    JobRequest, created_job, find_replay, idempotency_key, preview_key, refused, with_server_resources,
};
use super::view::CreatedJobView;
use access::auth::Principal;
use model::{JobStatus, RunId, Serial, Time};
use provision::JobOrder;
use recipe::Lint;
use store::{Created, Creation};
use telemetry::request_span;

/// Creates a job. A 202 response is sent after the job is stored.
pub(crate) async fn create(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    headers: HeaderMap,
    uri: Uri,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let dry_run = dry_run(uri.query())?;
    let key = if dry_run { preview_key(&headers) } else { idempotency_key(&headers) }?;
    let request: JobRequest = body.read()?;
    let order = request.order(key)?;
    request_span::of_server(Some(&order.server_serial));
    request_audit::target("server", order.server_serial.as_str());
    if dry_run {
        request_audit::changes_nothing();
    }
    visible::server(&api, &principal.servers(), &order.server_serial).await?;
    if dry_run {
        return super::dry_run::respond(&api, &principal, order).await;
    }
    let (new, response) = submit(&api, &principal, order).await?;
    if let Some(id) = new {
        request_span::of_job(id, api.engine.owner());
    }
    Ok(response)
}

/// Reads `dry_run` from the query. An unknown parameter is refused, because it may be a mistyped `dry_run`.
fn dry_run(query: Option<&str>) -> Result<bool, ApiError> {
    let mut dry_run = false;
    for parameter in query.unwrap_or_default().split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter {
            "dry_run" | "dry_run=true" | "dry_run=1" => dry_run = true,
            "dry_run=false" | "dry_run=0" => dry_run = false,
            _ => {
                let name = parameter.split('=').next().unwrap_or_default();
                let message = "the only parameter of this route is dry_run, true or false";
                return Err(ApiError::invalid(vec![Detail::new(name, Rule::Unknown, message)]));
            }
        }
    }
    Ok(dry_run)
}

/// The audit entry of the request names the job with its server: retention deletes the job before the entry.
pub(super) fn of_new_job(serial: &Serial, id: RunId) {
    request_audit::target("server", &format!("{serial}/job/{id}"));
}

/// Creates the job of an order. Returns the response, and the id if the job is new.
pub(super) async fn submit(
    api: &Api,
    principal: &Principal,
    order: JobOrder,
) -> Result<(Option<RunId>, Response), ApiError> {
    let serial = order.server_serial.clone();
    let now = api.now();
    let new_id = RunId(api.engine.id_source().new_id(now));
    let (created, lints) = match find_replay(api, &order).await? {
        Some(earlier) => (earlier, Vec::new()),
        None => {
            let resources = api.store().resources_of(vec![serial.clone()]).await?;
            let order = with_server_resources(order, resources.get(&serial));
            let ready = api.services.accept(order, new_id, &principal.name, now).map_err(refused)?;
            api.services.check_medium(&ready.recipe).await.map_err(refused)?;
            of_new_job(&serial, new_id);
            (api.engine.create(Creation { run: ready.run }).await?, ready.lints)
        }
    };
    respond(api, &serial, (new_id, now), &created, lints).await
}

/// The response for a job that a request created or found, and its id if it is new; or the refusal.
pub(super) async fn respond(
    api: &Api,
    serial: &Serial,
    (new_id, now): (RunId, Time),
    created: &Created,
    lints: Vec<Lint>,
) -> Result<(Option<RunId>, Response), ApiError> {
    let created = created_job(new_id, serial, created);
    match &created {
        Ok((id, _)) => of_new_job(serial, *id),
        // The job that the entry would name does not exist.
        Err(_) => request_audit::target("server", serial.as_str()),
    }
    let (id, is_new) = created?;
    let (code, status, created_at) = if is_new {
        (StatusCode::ACCEPTED, JobStatus::Queued, now)
    } else {
        let job = api.store().job(id).await?.ok_or_else(super::super::extract::unknown_job)?;
        (StatusCode::OK, job.status, job.run.created_at)
    };
    let warnings = if is_new { lints } else { Vec::new() };
    let body = CreatedJobView { job_id: id, status, server_serial: serial, created_at, warnings };
    Ok((is_new.then_some(id), (code, axum::Json(body)).into_response()))
}
