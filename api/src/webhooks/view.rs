//! The JSON of a webhook: without its secret, and of its URL only the origin.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::openapi::types;
use model::{DeadLetter, RetryStream, Time, Webhook, WebhookId};
use store::WebhookCounts;

/// A webhook with its progress.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Webhook")]
pub(crate) struct WebhookView {
    #[schemars(with = "types::WebhookId")]
    webhook_id: WebhookId,
    /// Scheme, host and port of the receiver: the URL of many receivers contains a token in path or query.
    target: String,
    /// The event types that are sent; empty means all.
    types: Vec<String>,
    /// The labels that the job of an event must have.
    labels: BTreeMap<String, String>,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    /// The user who created the webhook.
    created_by: String,
    /// Why the webhook is disabled; null if it is enabled.
    disabled: Option<String>,
    /// The number of delivered events.
    delivered: u64,
    /// The number of events after the last delivered one; at most 10,000 are counted.
    behind: u64,
    /// The number of retry streams.
    retrying: u64,
    /// The number of dead letters.
    dead_letters: u64,
    /// Since when every delivery has failed.
    #[schemars(with = "Option<types::Timestamp>")]
    failing_since: Option<Time>,
    /// The error of the last failed delivery.
    last_error: Option<String>,
}

/// One page of webhooks.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookPage")]
pub(crate) struct WebhookPage {
    pub(super) webhooks: Vec<WebhookView>,
    /// Always null: all webhooks are on one page.
    pub(super) next: Option<String>,
}

/// A webhook with its retry streams.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WebhookDetail")]
pub(crate) struct WebhookDetailView {
    #[serde(flatten)]
    pub(super) webhook: WebhookView,
    /// Jobs whose next event waits for another attempt.
    pub(super) retry_streams: Vec<RetryStreamView>,
}

/// A job whose next event waits for another attempt.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RetryStream")]
pub(crate) struct RetryStreamView {
    /// The job; null for events without job.
    #[schemars(with = "Option<types::JobId>")]
    job_id: Option<String>,
    /// The position of the event in the log.
    seq: i64,
    /// The number of failed attempts.
    attempts: u32,
    /// When the first attempt failed.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// When the next attempt is made.
    #[schemars(with = "types::Timestamp")]
    next_at: Time,
    /// The error of the last attempt.
    error: String,
}

/// One page of dead letters.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetterPage")]
pub(crate) struct DeadLetterPage {
    pub(super) dead_letters: Vec<DeadLetterView>,
    /// Always null: only the first dead letters are listed.
    pub(super) next: Option<String>,
}

/// A dead letter without its body; the event itself is in the events of the job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeadLetter")]
pub(crate) struct DeadLetterView {
    /// The position of the event in the log.
    seq: i64,
    /// The job; null for events without job.
    #[schemars(with = "Option<types::JobId>")]
    job_id: Option<String>,
    /// The type of the event.
    #[serde(rename = "type")]
    kind: String,
    /// The number of failed attempts.
    attempts: u32,
    /// When the first attempt failed.
    #[schemars(with = "types::Timestamp")]
    since: Time,
    /// When the event became a dead letter.
    #[schemars(with = "types::Timestamp")]
    given_up_at: Time,
    /// The error of the last attempt.
    error: String,
    /// Whether one more delivery was requested.
    redelivery_requested: bool,
}

/// The response to a request for redelivery.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Redelivery")]
pub(crate) struct RedeliveryView {
    /// The number of dead letters that are sent again.
    pub(super) requested: usize,
}

impl WebhookView {
    pub(super) fn of(webhook: &Webhook, counts: WebhookCounts) -> Self {
        Self {
            webhook_id: webhook.id,
            target: webhook.origin(),
            types: webhook.filter.types.clone(),
            labels: webhook.filter.labels.clone(),
            created_at: webhook.created_at,
            created_by: webhook.created_by.clone(),
            disabled: webhook.disabled.clone(),
            delivered: webhook.delivered,
            behind: counts.behind,
            retrying: counts.retrying,
            dead_letters: counts.dead,
            failing_since: webhook.failing_since,
            last_error: webhook.last_error.clone(),
        }
    }
}

impl RetryStreamView {
    pub(super) fn of(stream: &RetryStream) -> Self {
        Self {
            job_id: job_id(&stream.stream),
            seq: stream.seq,
            attempts: stream.attempts,
            since: stream.since,
            next_at: stream.next_at,
            error: stream.error.clone(),
        }
    }
}

impl DeadLetterView {
    pub(super) fn of(dead: &DeadLetter) -> Self {
        Self {
            seq: dead.seq,
            job_id: job_id(&dead.stream),
            kind: dead.kind.clone(),
            attempts: dead.attempts,
            since: dead.since,
            given_up_at: dead.given_up_at,
            error: dead.error.clone(),
            redelivery_requested: dead.redeliver,
        }
    }
}

fn job_id(stream: &str) -> Option<String> {
    Some(stream.to_owned()).filter(|stream| !stream.is_empty())
}
