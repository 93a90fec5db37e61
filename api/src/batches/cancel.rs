//! `POST /api/v1/batches/{id}/cancel`.
//!
//! Invariant: a caller that says how many jobs it saw cancels no more of them: a batch that another caller continues in between is
//! not aborted by the answer to an older question.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, OptionalJsonBody, TextPath};
use super::show::find;
use super::view::{BatchView, CancelledBatchView};

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "BatchCancelRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The reason, which is recorded in events.
    #[serde(default)]
    reason: String,
    /// Also cancels running jobs; their cleanup runs.
    #[serde(default)]
    all: bool,
    /// The number of jobs that have not begun, as the caller saw it. The request is refused if more have not begun now.
    expected_queued: Option<u64>,
    /// The number of jobs that have begun and not ended, as the caller saw it. With `all` the request is refused if more are under
    /// way now.
    expected_running: Option<u64>,
}

/// Cancels the queued jobs of a batch, or with `all` every job that has not ended.
pub(crate) async fn cancel(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(id): TextPath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<CancelledBatchView>), ApiError> {
    let request: Request = body.read()?;
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(256).collect();
    let batch = find(&api, &id).await?;
    let jobs = api.store().open_jobs_of_batch(batch.id, !request.all).await?;
    // After the list: a job that begins in between is counted as under way.
    let now = BatchView::of(&batch, &api.store().batch_counts(batch.id).await?);
    expect_no_more(&request, now.unfinished())?;
    let cancelled = api.engine.cancel_all(&jobs, &principal.name, &reason).await?;
    let batch = BatchView::of(&batch, &api.store().batch_counts(batch.id).await?);
    Ok((StatusCode::ACCEPTED, Json(CancelledBatchView { batch, cancelled_now: cancelled })))
}

/// Refuses a cancel of more jobs than the caller saw. Fewer are no reason: jobs of a running batch end all the time, and a cancel of
/// such a batch must be possible.
fn expect_no_more(request: &Request, (queued, running): (u64, u64)) -> Result<(), ApiError> {
    let more = |now: u64, expected: Option<u64>| expected.is_some_and(|expected| now > expected);
    let exceeds =
        more(queued, request.expected_queued) || request.all && more(running, request.expected_running);
    if !exceeds {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::PreconditionFailed,
        format!(
            "{queued} jobs of the batch have not begun now and {running} are under way, which is more than expected; nothing was \
             done: look at the batch again"
        ),
    ))
}
