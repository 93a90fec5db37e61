//! `POST /api/v1/webhooks/{id}/disable` and `…/enable`.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, OptionalJsonBody};
use super::view::WebhookView;
use super::{WebhookPath, find, unknown};
use access::auth::Principal;
use model::{NewEvent, WebhookId};

/// A request to disable a webhook.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "DisableRequest")]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// The reason, which is recorded in an event.
    #[serde(default)]
    reason: String,
}

/// Disables a webhook; events are kept and sent after it is enabled again.
pub(crate) async fn disable(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    WebhookPath(id): WebhookPath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Json<WebhookView>, ApiError> {
    let request: Request = body.read()?;
    let reason: String = request.reason.chars().filter(|c| !c.is_control()).take(256).collect();
    let mut why = format!("by {}", principal.name);
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    switch(&api, &principal, id, Some(why)).await
}

/// Enables a webhook; it continues after the last delivered event.
pub(crate) async fn enable(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    WebhookPath(id): WebhookPath,
) -> Result<Json<WebhookView>, ApiError> {
    switch(&api, &principal, id, None).await
}

async fn switch(
    api: &Api,
    principal: &Principal,
    id: WebhookId,
    disabled: Option<String>,
) -> Result<Json<WebhookView>, ApiError> {
    let (kind, message) = match &disabled {
        Some(why) => ("webhook.disabled", format!("webhook {id} was disabled {why}")),
        None => ("webhook.enabled", format!("webhook {id} was enabled")),
    };
    let event = NewEvent::info(kind, message).by(&principal.name).with(json!({ "webhook_id": id }));
    if !api.store().set_webhook_disabled(id, disabled, event, api.now()).await? {
        return Err(unknown());
    }
    let webhook = find(api, id).await?;
    Ok(Json(WebhookView::of(&webhook, api.store().webhook_counts(id).await?)))
}
