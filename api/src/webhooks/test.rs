//! `POST /api/v1/webhooks/{id}/test`.

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::CanAdminister;
use super::super::openapi::types;
use super::{WebhookPath, find};
use model::{NewEvent, Time, Webhook, WebhookId};

/// Sends test deliveries. The controller implements it with the transport and the signature of every other delivery.
#[async_trait]
pub trait WebhookTester: Send + Sync {
    /// Sends one delivery that is marked as a test, once. `by` is the user who requested it.
    async fn test(&self, webhook: &Webhook, by: &str) -> TestDelivery;
}

/// The result of a test delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDelivery {
    /// The delivery id, header `X-Shoal-Delivery`.
    pub delivery_id: String,
    /// When the test delivery was sent.
    pub sent_at: Time,
    /// How long the response took, in milliseconds.
    pub took_ms: u64,
    /// The HTTP status of the response; `None` without a response.
    pub status: Option<u16>,
    /// Why the delivery was not accepted; `None` if it was.
    pub error: Option<String>,
}

/// The result of a test delivery.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookTest")]
pub(crate) struct WebhookTestView {
    #[schemars(with = "types::WebhookId")]
    webhook_id: WebhookId,
    /// The delivery id, header `X-Shoal-Delivery`.
    delivery_id: String,
    /// When it was sent.
    #[schemars(with = "types::Timestamp")]
    sent_at: Time,
    /// How long the response took, in milliseconds.
    took_ms: u64,
    /// Whether the receiver responded with a 2xx status.
    accepted: bool,
    /// The HTTP status of the response; null without a response.
    status: Option<u16>,
    /// Why the delivery was not accepted; null if it was.
    error: Option<String>,
}

/// Sends one test delivery and returns what the receiver responded. It is signed as any other, and its event is `webhook.test`.
/// A failed test is not repeated and changes nothing of the webhook; a disabled webhook can be tested too.
pub(crate) async fn test(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    WebhookPath(id): WebhookPath,
) -> Result<Json<WebhookTestView>, ApiError> {
    let webhook = find(&api, id).await?;
    let tester = api.webhook_tests.as_ref().ok_or_else(|| {
        ApiError::new(
            ErrorCode::Unavailable,
            "this controller sends no webhooks; try again when it has started",
        )
    })?;
    let tested = tester.test(&webhook, &principal.name).await;
    let target = webhook.origin();
    let event = match &tested.error {
        None => {
            NewEvent::info("webhook.tested", format!("{target} accepted a test delivery of webhook {id}"))
        }
        Some(why) => NewEvent::warn(
            "webhook.tested",
            format!("{target} did not accept a test delivery of webhook {id}: {why}"),
        ),
    };
    let event = event
        .by(&principal.name)
        .with(json!({ "webhook_id": id, "delivery_id": tested.delivery_id, "status": tested.status }));
    api.store().record_event(event, api.now()).await?;
    Ok(Json(WebhookTestView {
        webhook_id: id,
        delivery_id: tested.delivery_id,
        sent_at: tested.sent_at,
        took_ms: tested.took_ms,
        accepted: tested.error.is_none(),
        status: tested.status,
        error: tested.error,
    }))
}
