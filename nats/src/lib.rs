//! Events and wake-ups over a NATS server with JetStream. NATS is a transport, never the source of truth: its loss adds latency.
//!
//! ```text
//!   event log of the controller ──publish──> stream SHOAL_EVENTS   shoal.events.<workflow>.<event type>   kept, in order
//!            ▲                                     │
//!            └──── where to continue: the last message of the stream
//!
//!   work becomes claimable      ──publish──> shoal.wake.<queue>    not kept ──> a worker elsewhere claims at once
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `address` | the URL of the server |
//! | `credentials` | the file with the credentials |
//! | `options` | what a connection is made with: server, credentials, TLS, times |
//! | `protocol` | what a server sends, read with bounds |
//! | `session` | one connection: login, messages, responses, subscriptions |
//! | `connection` | the connections one after the other: pauses, and the lines of a loss and a return |
//! | `jetstream` | requests to the stream |
//! | `publisher` | the stream: order, position, repetitions |
//! | `wake` | subjects of wake-ups, and their subscription |
//!
//! Invariants
//! - Each event is published after the one before it: the server compares the end of the stream with the one that the publisher
//!   knows, and refuses the message otherwise. So a late message of a lost connection cannot come out of order or twice.
//! - The position is read from the stream at every connection. A stream that is empty is filled again from the log.
//! - Everything that waits is bounded: one page of events, 64 wake-ups, the frames of one connection. No length that the server
//!   names decides an allocation.
//! - Neither credentials nor texts of the server are in a log line.

mod address;
mod connection;
mod credentials;
mod jetstream;
mod options;
mod protocol;
mod publisher;
mod session;
#[cfg(test)]
mod tests;
mod wake;

pub use address::{ServerUrl, ServerUrlError};
pub use credentials::{CredentialsError, NatsCredentials};
pub use options::{Limits, Options};
#[doc(hidden)]
pub use protocol::fuzz;
pub use publisher::{EventLog, LogError, Parts, Record, StreamObserver, run};
pub use wake::{WAKES, Wakes, wake_channel};

/// The stream with the events.
pub const STREAM: &str = "SHOAL_EVENTS";
/// The start of the subjects of events.
pub const EVENTS: &str = "shoal.events";
/// The start of the subjects of wake-ups.
const WAKE: &str = "shoal.wake";

/// The subject of an event.
pub fn event_subject(workflow: &str, kind: &str) -> String {
    // The type of an event has dots, and each part is a token of the subject.
    let kind: Vec<String> = kind.split('.').map(token).collect();
    format!("{EVENTS}.{}.{}", token(workflow), kind.join("."))
}

/// A text as one token of a subject: other characters than letters, digits, `-` and `_` become `_`.
fn token(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let token: String =
        text.chars().take(64).map(|letter| if plain(letter) { letter } else { '_' }).collect();
    if token.is_empty() { "_".to_owned() } else { token }
}
