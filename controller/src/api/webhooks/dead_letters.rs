//! `GET /api/v1/webhooks/{id}/dead` and `POST …/dead/retry`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{Body, Reader, Writer, page_size};
use super::{WebhookPath, find, view};
use engine::model::NewEvent;

/// What was given up, in the order of the log.
pub(in crate::api) async fn dead(
    State(api): State<Api>,
    _reader: Reader,
    WebhookPath(id): WebhookPath,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 100, 1000)?;
    find(&api, id).await?;
    let letters: Vec<Value> =
        api.store().dead_letters(id, false, limit).await?.iter().map(view::dead).collect();
    Ok(Json(json!({ "dead": letters, "next": null })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// One event; all of them when absent.
    seq: Option<i64>,
}

/// Has dead letters tried once more, under the same delivery id; what is not taken stays where it is.
pub(in crate::api) async fn retry(
    State(api): State<Api>,
    Writer(principal): Writer,
    WebhookPath(id): WebhookPath,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let request: Request = body.read()?;
    find(&api, id).await?;
    let what = request.seq.map_or("all".to_owned(), |seq| format!("event {seq}"));
    let event =
        NewEvent::info("webhook.redelivered", format!("{what} given up for webhook {id} is tried again"))
            .by(&principal.name)
            .with(json!({ "webhook_id": id, "seq": request.seq }));
    let raised = api.store().redeliver(id, request.seq, event, api.now()).await?;
    if let (0, Some(seq)) = (raised, request.seq) {
        let message =
            format!("event {seq} is no dead letter of this webhook; `shoal webhook dead` shows them");
        return Err(ApiError::not_found("unknown_dead_letter", message));
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "retried": raised }))))
}
