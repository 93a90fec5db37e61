//! `POST /api/v1/jobs/{id}/{cancel,hold,resume,finish}`: the verbs of an operator.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, JobPath, JsonBody, OptionalJsonBody, unknown_job};
use super::view::{self, JobVerbView, JobView};
use access::auth::Principal;
use engine::{VerbError, VerbRefused};
use model::{Job, RunId, Verb};
use provision::Finished;
use telemetry::request_span;

/// The maximum of stored characters of a reason.
const MAX_REASON: usize = 256;

/// A reason for a change.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Reason")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The reason, which is recorded in an event; longer texts are cut after 256 characters.
    #[serde(default)]
    reason: String,
}

/// Cancels a job; its cleanup runs.
pub(crate) async fn cancel(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, ApiError> {
    apply(&api, &principal, id, Verb::Cancel, &headers, &body).await
}

/// Holds a queued or waiting job until an operator resumes or cancels it.
pub(crate) async fn hold(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, ApiError> {
    apply(&api, &principal, id, Verb::Hold, &headers, &body).await
}

/// Resumes a held job.
pub(crate) async fn resume(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, ApiError> {
    apply(&api, &principal, id, Verb::Resume, &headers, &body).await
}

/// Ends the rescue session of a job with success; its cleanup runs.
pub(crate) async fn finish(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    JobPath(id): JobPath,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, ApiError> {
    let reason = reason(&body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let revision = expect_unchanged(&job, &headers)?;
    match provision::finish(&api.engine, &job, revision, &principal.name, &reason).await? {
        Finished::Accepted => changed(&api, id).await,
        Finished::NoSession => Err(ApiError::new(
            ErrorCode::ConflictPhase,
            "only a job of rescue.target whose machine has reported that it is reachable has a session to finish; \
             `shoal job cancel` ends any other job",
        )),
    }
}

async fn apply(
    api: &Api,
    principal: &Principal,
    id: RunId,
    verb: Verb,
    headers: &HeaderMap,
    body: &JsonBody,
) -> Result<Response, ApiError> {
    let reason = reason(body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let revision = expect_unchanged(&job, headers)?;
    api.engine.verb_at(id, revision, verb, &principal.name, &reason).await?;
    changed(api, id).await
}

/// The response to an accepted verb.
async fn changed(api: &Api, id: RunId) -> Result<Response, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    // Shows what happens next and what the job waits for.
    let explain = match api.store().snapshot(id).await? {
        Some(snapshot) => Some(api.engine.explain(&snapshot).await?),
        None => None,
    };
    let response = Json(JobVerbView { job: JobView::of(&job), explain });
    Ok((StatusCode::ACCEPTED, response).into_response())
}

/// The reason in a request, without control characters.
pub(crate) fn reason(body: &JsonBody) -> Result<String, ApiError> {
    let request: Request = body.read()?;
    Ok(request.reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect())
}

/// Refuses a request whose `If-Match` does not contain the current `ETag` of the job. Returns the revision at which the job must still
/// be when the change is stored; `None` when any will do.
pub(super) fn expect_unchanged(job: &Job, headers: &HeaderMap) -> Result<Option<i64>, ApiError> {
    let Some(expected) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let tags: Vec<&str> = expected.to_str().unwrap_or_default().split(',').map(str::trim).collect();
    let revision = job.run.revision;
    match view::etag(revision) {
        _ if tags.contains(&"*") => Ok(None),
        current if tags.contains(&current.as_str()) => Ok(Some(revision)),
        _ => Err(VerbError::from(VerbRefused::Changed { revision }).into()),
    }
}
