//! One batch: events of one job, delivered in order until a delivery fails.
//!
//! ```text
//!  events of the job:  a  b  c  d          accepted          -> the next event
//!                         ^ fails          failed            -> retry stream from b; c and d wait
//!                                          failed for a day  -> b is a dead letter, c is tried with a day of its own
//! ```
//!
//! A receiver that accepts nothing for a day disables the webhook, and no event is given up then. An event that it refuses while nothing
//! else fails is a dead letter: one event must not keep the others from a receiver that works.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::backoff;
use super::delivery::{WebhookSender, body};
use model::mutant::{self, Mutant};
use model::{Clock, DeadLetter, NewEvent, OutgoingEvent, RetryStream, Time, Webhook};
use store::WebhookProgress;

/// How long one job may delay the other jobs of its webhook.
const BATCH_TIME: Duration = Duration::from_secs(30);

/// The events of one job that are delivered now.
pub(super) struct DeliveryBatch {
    /// The retry stream of the job, with its failures; new jobs have none. The stream name is empty for events without job.
    pub(super) retry: RetryStream,
    /// The events from the position of the stream, in order.
    pub(super) events: Vec<OutgoingEvent>,
    /// The position after these events, when there are more.
    pub(super) more_from: Option<i64>,
}

impl DeliveryBatch {
    /// A batch of a job without failures.
    pub(super) fn without_failures(stream: String, now: Time) -> Self {
        let retry =
            RetryStream { stream, seq: 0, attempts: 0, since: now, next_at: now, error: String::new() };
        Self { retry, events: Vec::new(), more_from: None }
    }
}

/// The result of one batch.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dead: Vec<DeadLetter>,
    pub(super) retry: Option<RetryStream>,
    /// The retry stream before the batch.
    pub(super) before: Option<RetryStream>,
    pub(super) error: Option<String>,
    /// Whether the receiver sent an HTTP response to a failed delivery.
    pub(super) responded: bool,
}

impl BatchResult {
    /// Delivers the events of a batch until one fails.
    pub(super) async fn deliver(batch: DeliveryBatch, sender: &WebhookSender<'_>, clock: &dyn Clock) -> Self {
        let DeliveryBatch { mut retry, events, more_from } = batch;
        let mut result = Self { before: Some(retry.clone()), ..Self::default() };
        let began = Instant::now();
        let matching = |out: &&OutgoingEvent| sender.webhook.filter.wants(&out.event.kind, &out.labels);
        for out in events.iter().filter(matching) {
            let event = &out.event;
            let now = clock.now();
            if began.elapsed() > BATCH_TIME {
                result.retry = Some(RetryStream { seq: event.seq, attempts: 0, next_at: now, ..retry });
                return result;
            }
            let text = body(sender.webhook.id, event);
            match sender.send(event.seq, &event.kind, &text, clock.wall()).await {
                Ok(()) => {
                    result.delivered += 1;
                    (retry.attempts, retry.since) = (0, clock.now());
                }
                Err(error) => {
                    let now = clock.now();
                    result.failed += 1;
                    result.responded |= error.status.is_some();
                    result.error = Some(error.why.clone());
                    let attempts = retry.attempts.saturating_add(1);
                    if backoff::is_expired(retry.since, now) {
                        result.dead.push(DeadLetter {
                            seq: event.seq,
                            stream: retry.stream.clone(),
                            kind: event.kind.clone(),
                            body: text,
                            attempts,
                            since: retry.since,
                            given_up_at: now,
                            error: error.why,
                            redeliver: false,
                        });
                        // The next event fails since its own first attempt.
                        (retry.attempts, retry.since) = (0, now);
                        continue;
                    }
                    let pause = backoff::pause(&sender.webhook.id.delivery(event.seq), attempts);
                    result.retry = Some(RetryStream {
                        seq: event.seq,
                        attempts,
                        next_at: now.plus(pause),
                        error: error.why,
                        ..retry
                    });
                    return result;
                }
            }
        }
        result.retry = more_from.map(|seq| RetryStream { seq, attempts: 0, next_at: clock.now(), ..retry });
        result
    }
}

/// Combines the results of all batches to the progress that is stored. `failing` is the number of retry streams that are in no batch.
pub(super) fn progress_of(
    webhook: &Webhook,
    results: Vec<BatchResult>,
    failing: usize,
    now: Time,
) -> WebhookProgress {
    let mut progress = WebhookProgress::default();
    let (mut failed, mut responded) = (0, false);
    for result in results {
        progress.delivered += result.delivered;
        failed += result.failed;
        responded |= result.responded;
        progress.error = result.error.or(progress.error);
        match result.retry {
            Some(retry) if !mutant::active(Mutant::ForgetsRetry) => progress.retrying.push(retry),
            _ => progress.caught_up.extend(result.before),
        }
        progress.dead.extend(result.dead);
    }
    let younger = progress.retrying.iter().any(|retry| retry.attempts > 0);
    let all_fail = !responded || younger || failing > 0;
    if progress.delivered == 0
        && failed > 0
        && all_fail
        && webhook.failing_since.is_some_and(|since| backoff::is_expired(since, now))
    {
        return disabled(webhook, &progress);
    }
    progress.events = progress
        .dead
        .iter()
        .map(|dead| (dead.stream.parse().ok(), dead_letter_event(webhook, dead)))
        .collect();
    progress
}

/// When a receiver has accepted nothing for a day no event is given up; the webhook is disabled until an operator enables it.
fn disabled(webhook: &Webhook, seen: &WebhookProgress) -> WebhookProgress {
    let why = seen.error.clone().unwrap_or_default();
    let reason = format!(
        "{} accepted no event for 24 hours ({why}); events are kept up to JOB_RETENTION_DAYS; enable the webhook when the receiver works",
        webhook.origin()
    );
    WebhookProgress { error: seen.error.clone(), ..disabling(webhook, reason) }
}

/// Disables a webhook for this reason, with the event that says so.
pub(super) fn disabling(webhook: &Webhook, reason: String) -> WebhookProgress {
    let event = NewEvent::error("webhook.disabled", format!("webhook {} is disabled: {reason}", webhook.id))
        .with(json!({ "webhook_id": webhook.id }));
    WebhookProgress { disable: Some(reason), events: vec![(None, event)], ..WebhookProgress::default() }
}

fn dead_letter_event(webhook: &Webhook, dead: &DeadLetter) -> NewEvent {
    let message = format!(
        "event {} ({}) became a dead letter of webhook {} at {} after {} attempts since {}: {}; request another delivery with `shoal webhook redeliver`",
        dead.seq,
        dead.kind,
        webhook.id,
        webhook.origin(),
        dead.attempts,
        dead.since,
        dead.error
    );
    NewEvent::error("webhook.dead-letter", message)
        .with(json!({ "webhook_id": webhook.id, "seq": dead.seq, "type": dead.kind }))
}
