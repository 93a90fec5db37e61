//! `GET /api/v1/webhooks/{id}/dead-letters` and `POST …/dead-letters/redeliver`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanAdminister, CanRead, OptionalJsonBody, Parameters, page_size};
use super::view::{DeadLetterPage, DeadLetterView, RedeliveryView};
use super::{WebhookPath, find};
use model::NewEvent;

/// Lists the dead letters of a webhook in the order of the log.
pub(crate) async fn list_dead_letters(
    State(api): State<Api>,
    _reader: CanRead,
    WebhookPath(id): WebhookPath,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<DeadLetterPage>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 100, 1000)?;
    find(&api, id).await?;
    let letters = api.store().dead_letters(id, false, limit).await?;
    let dead_letters = letters.iter().map(DeadLetterView::of).collect();
    Ok(Json(DeadLetterPage { dead_letters, next: None }))
}

/// A request for redelivery.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RedeliveryRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The event of one dead letter; all dead letters when absent.
    seq: Option<i64>,
}

/// Requests one more delivery of dead letters under their delivery ids; a letter that is refused again stays.
pub(crate) async fn redeliver(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    WebhookPath(id): WebhookPath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<(StatusCode, Json<RedeliveryView>), ApiError> {
    let request: Request = body.read()?;
    find(&api, id).await?;
    let what = request.seq.map_or("all".to_owned(), |seq| format!("event {seq}"));
    let event = NewEvent::info(
        "webhook.redelivered",
        format!("redelivery of dead letters of webhook {id} requested: {what}"),
    )
    .by(&principal.name)
    .with(json!({ "webhook_id": id, "seq": request.seq }));
    let requested = api.store().redeliver(id, request.seq, event, api.now()).await?;
    if let (0, Some(seq)) = (requested, request.seq) {
        let message = format!(
            "event {seq} is not a dead letter of this webhook; `shoal webhook dead-letters` lists them"
        );
        return Err(ApiError::new(ErrorCode::UnknownDeadLetter, message));
    }
    Ok((StatusCode::ACCEPTED, Json(RedeliveryView { requested })))
}
