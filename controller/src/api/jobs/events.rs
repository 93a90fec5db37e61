//! `GET /api/v1/jobs/{id}/events`.

use std::collections::HashMap;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use super::super::{Api, events as log};

/// One page of a job's events, in the order of the log, or a stream of them that closes with `event: end` after the job's
/// last. `next` is where to go on, also when there is nothing new yet.
pub(in crate::api) async fn events(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    if api.store().job(id).await?.is_none() {
        return Err(unknown_job());
    }
    log::answer(&api, Some(id), &headers, &query).await
}
