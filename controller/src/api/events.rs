//! `GET /api/v1/events`: the one log, of all jobs and servers, by pages or as a stream.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::Api;
use super::error::ApiError;
use super::extract::{Reader, page_size};
use super::feed;
use engine::model::RunId;
use engine::store::EventFilter;

/// One page of the log, or with `Accept: text/event-stream` everything from a place on, as it happens.
pub(super) async fn events(
    State(api): State<Api>,
    _reader: Reader,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    answer(&api, None, &headers, &query).await
}

/// The events of one run, or of everything.
pub(super) async fn answer(
    api: &Api,
    run: Option<RunId>,
    headers: &HeaderMap,
    query: &HashMap<String, String>,
) -> Result<Response, ApiError> {
    let after = feed::place(headers, query.get("after").map(String::as_str))?;
    if feed::wanted(headers) {
        return api.feed.answer(run, after);
    }
    let limit = page_size(query.get("limit").map(String::as_str), 200, 1000)?;
    let events = api.store().events(EventFilter { run, after, limit }).await?;
    let next = events.last().map_or(after, |event| event.seq);
    Ok(Json(json!({ "events": events, "next": next })).into_response())
}
