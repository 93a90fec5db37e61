//! `GET /api/v1/jobs/{id}/explain`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, JobPath, unknown_job};
use super::view::JobExplanationView;
use model::{Job, RunId, Snapshot};
use store::{StoreError, Unreadable};
use telemetry::request_span;

/// How many of the last events are shown as evidence.
const EVIDENCE: u32 = 5;

/// Explains the state of a job: reason, since when, what ends it, the last events and what an operator can do.
pub(crate) async fn explain(
    State(api): State<Api>,
    _reader: CanRead,
    JobPath(id): JobPath,
) -> Result<Json<JobExplanationView>, ApiError> {
    explanation(&api, id).await.map(Json)
}

/// The explanation of a job.
pub(crate) async fn explanation(api: &Api, id: RunId) -> Result<JobExplanationView, ApiError> {
    let evidence = api.store().last_events(id, EVIDENCE).await?;
    let (explanation, server_serial, status) = match read(api, id).await {
        Ok((job, snapshot)) => {
            let explanation = api.engine.explain(&snapshot).await?;
            (explanation, job.run.server.map(|server| server.to_string()), Some(job.status))
        }
        Err(ExplainError::Refused(error)) => return Err(error),
        Err(ExplainError::Corrupt(error)) => {
            // The record is unreadable, so only the hold is explained. The next claim of the run sets the hold.
            let Unreadable { hold, server } = api.store().unreadable(id).await?.ok_or(error)?;
            (engine::unreadable(&hold), server, None)
        }
    };
    Ok(JobExplanationView { explanation, job_id: id, server_serial, status, evidence })
}

/// The reason why a job could not be read.
enum ExplainError {
    Refused(ApiError),
    Corrupt(StoreError),
}

impl From<StoreError> for ExplainError {
    fn from(error: StoreError) -> Self {
        if error.is_corrupt() { Self::Corrupt(error) } else { Self::Refused(error.into()) }
    }
}

async fn read(api: &Api, id: RunId) -> Result<(Job, Snapshot), ExplainError> {
    let missing = || ExplainError::Refused(unknown_job());
    let job = api.store().job(id).await?.ok_or_else(missing)?;
    request_span::about(&job);
    let snapshot = api.store().snapshot(id).await?.ok_or_else(missing)?;
    Ok((job, snapshot))
}
