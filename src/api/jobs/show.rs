//! `GET /api/v1/jobs/{id}`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use super::view::{self, StoryView};
use crate::store::JobStory;

/// The latest events shown with a job; the rest is a page of its own.
const EVENTS: u32 = 200;

/// Shows one job with its steps and latest events.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
) -> Result<Response, ApiError> {
    let JobStory { job, steps, events } = api.store().job_story(id, EVENTS).await?.ok_or_else(unknown_job)?;
    let mut headers = HeaderMap::new();
    if let Ok(tag) = HeaderValue::from_str(&view::etag(&job)) {
        headers.insert(header::ETAG, tag);
    }
    Ok((headers, Json(StoryView::of(&job, &steps, &events))).into_response())
}
