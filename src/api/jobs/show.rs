//! `GET /api/v1/jobs/{id}`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use super::view;

/// The latest events shown with a job; the rest is a page of its own.
const EVENTS: u32 = 200;

/// Shows one job with its steps and latest events.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
) -> Result<(HeaderMap, Json<Value>), ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let steps = match api.store().snapshot(id).await {
        Ok(snapshot) => snapshot.ok_or_else(unknown_job)?.steps,
        // The job itself is shown also when its records cannot be read; `explain` says why.
        Err(error) if error.is_corrupt() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let events = api.store().last_events(id, EVENTS).await?;
    let mut headers = HeaderMap::new();
    if let Ok(tag) = HeaderValue::from_str(&view::etag(&job)) {
        headers.insert(header::ETAG, tag);
    }
    Ok((headers, Json(view::whole(&job, &steps, &events))))
}
