//! Outgoing webhooks as the API returns them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// All webhooks.
#[derive(Clone, Debug, Deserialize)]
pub struct WebhookPage {
    /// The webhooks.
    pub webhooks: Vec<WebhookJson>,
}

/// A webhook with its progress.
#[derive(Clone, Debug, Deserialize)]
pub struct WebhookJson {
    /// The id.
    pub webhook_id: String,
    /// Scheme, host and port of the receiver.
    pub target: String,
    /// The event types that are sent; empty means all.
    pub types: Vec<String>,
    /// The labels that the job of an event must have.
    pub labels: BTreeMap<String, String>,
    /// The time at which the webhook was created.
    pub created_at: Timestamp,
    /// The user who created the webhook.
    pub created_by: String,
    /// The reason why the webhook is disabled; `None` if it is enabled.
    pub disabled: Option<String>,
    /// The number of delivered events.
    pub delivered: u64,
    /// The number of events after the last delivered one.
    pub behind: u64,
    /// The number of retry streams.
    pub retrying: u64,
    /// The number of dead letters.
    pub dead_letters: u64,
    /// The time since which every delivery has failed.
    pub failing_since: Option<Timestamp>,
    /// The error of the last failed delivery.
    pub last_error: Option<String>,
    /// The jobs whose next event waits for another attempt. Only the document of one webhook has them, not the list.
    #[serde(default)]
    pub retry_streams: Vec<RetryStreamJson>,
}

/// The result of a test delivery.
#[derive(Clone, Debug, Deserialize)]
pub struct WebhookTest {
    /// The delivery id.
    pub delivery_id: String,
    /// The time at which the test delivery was sent.
    pub sent_at: Timestamp,
    /// The time that the response took, in milliseconds.
    pub took_ms: u64,
    /// Whether the receiver responded with a 2xx status.
    pub accepted: bool,
    /// The HTTP status of the response.
    pub status: Option<u16>,
    /// Why the delivery was not accepted.
    pub error: Option<String>,
}

/// A job whose next event waits for another attempt.
#[derive(Clone, Debug, Deserialize)]
pub struct RetryStreamJson {
    /// The job; nothing for events without job.
    pub job_id: Option<String>,
    /// The position of the event in the log.
    pub seq: i64,
    /// The number of failed attempts.
    pub attempts: u32,
    /// When the first attempt failed.
    pub since: Timestamp,
    /// When the next attempt is made.
    pub next_at: Timestamp,
    /// The error of the last attempt.
    pub error: String,
}

/// The first dead letters of a webhook.
#[derive(Clone, Debug, Deserialize)]
pub struct DeadLetterPage {
    /// The dead letters in the order of the log.
    pub dead_letters: Vec<DeadLetterJson>,
}

/// An event that a webhook did not accept within the retry time.
#[derive(Clone, Debug, Deserialize)]
pub struct DeadLetterJson {
    /// The position of the event in the log.
    pub seq: i64,
    /// The job; nothing for events without job.
    pub job_id: Option<String>,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of failed attempts.
    pub attempts: u32,
    /// When the event became a dead letter.
    pub given_up_at: Timestamp,
    /// The error of the last attempt.
    pub error: String,
    /// Whether one more delivery was requested.
    pub redelivery_requested: bool,
}
