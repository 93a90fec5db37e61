//! `GET /api/v1/jobs/{id}/explain`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use engine::model::{Job, RunId, Snapshot};
use engine::store::Unreadable;
use engine::{self, StoreError};

/// The events shown as the last evidence.
const EVIDENCE: u32 = 5;

/// Says why a job is where it is, since when, what ends it, what was seen last and what a person can do.
pub(in crate::api) async fn explain(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
) -> Result<Json<Value>, ApiError> {
    let evidence = api.store().last_events(id, EVIDENCE).await?;
    let mut answer = match read(&api, id).await {
        Ok((job, snapshot)) => {
            let mut answer = json!(api.engine.explain(&snapshot).await?);
            answer["server_serial"] = json!(job.server);
            answer["status"] = json!(job.status);
            answer
        }
        Err(Unread::Refused(error)) => return Err(error),
        Err(Unread::Corrupt(error)) => {
            // Nothing can be said of it but why it is held; that it is, is seen at its next claim.
            let Unreadable { hold, server } = api.store().unreadable(id).await?.ok_or(error)?;
            let mut answer = json!(engine::unreadable(&hold));
            answer["server_serial"] = json!(server);
            answer["status"] = json!(null);
            answer
        }
    };
    answer["job_id"] = json!(id);
    answer["evidence"] = json!(evidence);
    Ok(Json(answer))
}

/// Why a job could not be read.
enum Unread {
    Refused(ApiError),
    Corrupt(StoreError),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        if error.is_corrupt() { Self::Corrupt(error) } else { Self::Refused(error.into()) }
    }
}

async fn read(api: &Api, id: RunId) -> Result<(Job, Snapshot), Unread> {
    let missing = || Unread::Refused(unknown_job());
    let job = api.store().job(id).await?.ok_or_else(missing)?;
    let snapshot = api.store().snapshot(id).await?.ok_or_else(missing)?;
    Ok((job, snapshot))
}
