//! `GET /api/v1/jobs/{id}`: told once for all who ask, until something is written to the job.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use super::view::{self, JobDetailView};
use engine::model::RunId;
use engine::store::{JobDetail, Page};

/// The latest events shown with a job; the rest is a page of its own.
const EVENTS: u32 = 200;

/// Shows one job with its steps and latest events.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
) -> Result<Response, ApiError> {
    let Page { revision, body } = match api.store().page(id) {
        Ok(kept) => {
            #[cfg(debug_assertions)]
            assert_current(&api, id, &kept).await?;
            kept
        }
        Err(blank) => {
            let page = tell(&api, id).await?;
            blank.keep(page.clone());
            page
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((kind, [(header::ETAG, view::etag(revision))], body).into_response())
}

/// The job as it is in the database now.
async fn tell(api: &Api, id: RunId) -> Result<Page, ApiError> {
    let JobDetail { job, steps, events } =
        api.store().job_detail(id, EVENTS).await?.ok_or_else(unknown_job)?;
    let body = serde_json::to_vec(&JobDetailView::of(&job, &steps, &events))
        .map_err(|error| ApiError::unwritable(&error))?;
    Ok(Page { revision: job.run.revision, body: Bytes::from(body) })
}

/// Every test that looks at a job also proves that what is kept is what would be told.
#[cfg(debug_assertions)]
async fn assert_current(api: &Api, id: RunId, kept: &Page) -> Result<(), ApiError> {
    let told = tell(api, id).await?;
    // Something may have been written meanwhile; then it is no longer kept.
    if let Ok(still) = api.store().page(id)
        && still.body.as_ptr() == kept.body.as_ptr()
    {
        assert_eq!(told, still, "a page was kept although its job was written");
    }
    Ok(())
}
