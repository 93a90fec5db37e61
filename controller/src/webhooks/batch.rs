//! What one round delivers of one job, in order, until something is not taken.
//!
//! ```text
//!  events of the job:  a  b  c  d          taken    -> the next one
//!                         ^ not taken      refused  -> late from b on; c and d wait behind it
//!                                          refused for a day -> b is dead, c is tried once
//! ```

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::backoff;
use super::delivery::{Post, body};
use engine::model::mutant::{self, Mutant};
use engine::model::{Clock, DeadLetter, NewEvent, OutgoingEvent, RetryStream, Time, Webhook};
use engine::store::WebhookProgress;

/// For so long one job may hold up the round of its webhook.
const ROUND: Duration = Duration::from_secs(30);

/// The events of one job that are to be delivered now.
pub(super) struct Stream {
    /// The job, empty for events of none, with what is known of its failures. New ones have none.
    pub(super) late: RetryStream,
    /// Its events from there on, in order.
    pub(super) events: Vec<OutgoingEvent>,
    /// Where to go on after these, when there are more.
    pub(super) more_from: Option<i64>,
}

impl Stream {
    /// A job without failures.
    pub(super) fn fresh(stream: String, now: Time) -> Self {
        let late =
            RetryStream { stream, seq: 0, attempts: 0, since: now, next_at: now, error: String::new() };
        Self { late, events: Vec::new(), more_from: None }
    }
}

/// What a round of one job came to.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) delivered: u64,
    pub(super) failed: u64,
    pub(super) dead: Vec<DeadLetter>,
    pub(super) late: Option<RetryStream>,
    /// The job as it was before.
    pub(super) was: Option<RetryStream>,
    pub(super) error: Option<String>,
    /// Whether a failure was an answer.
    pub(super) answered: bool,
}

impl Round {
    /// Delivers what can be delivered of a job.
    pub(super) async fn deliver(stream: Stream, post: &Post<'_>, clock: &dyn Clock) -> Self {
        let Stream { mut late, events, more_from } = stream;
        let mut round = Self { was: Some(late.clone()), ..Self::default() };
        let began = Instant::now();
        let wanted = |out: &&OutgoingEvent| post.webhook.filter.wants(&out.event.kind, &out.labels);
        for out in events.iter().filter(wanted) {
            let event = &out.event;
            let now = clock.now();
            if began.elapsed() > ROUND {
                round.late = Some(RetryStream { seq: event.seq, attempts: 0, next_at: now, ..late });
                return round;
            }
            let text = body(post.webhook.id, event);
            match post.send(event.seq, &event.kind, &text, now).await {
                Ok(()) => {
                    round.delivered += 1;
                    (late.attempts, late.since) = (0, clock.now());
                }
                Err(refused) => {
                    let now = clock.now();
                    round.failed += 1;
                    round.answered |= refused.answered;
                    round.error = Some(refused.why.clone());
                    let attempts = late.attempts.saturating_add(1);
                    if backoff::over(late.since, now)
                        || post.webhook.failing_since.is_some_and(|since| backoff::over(since, now))
                    {
                        round.dead.push(DeadLetter {
                            seq: event.seq,
                            stream: late.stream.clone(),
                            kind: event.kind.clone(),
                            body: text,
                            attempts,
                            since: late.since,
                            died_at: now,
                            error: refused.why,
                            again: false,
                        });
                        late.attempts = 0;
                        continue;
                    }
                    let pause = backoff::pause(&post.webhook.id.delivery(event.seq), attempts);
                    round.late = Some(RetryStream {
                        seq: event.seq,
                        attempts,
                        next_at: now.plus(pause),
                        error: refused.why,
                        ..late
                    });
                    return round;
                }
            }
        }
        round.late = more_from.map(|seq| RetryStream { seq, attempts: 0, next_at: clock.now(), ..late });
        round
    }
}

/// Puts rounds together to what is written down.
pub(super) fn sum(webhook: &Webhook, rounds: Vec<Round>, now: Time) -> WebhookProgress {
    let mut progress = WebhookProgress::default();
    let (mut failed, mut answered) = (0, false);
    for round in rounds {
        progress.delivered += round.delivered;
        failed += round.failed;
        answered |= round.answered;
        progress.error = round.error.or(progress.error);
        match round.late {
            Some(late) if !mutant::active(Mutant::ForgetsLate) => progress.late.push(late),
            _ => progress.caught_up.extend(round.was),
        }
        progress.dead.extend(round.dead);
    }
    let silent = progress.delivered == 0 && failed > 0 && !answered;
    if silent && webhook.failing_since.is_some_and(|since| backoff::over(since, now)) {
        return disabled(webhook, &progress);
    }
    progress.events =
        progress.dead.iter().map(|dead| (dead.stream.parse().ok(), told(webhook, dead))).collect();
    progress
}

/// Nobody has answered for a day: nothing is given up, the webhook stands still until an operator lets it go on.
fn disabled(webhook: &Webhook, seen: &WebhookProgress) -> WebhookProgress {
    let why = seen.error.clone().unwrap_or_default();
    let reason = format!(
        "nobody has answered at {} for 24 hours ({why}); events wait, no longer than JOB_RETENTION_DAYS keeps them",
        webhook.origin()
    );
    let event = NewEvent::error("webhook.disabled", format!("webhook {} is disabled: {reason}", webhook.id))
        .with(json!({ "webhook_id": webhook.id }));
    WebhookProgress {
        error: seen.error.clone(),
        disable: Some(reason),
        events: vec![(None, event)],
        ..WebhookProgress::default()
    }
}

fn told(webhook: &Webhook, dead: &DeadLetter) -> NewEvent {
    let message = format!(
        "event {} ({}) was given up for webhook {} at {} after {} tries since {}: {}",
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
