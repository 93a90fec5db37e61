//! Test deliveries: sent once, at the request of an operator, with transport and signature of every other delivery.

use std::sync::Arc;

use api::{TestDelivery, WebhookTester};
use async_trait::async_trait;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::delivery::WebhookSender;
use super::dispatcher::{DispatcherContext, secret};
use model::{Event, EventLevel, IdSource, JsonText, Webhook};

/// The type of the event of a test delivery.
const KIND: &str = "webhook.test";
/// The maximum of test deliveries in flight; further ones wait.
const MAX_IN_FLIGHT: usize = 4;

/// Sends test deliveries.
pub(super) struct Tester {
    context: DispatcherContext,
    ids: Arc<dyn IdSource>,
    places: Semaphore,
}

impl Tester {
    pub(super) fn new(context: DispatcherContext, ids: Arc<dyn IdSource>) -> Self {
        Self { context, ids, places: Semaphore::new(MAX_IN_FLIGHT) }
    }
}

#[async_trait]
impl WebhookTester for Tester {
    async fn test(&self, webhook: &Webhook, by: &str) -> TestDelivery {
        // The semaphore is never closed; without a place the test would only be sent at once.
        let _place = self.places.acquire().await;
        let now = self.context.clock.wall();
        // Its own for each test: receivers leave out a delivery whose id they have seen.
        let delivery_id = format!("{}-test-{}", webhook.id, self.ids.new_id(now));
        let result = |took_ms, status, error| TestDelivery {
            delivery_id: delivery_id.clone(),
            sent_at: now,
            took_ms,
            status,
            error,
        };
        let secret = match secret(&self.context, webhook) {
            Ok(secret) => secret,
            Err(why) => return result(0, None, Some(why)),
        };
        let event = Event {
            seq: 0,
            time: now,
            run: None,
            server: None,
            kind: KIND.to_owned(),
            level: EventLevel::Info,
            step: None,
            attempt: None,
            actor: by.to_owned(),
            message: "a test of this webhook; nothing happened".to_owned(),
            data: Some(JsonText::from(&json!({ "test": true }))),
        };
        let body = json!({
            "delivery_id": delivery_id, "webhook_id": webhook.id, "test": true, "event": event,
        });
        let sender = WebhookSender { transport: self.context.transport.as_ref(), webhook, secret: &secret };
        let began = Instant::now();
        let sent = sender.send_as(&delivery_id, KIND, &body.to_string(), now).await;
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match sent {
            Ok(status) => result(took_ms, Some(status), None),
            Err(error) => result(took_ms, error.status, Some(error.why)),
        }
    }
}
