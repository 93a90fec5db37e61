//! `DELETE /api/v1/webhooks/{id}`.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanAdminister;
use super::{WebhookPath, unknown};
use model::NewEvent;

/// Deletes a webhook with its undelivered events and dead letters.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    WebhookPath(id): WebhookPath,
) -> Result<StatusCode, ApiError> {
    let event = NewEvent::info("webhook.deleted", format!("webhook {id} was deleted"))
        .by(&principal.name)
        .with(json!({ "webhook_id": id }));
    if api.store().delete_webhook(id, event, api.now()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown())
    }
}
