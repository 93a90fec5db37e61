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

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, State, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Known, Link, Options};
use crate::{EVENTS, STREAM, wake};

/// Events that are published before the first of them must be acknowledged.
const PAGE: u32 = 64;
/// The largest body of an event.
const MAX_BODY: usize = 256 << 10;
/// What the headers of a message may need of the largest message of the server.
const HEADERS: usize = 1024;
/// The smallest body that a server must accept.
const MIN_BODY: usize = 8 << 10;
/// The messages that the stream keeps, if the publisher makes it.
const KEPT: i64 = 1_000_000;
/// How long the server recognises an id again. The expected end of the stream does not depend on it.
const RECOGNISED: Duration = Duration::from_secs(30);
/// Messages without an id of a log that may be at the end of the stream.
const FOREIGN: u64 = 100;
/// Failures on one connection after which it is made again.
const FAILURES: u32 = 3;
/// The pause from a commit to the read of the log, so that commits in a row cause one page.
const COMMIT_DELAY: Duration = Duration::from_millis(20);
/// How often the log is read and its rest is counted without a commit.
const LOOK: Duration = Duration::from_secs(5);

const ID: &str = "Nats-Msg-Id";
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
const EXPECTED_END: &str = "Nats-Expected-Last-Sequence";

/// Why the log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the event log cannot be read: {0}")]
pub struct LogError(pub String);

/// An event as it is published.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number in the log.
    pub seq: i64,
    /// Its subject.
    pub subject: String,
    /// Its body.
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
pub trait Observer: Send + Sync {
    /// There is a connection, or none.
    fn connected(&self, connected: bool);
    /// Events were published and acknowledged.
    fn published(&self, events: u64);
    /// How many numbers of the log are not in the stream yet.
    fn waiting(&self, events: u64);
}

/// What the publisher works with.
pub struct Parts {
    /// The log.
    pub log: Arc<dyn EventLog>,
    /// The metrics.
    pub observer: Arc<dyn Observer>,
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
        "the server accepts messages of {0} bytes at most, and an event needs up to {MIN_BODY}; raise max_payload"
    )]
    SmallMessages(usize),
    #[error(
        "the stream {STREAM} cannot be made or read ({0}); check that the server runs with JetStream and lets this user use it"
    )]
    Stream(String),
    #[error(
        "the server does not store events in {STREAM} ({0}); check the subjects and the limits of the stream, and its free space"
    )]
    Publish(PublishErrorKind),
    #[error(
        "the server still recognises the ids of messages that the stream has lost; they are stored after its duplicate window"
    )]
    Recognised,
    #[error("the end of the stream {STREAM} has moved; another program publishes in its subjects")]
    Moved,
}

impl Refusal {
    /// Whether the client may be the reason: a malformed message of the server ends it without a word.
    fn may_be_the_client(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Publish(_))
    }
}

/// Publishes until `stop`.
pub async fn run(options: Options, parts: Parts, stop: CancellationToken) {
    let Parts { log, observer, mut wakes } = parts;
    let publisher = Publisher { log, observer: Arc::clone(&observer), options };
    stop.run_until_cancelled(publisher.run(&mut wakes)).await;
    observer.connected(false);
}

struct Publisher {
    log: Arc<dyn EventLog>,
    observer: Arc<dyn Observer>,
    options: Options,
}

impl Publisher {
    async fn run(&self, wakes: &mut mpsc::Receiver<String>) {
        let known = Known::default();
        let mut said = None;
        let mut attempt = 0;
        loop {
            let connection = match Connection::open(&self.options, &known).await {
                Ok(connection) => connection,
                Err(why) => {
                    tracing::error!(why, "events are not published: the settings of NATS cannot be used");
                    return std::future::pending().await;
                }
            };
            tokio::select! {
                () = self.publish(&connection, &mut said) => {}
                () = wake::publish(&connection, wakes) => {}
            }
            // The client has ended, or its connection does not work: another one is made.
            self.observer.connected(false);
            attempt += 1;
            tokio::time::sleep(self.options.limits.pause(attempt)).await;
        }
    }

    /// Publishes over one client. Returns when the client is of no more use. `said` is the refusal that was logged.
    async fn publish(&self, connection: &Connection, said: &mut Option<String>) {
        let mut failures = 0;
        let mut position = 0;
        loop {
            let Some(link) = self.connected(connection, position).await else { return };
            match self.follow(connection, link, &mut position, said).await {
                Ok(()) => failures = 0,
                Err(why) => {
                    failures += 1;
                    let still = connection.now() == link;
                    if still && failures % FAILURES == 0 && why.may_be_the_client() {
                        return;
                    }
                    // One failure is that of a connection that ends, which has its own line.
                    let why = why.to_string();
                    if still && failures > 1 && said.as_ref() != Some(&why) {
                        tracing::warn!(
                            why,
                            "events are not published to NATS; they wait in the log of the controller"
                        );
                        *said = Some(why);
                    }
                    let mut moved = connection.link();
                    tokio::select! {
                        () = tokio::time::sleep(self.options.limits.pause(failures)) => {}
                        _ = moved.wait_for(|now| *now != link) => {}
                    }
                }
            }
        }
    }

