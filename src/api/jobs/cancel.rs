//! `POST /api/v1/jobs/{id}/cancel`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{Body, JobId, Writer, unknown_job};
use super::view;
use crate::engine::Verb;

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
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let request: Request = body.read()?;
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
    if api.store().job(id).await?.is_none() {
        return Err(unknown_job());
    }
    api.engine.verb(id, Verb::Cancel, &principal.name, &reason).await?;
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    Ok((StatusCode::ACCEPTED, Json(view::job(&job))))
}
