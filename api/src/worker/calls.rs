//! `POST /worker/v1/progress`, `/report` and `/release`: what a worker says about a call that it has.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::caller::{KnownWorker, Long};
use super::parcel::parcel;
use super::{DONE, Message};
use engine::RemoteNext;
use worker::messages::{Next, Progressed, Progressing, Releasing, Reported, Reporting};

/// Writes the output of a running step, and renews the lease.
pub(super) async fn progress(
    State(api): State<Api>,
    worker: KnownWorker,
    request: Request,
) -> Result<Json<Progressed>, ApiError> {
    let Long { message: progress, place: _place } = worker.long::<Progressing>(request).await?;
    let held = worker.queues(&api)?.progress(&progress.key, progress.number, progress.output).await?;
    Ok(Json(Progressed { held, now: api.now() }))
}

/// Decides what follows a report, and commits it.
pub(super) async fn report(
    State(api): State<Api>,
    worker: KnownWorker,
    request: Request,
) -> Result<Json<Reported>, ApiError> {
    let Long { message: reporting, place: _place } = worker.long::<Reporting>(request).await?;
    let next = match worker.queues(&api)?.report(&reporting.key, reporting.report).await? {
        RemoteNext::Call(call) => Next::Call(Box::new(parcel(&api, *call).await?)),
        RemoteNext::Released => Next::Released,
        RemoteNext::Lost => Next::Lost,
    };
    Ok(Json(Reported { next, now: api.now() }))
}

/// Gives a lease back without a report.
pub(super) async fn release(
    State(api): State<Api>,
    worker: KnownWorker,
    Message(releasing): Message<Releasing>,
) -> Result<StatusCode, ApiError> {
    worker.queues(&api)?.release(&releasing.key).await?;
    Ok(DONE)
}
