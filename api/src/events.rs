//! `GET /api/v1/events`: the event log of all jobs and servers, in pages or as a stream.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::ApiError;
use super::extract::{CanRead, Parameters, page_size};
use super::feed;
use super::openapi::types;
use model::{Event, RunId};
use store::EventFilter;

/// One page of events in the order of the log.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventPage {
    #[schemars(with = "Vec<types::Event>")]
    events: Vec<Event>,
    /// The position after which to continue, also when there is no new event.
    next: i64,
}

/// Returns one page of the log, or with `Accept: text/event-stream` a live stream of all events after a position.
pub(super) async fn events(
    State(api): State<Api>,
    _reader: CanRead,
    headers: HeaderMap,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Response, ApiError> {
    respond(&api, None, &headers, &query).await
}

/// Returns the events of one run or of all runs, as a page or a stream.
pub(super) async fn respond(
    api: &Api,
    run: Option<RunId>,
    headers: &HeaderMap,
    query: &HashMap<String, String>,
) -> Result<Response, ApiError> {
    let after = match feed::resume_position(headers, query.get("after").map(String::as_str))? {
        Some(seq) => seq,
        None => api.store().last_seq().await?,
    };
    if feed::accepts_stream(headers) {
        return api.feed.respond(run, after, feed::lasts(headers, api.web.idle));
    }
    let limit = page_size(query.get("limit").map(String::as_str), 200, 1000)?;
    let events = api.store().events(EventFilter { run, after, limit }).await?;
    let next = events.last().map_or(after, |event| event.seq);
    Ok(Json(EventPage { events, next }).into_response())
}
