//! The receiver of the outgoing webhook of a world.
//!
//! ```text
//!   dispatcher --ReceiverTransport (delay, death of the process)--> signed? unchanged? in order? --> 204
//!                     \- by the seed: 500, no connection, or a lost response
//!   at the end: every event of the log that the webhook subscribes to was accepted
//! ```
//!
//! Invariants: the first deliveries of the events of a job are in order; a repeated delivery has the same id and bytes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::boundary::Boundary;
use super::received::WebhookReceiver;
use super::world::World;
use controller::webhooks::{WebhookDelivery, WebhookTransport};
use model::WebhookId;
use secrets::{hmac_sha256, sha256};
use store::StoreError;

/// The URL of the webhook.
pub(super) const URL: &str = "http://10.2.0.1/events";
/// The secret that signs deliveries.
pub(super) const SECRET: &str = "selftest-secret-of-the-receiver";
/// Page size for reading events at the end.
const PAGE: u32 = 1000;

/// The transport from one controller to the receiver.
pub(super) struct ReceiverTransport {
    pub(super) boundary: Arc<Boundary>,
    pub(super) world: Arc<World>,
}

#[async_trait]
impl WebhookTransport for ReceiverTransport {
    async fn send(&self, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        self.boundary.call_out().await;
        let delay = self.world.receiver.rng.time(Duration::from_millis(1), Duration::from_millis(80));
        let response = async {
            tokio::time::sleep(delay).await;
            self.world.receiver.respond(&self.world, delivery)
        };
        let response = self.boundary.while_alive(response).await;
        self.boundary.call_out().await;
        response
    }
}

impl WebhookReceiver {
    fn respond(&self, world: &World, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        let unreachable = || Err("the receiver is unreachable".to_owned());
        if world.faults_active() {
            let now = world.clock.passed();
            match self.rng.below(300) {
                0 => {
                    let away = self.rng.seconds(30, 5400);
                    world.note(&format!("the receiver is unreachable for {} s", away.as_secs()));
                    self.received().away_until = now + away;
                }
                1..=20 => return Ok(500),
                21..=40 => {
                    self.accept(world, delivery);
                    return Err("the response is lost".to_owned());
                }
                _ => {}
            }
            if now < self.received().away_until {
                return unreachable();
            }
        }
        self.accept(world, delivery);
        Ok(204)
    }

    /// Accepts an event and checks signature, id, content and order.
    fn accept(&self, world: &World, delivery: WebhookDelivery<'_>) {
        if !signed(delivery) {
            world.checker.violation(format!("delivery {} is not signed as documented", delivery.id));
        }
        let body: Value = serde_json::from_str(delivery.body).unwrap_or(Value::Null);
        let webhook = body["webhook_id"].as_str().and_then(|id| id.parse::<WebhookId>().ok());
        let (Some(webhook), Some(seq)) = (webhook, body["event"]["seq"].as_i64()) else {
            return world.checker.violation(format!("delivery {} contains no event", delivery.id));
        };
        if delivery.id != webhook.delivery(seq) {
            world.checker.violation(format!("event {seq} is delivered as {}", delivery.id));
        }
        let job = body["event"]["job_id"].as_str().unwrap_or_default().to_owned();
        let digest = sha256(delivery.body);
        let (before, last) = {
            let mut received = self.received();
            let before = received.accepted.entry(webhook).or_default().insert(seq, digest);
            let last = received.last.entry((webhook, job.clone())).or_insert(seq);
            let was = *last;
            *last = was.max(seq);
            (before, was)
        };
        match before {
            Some(before) if before != digest => {
                world.checker.violation(format!("event {seq} was delivered twice with different content"));
            }
            None if seq < last => world.checker.violation(format!(
                "event {seq} of job {job} was delivered after event {last} of the same job"
            )),
            _ => {}
        }
    }

    /// Checks at the end that every subscribed event since the creation of a webhook was delivered.
    pub(super) async fn check_deliveries(&self, world: &World) -> Result<(), StoreError> {
        let store = world.observer();
        for webhook in store.webhooks().await? {
            let webhook_id = webhook.id.to_string();
            let (mut after, mut since) = (0, None);
            loop {
                let page = store.outgoing(after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = last.event.seq;
                for out in &page {
                    let event = &out.event;
                    let about = event.data.as_ref().map(|data| data.value()["webhook_id"].take());
                    if event.kind == "webhook.created" && about == Some(Value::from(webhook_id.as_str())) {
                        since = Some(event.seq);
                    }
                    let wanted = since.is_some() && webhook.filter.wants(&event.kind, &out.labels);
                    let accepted = || {
                        let received = self.received();
                        received
                            .accepted
                            .get(&webhook.id)
                            .is_some_and(|accepted| accepted.contains_key(&event.seq))
                    };
                    if wanted && !accepted() {
                        world.checker.violation(format!(
                            "event {} ({}) was not delivered to webhook {webhook_id} (disabled: {:?})",
                            event.seq, event.kind, webhook.disabled
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the signature is valid.
fn signed(delivery: WebhookDelivery<'_>) -> bool {
    let fields = delivery.signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
    fields.is_some_and(|(at, tag)| {
        let message = format!("{at}.{}", delivery.body);
        tag == hex::encode(hmac_sha256(SECRET.as_bytes(), message.as_bytes()))
    })
}
