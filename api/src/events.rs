//! `GET /api/v1/events`: the event log of all jobs and servers, in pages or as a stream.
//!
//! ```text
//!   after=N    oldest first ──> next       follows the log
//!   before=N   newest first ──> previous   looks back; before=latest begins at the end
//! ```
//!
//! A page has its filters; a stream has every event. Either order returns a page in the order of the log.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::extract::{CanRead, Parameters, page_size};
use super::feed;
use super::openapi::types;
use model::filter::Glob;
use model::{Event, EventLevel, RunId};
use store::{ActorSearch, EventSearch, LogPlace};

/// The most globs of types in one request.
const MAX_TYPES: usize = 32;
/// The parameters that only a page has.
const OF_A_PAGE: [&str; 7] = ["before", "server", "type", "level", "actor", "since", "until"];
/// The `actor` that stands for every user and token.
const PEOPLE: &str = "people";
/// The maximum length of the name of an actor.
const MAX_ACTOR: usize = 128;

/// One page of events in the order of the log.
#[derive(Serialize, JsonSchema)]
pub(super) struct EventPage {
    #[schemars(with = "Vec<types::Event>")]
    events: Vec<Event>,
    /// The position after which to continue, also when there is no new event.
    next: i64,
    /// The `before` of the page of older events. Null: there are none, or the page is after a position. A page without events may have
    /// one, since a request reads a part of the log at most.
    previous: Option<i64>,
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
    let text = |name: &str| query.get(name).map(String::as_str);
    if feed::accepts_stream(headers) {
        if let Some(name) = OF_A_PAGE.iter().find(|name| query.contains_key(**name)) {
            let message =
                format!("a stream has every event after a position and no {name}; ask for pages instead");
            return Err(ApiError::invalid(vec![Detail::new(name, Rule::Value, message)]));
        }
        let after = match feed::resume_position(headers, text("after"))? {
            Some(seq) => seq,
            None => api.store().last_seq().await?,
        };
        return api.feed.respond(run, after, feed::lasts(headers, api.web.idle));
    }
    let place = match (text("before"), text("after")) {
        (Some(_), Some(_)) => {
            let message = "a page has one place: give before or after";
            return Err(ApiError::invalid(vec![Detail::new("before", Rule::Value, message)]));
        }
        (Some("latest"), None) => LogPlace::Newest,
        (Some(before), None) => LogPlace::Before(position("before", before)?),
        (None, _) => match feed::resume_position(headers, text("after"))? {
            Some(seq) => LogPlace::After(seq),
            None => LogPlace::After(api.store().last_seq().await?),
        },
    };
    let limit = page_size(text("limit"), 200, 1000)?;
    let found = api.store().search_events(search(run, query)?, place, limit).await?;
    let store::EventsFound { events, next, previous } = found;
    Ok(Json(EventPage { events, next, previous }).into_response())
}

/// The filters of a request.
fn search(run: Option<RunId>, query: &HashMap<String, String>) -> Result<EventSearch, ApiError> {
    let refused =
        |name: &str, rule, message: String| ApiError::invalid(vec![Detail::new(name, rule, message)]);
    let text = |name: &str| query.get(name).map(String::as_str);
    let time = |name: &str| {
        let parsed = text(name).map(str::parse).transpose();
        parsed.map_err(|_| {
            refused(name, Rule::Format, format!("{name} is a time such as 2026-11-23T08:00:00Z"))
        })
    };
    let server = text("server").map(str::parse).transpose();
    let server =
        server.map_err(|_| refused("server", Rule::Format, "server is a serial number".to_owned()))?;
    let types = text("type").map_or_else(Vec::new, |types| types.split(',').map(str::trim).collect());
    let globs: Result<Vec<Glob>, _> = types.iter().take(MAX_TYPES + 1).map(|glob| glob.parse()).collect();
    let Some(types) = globs.ok().filter(|globs| globs.len() <= MAX_TYPES) else {
        let message = format!(
            "type is 1 to {MAX_TYPES} types of docs/events.md with commas between them, such as job.*,server.updated; * stands \
             for any characters, ? for one"
        );
        return Err(refused("type", Rule::Format, message));
    };
    let level = match text("level") {
        None => None,
        Some("info") => Some(EventLevel::Info),
        Some("warn") => Some(EventLevel::Warn),
        Some("error") => Some(EventLevel::Error),
        Some(_) => {
            return Err(refused("level", Rule::Enum, "level is info, warn or error".to_owned()));
        }
    };
    let actor = match text("actor") {
        None => None,
        Some(PEOPLE) => Some(ActorSearch::People),
        Some(name) if (1..=MAX_ACTOR).contains(&name.len()) => Some(ActorSearch::Named(name.to_owned())),
        Some(_) => {
            let message = format!("actor is a name of 1 to {MAX_ACTOR} characters, or {PEOPLE}");
            return Err(refused("actor", Rule::Length, message));
        }
    };
    Ok(EventSearch { run, server, types, level, actor, since: time("since")?, until: time("until")? })
}

/// A position of the log.
fn position(name: &str, text: &str) -> Result<i64, ApiError> {
    text.parse().ok().filter(|place| *place >= 0).ok_or_else(|| {
        let message = format!("{name} is the seq of an event, a number from 0, or latest");
        ApiError::invalid(vec![Detail::new(name, Rule::Range, message)])
    })
}
