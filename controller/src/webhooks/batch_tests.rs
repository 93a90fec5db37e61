//! Batches at a receiver whose responses the test sets.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrecy::SecretString;

use super::batch::{BatchResult, DeliveryBatch, disabling, progress_of};
use super::delivery::{WebhookDelivery, WebhookSender, WebhookTransport};
use model::{
    Clock, Event, EventLevel, ManualClock, OutgoingEvent, SteadyClock, Time, Webhook, WebhookFilter,
    WebhookId,
};

/// A receiver with one response to everything, and the signatures it received.
struct FixedReceiver {
    status: Result<u16, String>,
    signatures: Mutex<Vec<String>>,
}

impl FixedReceiver {
    fn new(status: Result<u16, &str>) -> Self {
        Self { status: status.map_err(str::to_owned), signatures: Mutex::default() }
    }
}

#[async_trait]
impl WebhookTransport for FixedReceiver {
    async fn send(&self, delivery: WebhookDelivery<'_>) -> Result<u16, String> {
        self.signatures.lock().push(delivery.signature.to_owned());
        self.status.clone()
    }
}

fn start() -> Time {
    "2026-11-20T08:00:00Z".parse().unwrap()
}

fn webhook(failing_since: Option<Time>) -> Webhook {
    Webhook {
        id: WebhookId::new(),
        url: "https://receiver.example/".to_owned(),
        secret: String::new(),
        filter: WebhookFilter::default(),
        created_by: "ann".to_owned(),
        created_at: start(),
        disabled: None,
        cursor: 0,
        delivered: 0,
        failing_since,
        last_error: None,
    }
}

/// The events of one job with these numbers.
fn batch(since: Time, seqs: &[i64]) -> DeliveryBatch {
    let event = |seq: i64| Event {
        seq,
        time: since,
        run: None,
        server: None,
        kind: "job.created".to_owned(),
        level: EventLevel::Info,
        step: None,
        attempt: None,
        actor: "controller".to_owned(),
        message: "an event".to_owned(),
        data: None,
    };
    let out = |seq: &i64| OutgoingEvent { event: event(*seq), labels: Default::default(), workflow: None };
    let events = seqs.iter().map(out).collect();
    DeliveryBatch { events, ..DeliveryBatch::without_failures("job".to_owned(), since) }
}

async fn deliver(
    webhook: &Webhook,
    receiver: &FixedReceiver,
    clock: &dyn Clock,
    batch: DeliveryBatch,
) -> BatchResult {
    let secret = SecretString::from("secret");
    BatchResult::deliver(batch, &WebhookSender { transport: receiver, webhook, secret: &secret }, clock).await
}

#[tokio::test]
async fn a_delivery_is_signed_with_the_time_of_day_after_the_clock_was_set() {
    let hour = Duration::from_secs(3600);
    for set_to in [start().plus(hour), start().minus(hour)] {
        let source = Arc::new(ManualClock::new(start()));
        let clock = SteadyClock::new(Arc::clone(&source));
        source.set(set_to);
        let receiver = FixedReceiver::new(Ok(204));
        let result = deliver(&webhook(None), &receiver, &clock, batch(clock.now(), &[1])).await;
        assert_eq!(result.delivered, 1);
        let signatures = receiver.signatures.lock();
        let (at, _) = signatures[0].split_once(',').unwrap();
        assert_eq!(at, format!("t={}", set_to.unix_seconds()));
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A retry stream that fails since this time.
fn retried(since: Time, seqs: &[i64]) -> DeliveryBatch {
    let mut batch = batch(since, seqs);
    batch.retry.attempts = 90;
    batch
}

#[tokio::test]
async fn an_event_is_given_up_by_its_own_age_and_the_next_one_begins_anew() {
    let clock = ManualClock::new(start().plus(DAY));
    let receiver = FixedReceiver::new(Ok(400));
    let failing = webhook(Some(start()));
    let result = deliver(&failing, &receiver, &clock, retried(start(), &[1, 2, 3])).await;
    let dead: Vec<_> = result.dead.iter().map(|dead| dead.seq).collect();
    assert_eq!(dead, [1]);
    let retry = result.retry.as_ref().unwrap();
    assert_eq!((retry.seq, retry.attempts, retry.since), (2, 1, clock.now()));
    // The webhook fails for a day, the job only since an hour.
    let young = clock.now().minus(Duration::from_secs(3600));
    let result = deliver(&failing, &receiver, &clock, retried(young, &[7])).await;
    assert!(result.dead.is_empty(), "{result:?}");
}

#[tokio::test]
async fn a_webhook_is_disabled_after_a_day_without_an_accepted_event_whatever_the_responses() {
    let clock = ManualClock::new(start().plus(DAY));
    let failing = webhook(Some(start()));
    for status in [Ok(502), Err("connection refused")] {
        let receiver = FixedReceiver::new(status);
        let result = deliver(&failing, &receiver, &clock, retried(start(), &[1, 2])).await;
        let progress = progress_of(&failing, vec![result], 0, clock.now());
        assert!(progress.disable.unwrap().contains("accepted no event for 24 hours"), "{status:?}");
        assert!(progress.dead.is_empty(), "nothing is given up");
    }
}

#[tokio::test]
async fn one_refused_event_does_not_disable_a_webhook_for_which_nothing_else_fails() {
    let clock = ManualClock::new(start().plus(DAY));
    let failing = webhook(Some(start()));
    let receiver = FixedReceiver::new(Ok(400));
    let alone = || deliver(&failing, &receiver, &clock, retried(start(), &[1]));
    let progress = progress_of(&failing, vec![alone().await], 0, clock.now());
    assert_eq!((progress.disable, progress.dead.len()), (None, 1));
    let progress = progress_of(&failing, vec![alone().await], 1, clock.now());
    assert!(progress.disable.is_some(), "another job fails as well");
}

#[test]
fn a_webhook_whose_secret_cannot_be_read_is_disabled_with_an_event() {
    let webhook = webhook(None);
    let progress = disabling(&webhook, "its secret cannot be opened".to_owned());
    let [(None, event)] = &progress.events[..] else { panic!("{progress:?}") };
    assert_eq!((event.kind.as_str(), event.level), ("webhook.disabled", EventLevel::Error));
    assert!(event.message.ends_with("is disabled: its secret cannot be opened"), "{event:?}");
    assert_eq!(progress.disable.as_deref(), Some("its secret cannot be opened"));
}
