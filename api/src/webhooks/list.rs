//! `GET /api/v1/webhooks` and `GET /api/v1/webhooks/{id}`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanRead;
use super::view::{RetryStreamView, WebhookDetailView, WebhookPage, WebhookView};
use super::{WebhookPath, find};

/// Lists all webhooks in one page.
pub(crate) async fn list(State(api): State<Api>, _reader: CanRead) -> Result<Json<WebhookPage>, ApiError> {
    let mut rows = Vec::new();
    for webhook in api.store().webhooks().await? {
        rows.push(WebhookView::of(&webhook, api.store().webhook_counts(webhook.id).await?));
    }
    Ok(Json(WebhookPage { webhooks: rows, next: None }))
}

/// Shows a webhook with its retry streams.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    WebhookPath(id): WebhookPath,
) -> Result<Json<WebhookDetailView>, ApiError> {
    let webhook = find(&api, id).await?;
    let counts = api.store().webhook_counts(id).await?;
    let retry_streams = api.store().retry_streams(id).await?.iter().map(RetryStreamView::of).collect();
    Ok(Json(WebhookDetailView { webhook: WebhookView::of(&webhook, counts), retry_streams }))
}
