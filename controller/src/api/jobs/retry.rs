//! `POST /api/v1/jobs/{id}/retry`: a new job with the order of an ended one.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, JobPath, JsonBody, unknown_job};
use super::{create, order as request, verbs};
use engine::model::{NewEvent, Phase};
use provision::JobOrder;

/// Creates a new job that names the old one in `retry_of`; the old job is unchanged. A repetition with the same
/// `Idempotency-Key` creates no second job.
pub(in crate::api) async fn retry(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let reason = verbs::reason(&body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    verbs::expect_unchanged(&job, &headers)?;
    if job.run.phase != Phase::Ended {
        return Err(ApiError::new(
            ErrorCode::ConflictPhase,
            format!("cannot retry a job that is {}; wait for its end or cancel it", job.run.phase.as_str()),
        ));
    }
    let snapshot = api.store().snapshot(id).await?.ok_or_else(unknown_job)?;
    let key = request::idempotency_key(&headers)?;
    let order = JobOrder::retry_of(&job, &snapshot.input, key)
        .map_err(|why| ApiError::new(ErrorCode::ConflictInput, why.to_string()))?;
    let (new, response) = create::submit(&api, &principal, order).await?;
    if let Some(new) = new {
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let event = NewEvent::info("job.retried", format!("retried as job {new}{why}"))
            .by(&principal.name)
            .with(json!({ "job_id": new }));
        api.store().append(Some(id), Some(job.server.clone()), vec![event], api.now()).await?;
    }
    Ok(response)
}
