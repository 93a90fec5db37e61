//! `GET /api/v1/jobs/{id}/events`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{JobId, Reader, page_size, unknown_job};
use crate::store::EventFilter;

/// One page of a job's events, in the order of the log. `next` is where to go on, also when there is nothing new yet.
pub(in crate::api) async fn events(
    State(api): State<Api>,
    _reader: Reader,
    JobId(id): JobId,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let after = match query.get("after").map(|text| text.parse::<i64>()) {
        None => 0,
        Some(Ok(after)) if after >= 0 => after,
        Some(_) => {
            return Err(ApiError::invalid(vec![Detail::new(
                "after",
                "range",
                "after is the seq of an event",
            )]));
        }
    };
    let limit = page_size(query.get("limit").map(String::as_str), 200, 1000)?;
    if api.store().job(id).await?.is_none() {
        return Err(unknown_job());
    }
    let events = api.store().events(EventFilter { run: Some(id), after, limit }).await?;
    let next = events.last().map_or(after, |event| event.seq);
    Ok(Json(json!({ "events": events, "next": next })))
}
