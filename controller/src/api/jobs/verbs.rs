//! `POST /api/v1/jobs/{id}/{cancel,hold,resume}`: the verbs of an operator.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, JobPath, JsonBody, unknown_job};
use super::view::{self, JobView};
use crate::auth::Principal;
use engine::Verb;
use engine::model::{Job, RunId};

/// The maximum of stored characters of a reason.
const MAX_REASON: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    reason: String,
}

/// Cancels a job; its cleanup runs.
pub(in crate::api) async fn cancel(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    apply(&api, &principal, id, Verb::Cancel, &headers, &body).await
}

/// Holds a queued or waiting job until an operator resumes or cancels it.
pub(in crate::api) async fn hold(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    apply(&api, &principal, id, Verb::Hold, &headers, &body).await
}

/// Resumes a held job.
pub(in crate::api) async fn resume(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    apply(&api, &principal, id, Verb::Resume, &headers, &body).await
}

async fn apply(
    api: &Api,
    principal: &Principal,
    id: RunId,
    verb: Verb,
    headers: &HeaderMap,
    body: &JsonBody,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let reason = reason(body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    expect_unchanged(&job, headers)?;
    api.engine.verb(id, verb, &principal.name, &reason).await?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let mut response = json!(JobView::of(&job));
    if let Some(snapshot) = api.store().snapshot(id).await? {
        // Shows what happens next and what the job waits for.
        response["explain"] = json!(api.engine.explain(&snapshot).await?);
    }
    Ok((StatusCode::ACCEPTED, Json(response)))
}

/// The reason in a request, without control characters.
pub(in crate::api) fn reason(body: &JsonBody) -> Result<String, ApiError> {
    let request: Request = body.read()?;
    Ok(request.reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect())
}

/// Refuses a request whose `If-Match` does not contain the current `ETag` of the job.
pub(super) fn expect_unchanged(job: &Job, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(expected) = headers.get(header::IF_MATCH) else { return Ok(()) };
    let current = view::etag(job.run.revision);
    let listed = |text: &str| text.split(',').map(str::trim).any(|tag| tag == "*" || tag == current);
    if expected.to_str().is_ok_and(listed) {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::PreconditionFailed,
        format!(
            "the job has changed since it was read; its ETag is now {current}: read it again, then decide"
        ),
    ))
}
