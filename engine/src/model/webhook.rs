//! An outgoing webhook: who is told of events, and how far that got.
//!
//! ```text
//!  events  1  2  3  4  5  6  7  8  9
//!                      ^cursor: everything up to here is delivered, of no interest, late or dead
//!  late    (job A, from 2)             one row for each job that waits; its later events wait behind it
//!  dead    3                           given up, with its body, until an operator has it sent again
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

    /// What its secret is sealed for.
    pub fn secret_context(self) -> String {
        format!("webhook/{self}")
    }

    /// The id of the delivery of one event: the same however often it is tried.
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

/// Which events a webhook gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookFilter {
    /// Types, whole or as `prefix.*`; empty for all.
    pub types: Vec<String>,
    /// Labels a job must carry; events of no job have none.
    pub labels: BTreeMap<String, String>,
}

/// Events about webhooks: sent to nobody, or two webhooks that fail would feed each other for ever.
pub const ABOUT_WEBHOOKS: &str = "webhook.";

impl WebhookFilter {
    /// Whether an event of a job with these labels is wanted.
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
    /// Its id.
    pub id: WebhookId,
    /// Where events are posted to.
    pub url: String,
    /// Reference to the secret that signs them.
    pub secret: String,
    /// Which events.
    pub filter: WebhookFilter,
    /// Who made it.
    pub created_by: String,
    /// When.
    pub created_at: Time,
    /// Why nothing is sent, if so.
    pub disabled: Option<String>,
    /// How far the log was worked through.
    pub cursor: i64,
    /// Events delivered so far.
    pub delivered: u64,
    /// The first failure since the last success.
    pub failing_since: Option<Time>,
    /// What the last failure was.
    pub last_error: Option<String>,
}

impl Webhook {
    /// Where it is, without anything that could be a secret.
    pub fn origin(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        format!("{scheme}://{host}")
    }
}

/// An event with what decides whether it is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingEvent {
    /// The event.
    pub event: Event,
    /// The labels of its job.
    pub labels: BTreeMap<String, String>,
}

impl OutgoingEvent {
    /// What its order is kept in: its job; one stream for all events of none.
    pub fn stream(&self) -> String {
        self.event.run.map(|run| run.to_string()).unwrap_or_default()
    }
}

/// A job whose next event could not be delivered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryStream {
    /// The job; empty for events of none.
    pub stream: String,
    /// The event to go on with.
    pub seq: i64,
    /// How often that was tried.
    pub attempts: u32,
    /// The first failure.
    pub since: Time,
    /// When it is tried again.
    pub next_at: Time,
    /// What the last failure was.
    pub error: String,
}

/// An event that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place in the log.
    pub seq: i64,
    /// Its job; empty for none.
    pub stream: String,
    /// Its type.
    pub kind: String,
    /// What was posted.
    pub body: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The first failure.
    pub since: Time,
    /// When it was given up.
    pub died_at: Time,
    /// What the last failure was.
    pub error: String,
    /// Whether it is about to be tried once more.
    pub again: bool,
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
    fn a_filter_takes_whole_types_prefixes_and_labels() {
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
    fn events_about_webhooks_are_sent_to_nobody() {
        for types in [&[][..], &["webhook.*"][..], &["*"][..]] {
            assert!(!filter(types, &[]).wants("webhook.dead-letter", &BTreeMap::new()));
        }
    }
}
