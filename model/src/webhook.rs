//! Webhooks: outgoing HTTP subscriptions to events, and the position of each in the log.
//!
//! ```text
//!  events        1  2  3  4  5  6  7  8  9
//!                            ^cursor: every event up to here is delivered, not wanted, in a retry stream or a dead letter
//!  retry stream  (job A, from 2)       one row for each job that waits for another attempt; its later events wait behind it
//!  dead letter   3                     given up, with its body, until an operator redelivers it
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::event::Event;
use super::time::Time;

/// The id of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WebhookId(pub Uuid);

impl WebhookId {
    /// A new, time-ordered id (UUID version 7).
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The context under which the secret of the webhook is sealed.
    pub fn secret_context(self) -> String {
        format!("webhook/{self}")
    }

    /// The id of the delivery of one event; every attempt has this id.
    pub fn delivery(self, seq: i64) -> String {
        format!("{}-{seq}", self.0.simple())
    }
}

impl Default for WebhookId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for WebhookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for WebhookId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self)
    }
}

/// The rule that selects the events of a webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookFilter {
    /// Event types, complete or as `prefix.*`; empty for all types.
    pub types: Vec<String>,
    /// Labels that a job must have; events without a job have no labels.
    pub labels: BTreeMap<String, String>,
}

/// The prefix of events about webhooks. They are not delivered: two failing webhooks would cause events for each other without
/// end.
pub const ABOUT_WEBHOOKS: &str = "webhook.";

impl WebhookFilter {
    /// Whether the filter selects an event of this type, of a job with these labels.
    pub fn wants(&self, kind: &str, labels: &BTreeMap<String, String>) -> bool {
        let typed = self.types.is_empty()
            || self.types.iter().any(|wanted| match wanted.strip_suffix('*') {
                Some(prefix) => kind.starts_with(prefix),
                None => kind == wanted,
            });
        typed
            && !kind.starts_with(ABOUT_WEBHOOKS)
            && self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// An outgoing webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The id.
    pub id: WebhookId,
    /// The URL to which events are sent.
    pub url: String,
    /// The credential reference of the secret that signs the deliveries.
    pub secret: String,
    /// The selected events.
    pub filter: WebhookFilter,
    /// The user that created the webhook.
    pub created_by: String,
    /// When the webhook was created.
    pub created_at: Time,
    /// The reason why the webhook is disabled; `None` when it is enabled.
    pub disabled: Option<String>,
    /// The position in the log up to which every event was handled.
    pub cursor: i64,
    /// The number of delivered events.
    pub delivered: u64,
    /// The time of the first failure since the last success.
    pub failing_since: Option<Time>,
    /// The last error.
    pub last_error: Option<String>,
}

impl Webhook {
    /// Scheme and host of the URL, without the parts that could contain a secret.
    pub fn origin(&self) -> String {
        if self.url.is_empty() {
            return "(sealed with another master key)".to_owned();
        }
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        format!("{scheme}://{host}")
    }
}

/// An event with the facts by which filters and subjects select it.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingEvent {
    /// The event.
    pub event: Event,
    /// The labels of the event's job.
    pub labels: BTreeMap<String, String>,
    /// The workflow of the event's job.
    pub workflow: Option<String>,
}

impl OutgoingEvent {
    /// The stream within which deliveries keep their order: one for each job, and one for all events without a job.
    pub fn stream(&self) -> String {
        self.event.run.map(|run| run.to_string()).unwrap_or_default()
    }
}

/// The events of one job that wait for another delivery attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryStream {
    /// The job; empty for events without one.
    pub stream: String,
    /// The position of the next event in the log.
    pub seq: i64,
    /// The number of failed attempts for that event.
    pub attempts: u32,
    /// The time of the first failure.
    pub since: Time,
    /// When the next attempt is due.
    pub next_at: Time,
    /// The last error.
    pub error: String,
}

/// An event whose delivery was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The position in the log.
    pub seq: i64,
    /// The job; empty for an event without one.
    pub stream: String,
    /// The type of the event.
    pub kind: String,
    /// The body of the delivery.
    pub body: String,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The time of the first failure.
    pub since: Time,
    /// When the event was given up.
    pub given_up_at: Time,
    /// The last error.
    pub error: String,
    /// Whether an operator requested another attempt that is not made yet.
    pub redeliver: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(types: &[&str], labels: &[(&str, &str)]) -> WebhookFilter {
        WebhookFilter {
            types: types.iter().map(|text| (*text).to_owned()).collect(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn a_filter_selects_by_type_prefix_and_labels() {
        let none = BTreeMap::new();
        let site = BTreeMap::from([("site".to_owned(), "bern".to_owned()), ("x".to_owned(), "y".to_owned())]);
        assert!(filter(&[], &[]).wants("job.created", &none));
        assert!(filter(&["job.*"], &[]).wants("job.created", &none));
        assert!(!filter(&["job.*"], &[]).wants("jobs", &none));
        assert!(!filter(&["job.created"], &[]).wants("job.created.twice", &none));
        assert!(filter(&["report.success", "job.created"], &[("site", "bern")]).wants("job.created", &site));
        assert!(!filter(&[], &[("site", "bern")]).wants("job.created", &none));
        assert!(!filter(&[], &[("site", "genf")]).wants("job.created", &site));
    }

    #[test]
    fn events_about_webhooks_are_not_delivered() {
        for types in [&[][..], &["webhook.*"][..], &["*"][..]] {
            assert!(!filter(types, &[]).wants("webhook.dead-letter", &BTreeMap::new()));
        }
    }
}
