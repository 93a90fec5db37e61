//! Somebody who is fields of events: the receiver of a world's outgoing webhook.
//!
//! ```text
//!   courier --Mail (delay, death of the process)--> signed? the same as before? in order? --> 204
//!                     \- 500, nobody there, an answer that is lost: by the seed
//!   at the end: every event of the log that was wanted was accepted
//! ```
//!
//! Invariant: what is accepted once is in order for each job; what is accepted twice is the same bytes under the same id.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::boundary::Boundary;
use super::rng::WorldRng;
use super::world::World;
use controller::webhooks::{WebhookDelivery, WebhookTransport};
use engine::model::WebhookId;
use engine::store::StoreError;
use secrets::{hmac_sha256, sha256};

/// Where events are posted to.
pub(super) const URL: &str = "http://10.2.0.1/events";
/// What they are signed with.
pub(super) const SECRET: &str = "selftest-secret-of-the-receiver";
/// Events read at once when all is over.
const PAGE: u32 = 1000;

/// The way of one controller to the receiver.
pub(super) struct ReceiverTransport {
    pub(super) boundary: Arc<Boundary>,
    pub(super) world: Arc<World>,
}

#[async_trait]
impl WebhookTransport for ReceiverTransport {
    async fn send(&self, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        self.boundary.call_out().await;
        let pause = self.world.receiver.rng.time(Duration::from_millis(1), Duration::from_millis(80));
        let answered = async {
            tokio::time::sleep(pause).await;
            self.world.receiver.answer(&self.world, delivery)
        };
        let answer = self.boundary.while_alive(answered).await;
        self.boundary.call_out().await;
        answer
    }
}

/// Who is fields.
pub(super) struct WebhookReceiver {
    rng: WorldRng,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    /// What was accepted of each webhook, by the number of the event.
    accepted: BTreeMap<WebhookId, BTreeMap<i64, [u8; 32]>>,
    /// The last that was accepted of each job.
    last: BTreeMap<(WebhookId, String), i64>,
    /// Nobody is there before this time of the world.
    gone_until: Duration,
}

impl WebhookReceiver {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: WorldRng::new(seed, "receiver"), received: Mutex::default() }
    }

    fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, world: &World, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        let nobody = || Err("nobody is there".to_owned());
        if world.faults_active() {
            let now = world.clock.passed();
            match self.rng.below(300) {
                0 => {
                    let away = self.rng.seconds(30, 5400);
                    world.note(&format!("the receiver is away for {} s", away.as_secs()));
                    self.received().gone_until = now + away;
                }
                1..=20 => return Ok(500),
                21..=40 => {
                    self.accept(world, delivery);
                    return Err("the answer is lost".to_owned());
                }
                _ => {}
            }
            if now < self.received().gone_until {
                return nobody();
            }
        }
        self.accept(world, delivery);
        Ok(204)
    }

    /// Takes an event, and looks whether it may come now.
    fn accept(&self, world: &World, delivery: WebhookDelivery<'_>) {
        if !signed(delivery) {
            world.checker.violation(format!("delivery {} is not signed as documented", delivery.id));
        }
        let body: Value = serde_json::from_str(delivery.body).unwrap_or(Value::Null);
        let webhook = body["webhook_id"].as_str().and_then(|id| id.parse::<WebhookId>().ok());
        let (Some(webhook), Some(seq)) = (webhook, body["event"]["seq"].as_i64()) else {
            return world.checker.violation(format!("delivery {} says nothing of an event", delivery.id));
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
                world.checker.violation(format!("event {seq} was delivered twice, and differently"));
            }
            None if seq < last => world.checker.violation(format!(
                "event {seq} of job {job} was delivered after event {last} of the same job"
            )),
            _ => {}
        }
    }

    /// When all is over: nothing that happened since a webhook was made was kept from it.
    pub(super) async fn check_deliveries(&self, world: &World) -> Result<(), StoreError> {
        let store = world.observer();
        for webhook in store.webhooks().await? {
            let made = webhook.id.to_string();
            let (mut after, mut since) = (0, None);
            loop {
                let page = store.outgoing(after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = last.event.seq;
                for out in &page {
                    let event = &out.event;
                    let about = event.data.as_ref().map(|data| data.value()["webhook_id"].take());
                    if event.kind == "webhook.created" && about == Some(Value::from(made.as_str())) {
                        since = Some(event.seq);
                    }
                    let wanted = since.is_some() && webhook.filter.wants(&event.kind, &out.labels);
                    let accepted = || {
                        let received = self.received();
                        received.accepted.get(&webhook.id).is_some_and(|accepted| accepted.contains_key(&event.seq))
                    };
                    if wanted && !accepted() {
                        world.checker.violation(format!(
                            "event {} ({}) was not delivered to webhook {made} (disabled: {:?})",
                            event.seq, event.kind, webhook.disabled
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the signature is the one a receiver expects.
fn signed(delivery: WebhookDelivery<'_>) -> bool {
    let fields = delivery.signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
    fields.is_some_and(|(at, tag)| {
        let message = format!("{at}.{}", delivery.body);
        tag == hex::encode(hmac_sha256(SECRET.as_bytes(), message.as_bytes()))
    })
}
