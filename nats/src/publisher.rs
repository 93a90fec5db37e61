//! The publisher: copies the event log of the controller into the stream, in order.
//!
//! ```text
//!   connected ──> make the stream if it is missing ──> read its last message: the position
//!                                                          │
//!        ┌──────────── page of the log after it ◄──────────┤◄── commit
//!        │  each message: expected end of the stream = the one before it
//!        ▼                                                 │
//!   all acknowledged: the position advances ───────────────┘
//!   refused, not acknowledged, connection lost ──> from the start; the position is read again
//! ```
//!
//! | the stream | position |
//! |---|---|
//! | is new, was purged, or its server lost it | the start of the log: it is filled again |
//! | ends with an event of this log | that event |
//! | ends with an event of another log, or behind the end of this log | none: another controller publishes, so nothing is published |
//!
//! Invariant: a message is stored only if the stream ends with the message that the publisher read or published last.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::Dialer;
use crate::jetstream::{
    self, EXPECTED_END, EXPECTED_STREAM, FoundStream, ID, JetStreamError, Stored, StreamState,
};
use crate::options::{Limits, Options};
use crate::session::{RequestError, Session};
use crate::{STREAM, wake};

/// Events that are published before the first of them must be acknowledged.
const PAGE: u32 = 64;
/// The largest body of an event.
const MAX_BODY: usize = 256 << 10;
/// The bytes of the largest message of the server that are reserved for headers.
const HEADERS: usize = 1024;
/// The smallest body that a server must accept.
const MIN_BODY: usize = 8 << 10;
/// Messages without an id of a log that may be at the end of the stream.
const FOREIGN: u64 = 100;
/// The pause from a commit to the read of the log, so that commits in a row cause one page.
const COMMIT_DELAY: Duration = Duration::from_millis(20);
/// How often the log is read and its rest is counted without a commit.
const LOOK: Duration = Duration::from_secs(5);

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the event log cannot be read: {0}")]
pub struct LogError(pub String);

/// An event as it is published.
#[derive(Clone, Debug)]
pub struct Record {
    /// The number of the event in the log.
    pub seq: i64,
    /// The subject of the event.
    pub subject: String,
    /// The body of the event.
    pub body: Bytes,
}

/// The event log that is published.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// A name that no other log has: letters and digits. It stays the same for as long as the numbers of events do.
    ///
    /// # Errors
    /// When the log cannot be read.
    async fn id(&self) -> Result<String, LogError>;

    /// The number of the last event.
    ///
    /// # Errors
    /// When the log cannot be read.
    async fn last(&self) -> Result<i64, LogError>;

    /// Events after a number, in order. No body is longer than `max_body`.
    ///
    /// # Errors
    /// When the log cannot be read.
    async fn after(&self, seq: i64, limit: u32, max_body: usize) -> Result<Vec<Record>, LogError>;

    /// Changes with every event.
    fn commits(&self) -> watch::Receiver<u64>;
}

/// Receives what the metrics show.
pub trait StreamObserver: Send + Sync {
    /// There is a connection, or none.
    fn connected(&self, connected: bool);
    /// Events were published and acknowledged.
    fn published(&self, events: u64);
    /// How many numbers of the log are not in the stream yet.
    fn waiting(&self, events: u64);
}

/// The log, the metrics and the wake-ups that the publisher works with.
pub struct Parts {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// The metrics.
    pub observer: Arc<dyn StreamObserver>,
    /// The queues to wake.
    pub wakes: mpsc::Receiver<String>,
}

/// Why nothing can be published at present.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(
        "the stream {STREAM} ends with an event of another controller; give this one a stream of its own: another NATS account or server"
    )]
    OtherLog,
    #[error(
        "the stream {STREAM} ends with event {found}, and the log of this controller with {last}: a controller with a copy of its data \
         publishes; stop it, or remove its messages from the stream"
    )]
    AheadOfLog { found: i64, last: i64 },
    #[error(
        "the stream {STREAM} has the retention {0:?}, which drops messages that were consumed; delete it, or make it with the retention \"limits\""
    )]
    Retention(String),
    #[error(
        "the server accepts messages of {0} bytes at most, and an event needs up to {MIN_BODY}; raise max_payload"
    )]
    SmallMessages(usize),
    #[error(
        "the stream {STREAM} cannot be made or read ({0}); check that the server runs with JetStream and lets this user use it"
    )]
    Stream(JetStreamError),
    #[error(
        "the server does not store events in {STREAM} ({0}); check the subjects and the limits of the stream, and its free space"
    )]
    Publish(JetStreamError),
    #[error(
        "the server still recognises the ids of messages that the stream has lost; they are stored after its duplicate window"
    )]
    Recognised,
    #[error("the end of the stream {STREAM} has moved; another program publishes in its subjects")]
    Moved,
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        Self::Publish(error.into())
    }
}

/// Publishes until `stop`.
pub async fn run(options: Options, parts: Parts, stop: CancellationToken) {
    let Parts { log, observer, mut wakes } = parts;
    let publisher = Publisher {
        log,
        observer: Arc::clone(&observer),
        limits: options.limits,
        position: None,
        said: None,
    };
    stop.run_until_cancelled(publisher.run(Dialer::new(options, Vec::new()), &mut wakes)).await;
    observer.connected(false);
}

struct Publisher {
    log: Arc<dyn EventLog>,
    observer: Arc<dyn StreamObserver>,
    limits: Limits,
    /// The number of the last event that is known to be in the stream; `None` before the stream was read.
    position: Option<i64>,
    /// The refusal that was logged.
    said: Option<String>,
}

