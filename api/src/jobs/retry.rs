//! `POST /api/v1/jobs/{id}/retry`: a new job with the order of an ended one.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, JobPath, OptionalJsonBody, unknown_job};
use super::workflows::Retry;
use super::{create, order as request, verbs};
use diagnostics::DiagnosticsOrder;
use model::{Idempotency, NewEvent, Phase, RunId};
use provision::JobOrder;
use store::Creation;
use telemetry::request_span;
use upkeep::UpkeepOrder;

/// Creates a new job that names the old one in `retry_of`; the old job is unchanged. A repetition with the same
/// `Idempotency-Key` creates no second job.
pub(crate) async fn retry(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, ApiError> {
    let reason = verbs::reason(&body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    verbs::expect_unchanged(&job, &headers)?;
    if job.run.phase != Phase::Ended {
        return Err(ApiError::new(
            ErrorCode::ConflictPhase,
            format!("cannot retry a job that is {}; wait for its end or cancel it", job.run.phase.as_str()),
        ));
    }
    let retry = Retry::of(&job.run.workflow).ok_or_else(|| {
        let message = format!("jobs of the workflow {} are not retried", job.run.workflow);
        ApiError::new(ErrorCode::ConflictVerb, message)
    })?;
    let snapshot = api.store().snapshot(id).await?.ok_or_else(unknown_job)?;
    let key = request::idempotency_key(&headers)?;
    let idempotency = key
        .map(|key| Idempotency { key, request_sha256: hex::encode(Sha256::digest(format!("retry {id}"))) });
    let (new, response) = match retry {
        Retry::Installation => {
            let order = JobOrder::retry_of(&job, &snapshot, idempotency)
                .map_err(|why| ApiError::new(ErrorCode::ConflictInput, why.to_string()))?;
            create::submit(&api, &principal, order).await?
        }
        Retry::Upkeep => {
            let order = UpkeepOrder::repeat(&snapshot).ok_or_else(|| {
                ApiError::new(ErrorCode::ConflictInput, "the order of the job cannot be read")
            })?;
            let server = order.input.server.clone();
            let earlier = api.store().earlier(&server, idempotency.as_ref()).await?;
            let passed = order.input.action.restart_window().until.filter(|until| *until <= api.now());
            if let (Some(until), None) = (passed, earlier) {
                let message =
                    format!("the maintenance window of the job ended at {until}; order it with another one");
                return Err(ApiError::new(ErrorCode::ConflictInput, message));
            }
            let order = match api.store().server(&server).await? {
                Some(record) => order.in_facility_of(&record.labels),
                None => order,
            };
            let resources = api.store().resources_of(vec![server.clone()]).await?;
            let shared_bmc = resources.get(&server).and_then(|resources| resources.shared_bmc.clone());
            let (new, created_at) = (RunId(api.engine.id_source().new_id(api.now())), api.now());
            create::of_new_job(&server, new);
            let order = UpkeepOrder { shared_bmc, idempotency, ..order };
            let run = order.run(new, &principal.name, created_at);
            let created = api.engine.create(Creation { run }).await?;
            create::respond(&api, &server, (new, created_at), &created, Vec::new()).await?
        }
        Retry::Diagnostics => {
            let order = DiagnosticsOrder::repeat(&snapshot).ok_or_else(|| {
                ApiError::new(ErrorCode::ConflictInput, "the order of the diagnostics cannot be read")
            })?;
            let (new, created_at) = (RunId(api.engine.id_source().new_id(api.now())), api.now());
            create::of_new_job(&order.server, new);
            let mut run =
                diagnostics::order(&order, new, api.services.seed(new), &principal.name, created_at);
            run.request.idempotency = idempotency;
            let created = api.engine.create(Creation { run }).await?;
            create::respond(&api, &order.server, (new, created_at), &created, Vec::new()).await?
        }
    };
    if let Some(new) = new {
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let event = NewEvent::info("job.retried", format!("retried as job {new}{why}"))
            .by(&principal.name)
            .with(json!({ "job_id": new }));
        api.store().append(Some(id), job.run.server.clone(), vec![event], api.now()).await?;
    }
    Ok(response)
}
