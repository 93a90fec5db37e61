//! `GET /api/v1/webhooks` and `GET /api/v1/webhooks/{id}`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanRead;
use super::{WebhookPath, find, view};

/// Lists all webhooks in one page.
pub(in crate::api) async fn list(State(api): State<Api>, _reader: CanRead) -> Result<Json<Value>, ApiError> {
    let mut rows = Vec::new();
    for webhook in api.store().webhooks().await? {
        rows.push(view::webhook(&webhook, api.store().webhook_counts(webhook.id).await?));
    }
    Ok(Json(json!({ "webhooks": rows, "next": null })))
}

/// Shows a webhook with its retry streams.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    WebhookPath(id): WebhookPath,
) -> Result<Json<Value>, ApiError> {
    let webhook = find(&api, id).await?;
    let mut shown = view::webhook(&webhook, api.store().webhook_counts(id).await?);
    let retrying: Vec<Value> = api.store().retry_streams(id).await?.iter().map(view::retry_stream).collect();
    shown["retry_streams"] = json!(retrying);
    Ok(Json(shown))
}
