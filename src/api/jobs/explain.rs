//! `GET /api/v1/jobs/{id}/explain`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JobId, Reader, unknown_job};
use crate::engine;

/// The events shown as the last evidence.
const EVIDENCE: u32 = 5;

/// Says why a job is where it is, since when, what ends it, what was seen last and what a person can do.
pub(in crate::api) async fn explain(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
) -> Result<Json<Value>, ApiError> {
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let snapshot = api.store().snapshot(id).await?.ok_or_else(unknown_job)?;
    let line = api.store().in_line_for(snapshot.run.root).await?;
    let explanation = engine::explain(&snapshot, api.engine.kinds(), line.as_ref(), api.now());
    let evidence = api.store().last_events(id, EVIDENCE).await?;
    let mut answer = json!(explanation);
    answer["job_id"] = json!(id);
    answer["server_serial"] = json!(job.server);
    answer["status"] = json!(job.status);
    answer["evidence"] = json!(evidence);
    Ok(Json(answer))
}
