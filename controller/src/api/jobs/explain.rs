//! `GET /api/v1/jobs/{id}/explain`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, JobPath, unknown_job};
use engine::model::{Job, RunId, Snapshot};
use engine::store::Unreadable;
use engine::{self, StoreError};

/// How many of the last events are shown as evidence.
const EVIDENCE: u32 = 5;

/// Explains the state of a job: reason, since when, what ends it, the last events and what an operator can do.
pub(in crate::api) async fn explain(
    State(api): State<Api>,
    _reader: CanRead,
    JobPath(id): JobPath,
) -> Result<Json<Value>, ApiError> {
    let evidence = api.store().last_events(id, EVIDENCE).await?;
    let mut response = match read(&api, id).await {
        Ok((job, snapshot)) => {
            let mut response = json!(api.engine.explain(&snapshot).await?);
            response["server_serial"] = json!(job.server);
            response["status"] = json!(job.status);
            response
        }
        Err(ExplainError::Refused(error)) => return Err(error),
        Err(ExplainError::Corrupt(error)) => {
            // The record is unreadable, so only the hold is explained. The next claim of the run sets the hold.
            let Unreadable { hold, server } = api.store().unreadable(id).await?.ok_or(error)?;
            let mut response = json!(engine::unreadable(&hold));
            response["server_serial"] = json!(server);
            response["status"] = json!(null);
            response
        }
    };
    response["job_id"] = json!(id);
    response["evidence"] = json!(evidence);
    Ok(Json(response))
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
    let snapshot = api.store().snapshot(id).await?.ok_or_else(missing)?;
    Ok((job, snapshot))
}