impl Publisher {
    async fn run(mut self, mut dialer: Dialer, wakes: &mut mpsc::Receiver<String>) -> Infallible {
        loop {
            let (session, driver) = tokio::select! {
                open = dialer.dial() => open,
                never = self.wait() => match never {},
            };
            self.observer.connected(true);
            let end = tokio::select! {
                end = driver.run() => end,
                never = self.publish(&session) => match never {},
                never = wake::publish(&session, wakes) => match never {},
            };
            self.observer.connected(false);
            dialer.lost(&end);
        }
    }

    /// Counts what waits while there is no connection.
    async fn wait(&self) -> Infallible {
        loop {
            self.count().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Publishes over one connection. Its end drops this future.
    async fn publish(&mut self, session: &Session) -> Infallible {
        let mut failures = 0;
        loop {
            let why = match self.follow(session, &mut failures).await {
                Ok(never) => match never {},
                Err(why) => why.to_string(),
            };
            failures += 1;
            // One failure is that of a connection that ends, which has its own line.
            if failures > 1 && self.said.as_ref() != Some(&why) {
                tracing::warn!(
                    why,
                    "events are not published to NATS; they wait in the log of the controller"
                );
                self.said = Some(why);
            }
            self.count().await;
            tokio::time::sleep(self.limits.pause(failures)).await;
        }
    }

    /// Counts what is not in the stream. The log is asked for nothing else, so an error counts nothing.
    async fn count(&self) {
        if let Some(position) = self.position
            && let Ok(last) = self.log.last().await
        {
            self.observer.waiting(u64::try_from(last - position).unwrap_or(0));
        }
    }

    /// Publishes page after page.
    async fn follow(&mut self, session: &Session, failures: &mut u32) -> Result<Infallible, Refusal> {
        let log = self.log.id().await?;
        let FoundStream { config, state } = jetstream::stream(session).await.map_err(Refusal::Stream)?;
        // From a stream that drops what was consumed, nothing says where it ends: it would be filled again and again.
        if ["interest", "workqueue"].contains(&config.retention.as_str()) {
            return Err(Refusal::Retention(config.retention));
        }
        let mut position = self.position(session, state, &log).await?;
        self.position = Some(position);
        let mut end = state.last_sequence;
        let max_body = max_body(session)?;
        let mut commits = self.log.commits();
        loop {
            commits.mark_unchanged();
            let records = self.log.after(position, PAGE, max_body).await?;
            let full = records.len() == PAGE as usize;
            if let Some(last) = records.last().map(|record| record.seq) {
                let published = records.len() as u64;
                store(session, &log, records, end).await?;
                end += published;
                position = last;
                self.position = Some(position);
                *failures = 0;
                self.observer.published(published);
                if self.said.take().is_some() {
                    tracing::info!("events are published to NATS again");
                }
            }
            self.count().await;
            let commit = async {
                // The log outlives its publisher; otherwise only the pause counts.
                if commits.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(COMMIT_DELAY).await;
            };
            tokio::select! {
                biased;
                () = std::future::ready(()), if full => {}
                () = commit => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// The number of the last event of the log that is in the stream.
    async fn position(&self, session: &Session, state: StreamState, log: &str) -> Result<i64, Refusal> {
        if state.messages == 0 {
            return Ok(0);
        }
        let first = state.first_sequence.max(state.last_sequence.saturating_sub(FOREIGN));
        for sequence in (first..=state.last_sequence).rev() {
            let id = match jetstream::stored(session, sequence).await.map_err(Refusal::Stream)? {
                Stored::Message(id) => id,
                Stored::Nothing => continue,
            };
            let Some((of, seq)) = id.as_deref().and_then(read_id) else { continue };
            if of != log {
                return Err(Refusal::OtherLog);
            }
            let last = self.log.last().await?;
            return if seq <= last { Ok(seq) } else { Err(Refusal::AheadOfLog { found: seq, last }) };
        }
        Err(Refusal::OtherLog)
    }
}

/// Publishes a page after the message with the number `end` of the stream, and waits for all acknowledgements.
async fn store(session: &Session, log: &str, records: Vec<Record>, end: u64) -> Result<(), Refusal> {
    let mut waiting = Vec::new();
    for (record, before) in records.into_iter().zip(end..) {
        let (id, expected) = (format!("{log}-{}", record.seq), before.to_string());
        let headers = [(ID, id.as_str()), (EXPECTED_STREAM, STREAM), (EXPECTED_END, expected.as_str())];
        waiting.push((before + 1, session.begin(&record.subject, &headers, &record.body).await?));
    }
    for (sequence, message) in waiting {
        let acknowledged = jetstream::acknowledged(message).await.map_err(|why| match why {
            JetStreamError::OtherEnd => Refusal::Moved,
            why => Refusal::Publish(why),
        })?;
        if acknowledged.duplicate {
            return Err(Refusal::Recognised);
        }
        if acknowledged.sequence != sequence {
            return Err(Refusal::Moved);
        }
    }
    Ok(())
}

/// The log and the number of an id.
fn read_id(id: &str) -> Option<(&str, i64)> {
    let (log, seq) = id.rsplit_once('-')?;
    Some((log, seq.parse().ok()?))
}

/// The largest body that the server accepts.
fn max_body(session: &Session) -> Result<usize, Refusal> {
    let message = session.max_payload();
    let body = message.saturating_sub(HEADERS);
    if body < MIN_BODY { Err(Refusal::SmallMessages(message)) } else { Ok(body.min(MAX_BODY)) }
}
