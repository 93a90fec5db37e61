//! `POST /api/v1/jobs/{id}/{cancel,hold,resume}`: what an operator can ask of a job.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{Body, JobId, Writer, unknown_job};
use super::view::{self, JobView};
use crate::auth::Principal;
use engine::Verb;
use engine::model::{Job, RunId};

/// Characters of a reason that are kept.
const MAX_REASON: usize = 256;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    #[serde(default)]
    reason: String,
}

/// Ends a job; the machine is cleaned up.
pub(in crate::api) async fn cancel(
    State(api): State<Api>,
    Writer(principal): Writer,
    JobId(id): JobId,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    ask(&api, &principal, id, Verb::Cancel, &headers, &body).await
}

/// Stops a queued or waiting job until somebody decides.
pub(in crate::api) async fn hold(
    State(api): State<Api>,
    Writer(principal): Writer,
    JobId(id): JobId,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    ask(&api, &principal, id, Verb::Hold, &headers, &body).await
}

/// Lets a held job go on.
pub(in crate::api) async fn resume(
    State(api): State<Api>,
    Writer(principal): Writer,
    JobId(id): JobId,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    ask(&api, &principal, id, Verb::Resume, &headers, &body).await
}

async fn ask(
    api: &Api,
    principal: &Principal,
    id: RunId,
    verb: Verb,
    headers: &HeaderMap,
    body: &Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let reason = reason(body)?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    expect_unchanged(&job, headers)?;
    api.engine.verb(id, verb, &principal.name, &reason).await?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let mut answer = json!(JobView::of(&job));
    if let Some(snapshot) = api.store().snapshot(id).await? {
        // What follows now, and what it may have to wait for.
        answer["explain"] = json!(api.engine.explain(&snapshot).await?);
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// The reason given with a verb, without what could disturb a terminal.
pub(in crate::api) fn reason(body: &Body) -> Result<String, ApiError> {
    let request: Request = body.read()?;
    Ok(request.reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect())
}

/// Holds a request to the state its author saw: `If-Match` with the `ETag` of `GET`.
pub(super) fn expect_unchanged(job: &Job, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(expected) = headers.get(header::IF_MATCH) else { return Ok(()) };
    let current = view::etag(job.run.revision);
    let listed = |text: &str| text.split(',').map(str::trim).any(|tag| tag == "*" || tag == current);
    if expected.to_str().is_ok_and(listed) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::PRECONDITION_FAILED,
        "precondition_failed",
        format!("the job has changed since; its ETag is now {current}: look at it again, then decide"),
    ))
}
