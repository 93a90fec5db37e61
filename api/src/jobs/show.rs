//! `GET /api/v1/jobs/{id}`: rendered once and kept in the row cache until a row of the job changes.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, JobPath, unknown_job};
use super::view::{self, JobDetailView};
use super::workflows;
use model::RunId;
use store::{CachedJob, JobDetail};
use telemetry::request_span;

/// How many of the latest events are shown with a job; `GET …/events` returns all.
const EVENTS: u32 = 200;

/// Shows one job with its steps and latest events.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    JobPath(id): JobPath,
) -> Result<Response, ApiError> {
    let CachedJob { revision, body } = match api.store().cached_job(id) {
        Ok(cached) => {
            #[cfg(debug_assertions)]
            assert_current(&api, id, &cached).await?;
            cached
        }
        Err(ticket) => {
            let rendered = render(&api, id).await?;
            ticket.put(rendered.clone());
            rendered
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, [(header::ETAG, view::etag(revision))], body).into_response())
}

/// Renders the job from the database.
async fn render(api: &Api, id: RunId) -> Result<CachedJob, ApiError> {
    let JobDetail { job, steps, events } =
        api.store().job_detail(id, EVENTS).await?.ok_or_else(unknown_job)?;
    request_span::about(&job);
    let verbs = workflows::available(api, &job);
    let body = serde_json::to_vec(&JobDetailView::of(&job, verbs, &steps, &events))
        .map_err(|error| ApiError::unwritable(&error))?;
    Ok(CachedJob { revision: job.run.revision, body: Bytes::from(body) })
}

/// In debug builds every read of a cached job is compared with the database.
#[cfg(debug_assertions)]
async fn assert_current(api: &Api, id: RunId, cached: &CachedJob) -> Result<(), ApiError> {
    let current = render(api, id).await?;
    // A write since then has removed the cached job.
    if let Ok(still_cached) = api.store().cached_job(id)
        && still_cached.body.as_ptr() == cached.body.as_ptr()
    {
        assert_eq!(current, still_cached, "a job was still cached after a write to it");
    }
    Ok(())
}