    /// Waits for a connection. `None`: the client has ended.
    async fn connected(&self, connection: &Connection, position: i64) -> Option<Link> {
        let mut link = connection.link();
        loop {
            let now = *link.borrow_and_update();
            self.observer.connected(now.connected);
            if now.connected {
                return Some(now);
            }
            self.count(position).await;
            tokio::select! {
                changed = link.changed() => changed.ok()?,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Counts what is not in the stream. The log is asked for nothing else, so an error counts nothing.
    async fn count(&self, position: i64) {
        if let Ok(last) = self.log.last().await {
            self.observer.waiting(u64::try_from(last - position).unwrap_or(0));
        }
    }

    /// Publishes page after page until the connection is lost or replaced.
    async fn follow(
        &self,
        connection: &Connection,
        link: Link,
        position: &mut i64,
        said: &mut Option<String>,
    ) -> Result<(), Refusal> {
        let log = self.log.id().await?;
        let mut context = jetstream::new(connection.client.clone());
        context.set_timeout(self.options.limits.request);
        let stream = context.get_or_create_stream(stream_config()).await;
        let stream = stream.map_err(|why| Refusal::Stream(why.kind().to_string()))?;
        let state = stream.cached_info().state.clone();
        *position = self.position(&stream, &state, &log).await?;
        let mut end = state.last_sequence;
        let max_body = max_body(connection)?;
        let (mut commits, mut moved) = (self.log.commits(), connection.link());
        loop {
            commits.mark_unchanged();
            let records = self.log.after(*position, PAGE, max_body).await?;
            let full = records.len() == PAGE as usize;
            if let Some(last) = records.last().map(|record| record.seq) {
                let published = records.len() as u64;
                store(&context, &log, records, end).await?;
                end += published;
                *position = last;
                self.observer.published(published);
                if said.take().is_some() {
                    tracing::info!("events are published to NATS again");
                }
            }
            self.count(*position).await;
            let commit = async {
                // The log outlives its publisher; otherwise only the pause counts.
                if commits.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(COMMIT_DELAY).await;
            };
            tokio::select! {
                biased;
                _ = moved.wait_for(|now| *now != link) => return Ok(()),
                () = std::future::ready(()), if full => {}
                () = commit => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// The number of the last event of the log that is in the stream.
    async fn position(&self, stream: &Stream, state: &State, log: &str) -> Result<i64, Refusal> {
        if state.messages == 0 {
            return Ok(0);
        }
        let first = state.first_sequence.max(state.last_sequence.saturating_sub(FOREIGN));
        for sequence in (first..=state.last_sequence).rev() {
            let message = match stream.get_raw_message(sequence).await {
                Ok(message) => message,
                // It was deleted.
                Err(why) if why.kind() == RawMessageErrorKind::NoMessageFound => continue,
                Err(why) => return Err(Refusal::Stream(why.kind().to_string())),
            };
            let id = message.headers.get(ID).map(|id| id.as_str().to_owned());
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
async fn store(context: &Context, log: &str, records: Vec<Record>, end: u64) -> Result<(), Refusal> {
    let refused = |why: async_nats::jetstream::context::PublishError| match why.kind() {
        PublishErrorKind::WrongLastSequence => Refusal::Moved,
        kind => Refusal::Publish(kind),
    };
    let mut waiting = Vec::new();
    for (record, before) in records.into_iter().zip(end..) {
        let mut headers = HeaderMap::new();
        headers.insert(ID, format!("{log}-{}", record.seq));
        headers.insert(EXPECTED_STREAM, STREAM);
        headers.insert(EXPECTED_END, before.to_string());
        let sent = context.publish_with_headers(record.subject, headers, record.body).await;
        waiting.push((before + 1, sent.map_err(refused)?));
    }
    for (sequence, acknowledged) in waiting {
        let acknowledged = acknowledged.await.map_err(refused)?;
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
fn max_body(connection: &Connection) -> Result<usize, Refusal> {
    let message = connection.client.server_info().max_payload;
    let body = message.saturating_sub(HEADERS);
    if body < MIN_BODY { Err(Refusal::SmallMessages(message)) } else { Ok(body.min(MAX_BODY)) }
}

fn stream_config() -> Config {
    Config {
        name: STREAM.to_owned(),
        description: Some("Events of a Shoal controller".to_owned()),
        subjects: vec![format!("{EVENTS}.>")],
        max_messages: KEPT,
        discard: DiscardPolicy::Old,
        storage: StorageType::File,
        duplicate_window: RECOGNISED,
        ..Config::default()
    }
}
