//! `GET /api/v1/jobs/{id}/events`.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::super::error::ApiError;
use super::super::extract::{CanRead, JobPath, Parameters, unknown_job};
use super::super::{Api, events as log};
use telemetry::request_span;

/// Returns one page of the events of a job in the order of the log, or a stream that closes with `event: end` after the last
/// event. `next` is the position after which to continue, also when there is no new event.
pub(crate) async fn events(
    State(api): State<Api>,
    _reader: CanRead,
    JobPath(id): JobPath,
    headers: HeaderMap,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    log::respond(&api, Some(id), &headers, &query).await
}
