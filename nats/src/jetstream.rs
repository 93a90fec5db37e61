//! The four requests to JetStream that a publisher needs: the stream, a message of it, and the acknowledgement of a message.
//!
//! Source: <https://docs.nats.io/reference/reference-protocols/nats_api_reference>, and `server/errors.json` of nats-server for the
//! numbers of errors.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol;
use crate::session::{Pending, RequestError, Session};
use crate::{EVENTS, STREAM};

/// The header with the id of a message.
pub(crate) const ID: &str = "Nats-Msg-Id";
/// The header with the stream that must store a message.
pub(crate) const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
/// The header with the sequence after which a message must be stored.
pub(crate) const EXPECTED_END: &str = "Nats-Expected-Last-Sequence";

/// The messages that the stream keeps, if the publisher makes it.
const KEPT: i64 = 1_000_000;
/// How long the server recognises an id again. The expected end of the stream does not depend on it.
const RECOGNISED: Duration = Duration::from_secs(30);

/// Errors of the server: no message with the sequence, no stream, a stream that ends with another message.
const NO_MESSAGE: u64 = 10037;
const NO_STREAM: u64 = 10059;
const OTHER_END: u64 = 10071;

/// Why JetStream does not do what was requested. The server's own words are not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JetStreamError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the server refuses it with error {0}")]
    Refused(u64),
    #[error("the stream ends with another message")]
    OtherEnd,
    #[error("the response is none of JetStream")]
    Malformed,
}

/// What makes a stream drop messages before its limits are reached.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct StreamRules {
    /// `limits` keeps messages until a limit is reached; `interest` and `workqueue` drop them when they were consumed.
    #[serde(default)]
    pub(crate) retention: String,
}

/// A stream that exists.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct FoundStream {
    #[serde(default)]
    pub(crate) config: StreamRules,
    pub(crate) state: StreamState,
}

/// How far a stream is filled.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamState {
    pub(crate) messages: u64,
    #[serde(rename = "first_seq")]
    pub(crate) first_sequence: u64,
    #[serde(rename = "last_seq")]
    pub(crate) last_sequence: u64,
}

/// The confirmation of the server that a message is stored.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Acknowledgement {
    #[serde(rename = "seq")]
    pub(crate) sequence: u64,
    /// The id is that of an earlier message, and this one was not stored.
    #[serde(default)]
    pub(crate) duplicate: bool,
}

/// The message that the stream has at a sequence, if it has one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The message was deleted.
    Nothing,
    /// A message, with its id if it has one.
    Message(Option<String>),
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u64,
}

#[derive(Deserialize)]
struct FoundMessage {
    message: RawMessage,
}

#[derive(Deserialize)]
struct RawMessage {
    hdrs: Option<String>,
}

/// The stream as the publisher makes it. What is not named has the server's default.
#[derive(Serialize)]
struct StreamConfig {
    name: &'static str,
    description: &'static str,
    subjects: [String; 1],
    retention: &'static str,
    max_msgs: i64,
    discard: &'static str,
    storage: &'static str,
    num_replicas: u8,
    /// The time in which the server recognises the id of a repeated message, in nanoseconds.
    duplicate_window: u128,
}

/// The stream. It is made if it is missing.
///
/// # Errors
/// When the server has no JetStream, or refuses.
pub(crate) async fn stream(session: &Session) -> Result<FoundStream, JetStreamError> {
    let found = session.request(&format!("$JS.API.STREAM.INFO.{STREAM}"), b"").await?;
    match read(&found) {
        Err(JetStreamError::Refused(NO_STREAM)) => {}
        found => return found,
    }
    let config = StreamConfig {
        name: STREAM,
        description: "Events of a Shoal controller",
        subjects: [format!("{EVENTS}.>")],
        retention: "limits",
        max_msgs: KEPT,
        discard: "old",
        storage: "file",
        num_replicas: 1,
        duplicate_window: RECOGNISED.as_nanos(),
    };
    // A `StreamConfig` has texts and numbers only, which are always JSON.
    let config = serde_json::to_vec(&config).unwrap_or_default();
    let made = session.request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), &config).await?;
    read(&made)
}

/// Reads the message that the stream has at a sequence. A message that is too long for this program to have sent it has no id.
///
/// # Errors
/// When the server does not respond, or refuses.
pub(crate) async fn stored(session: &Session, sequence: u64) -> Result<Stored, JetStreamError> {
    let request = format!("{{\"seq\":{sequence}}}");
    let found = session.request(&format!("$JS.API.STREAM.MSG.GET.{STREAM}"), request.as_bytes()).await;
    let found = match found {
        Err(RequestError::TooLong) => return Ok(Stored::Message(None)),
        found => found?,
    };
    let headers = match read::<FoundMessage>(&found) {
        Err(JetStreamError::Refused(NO_MESSAGE)) => return Ok(Stored::Nothing),
        read => read?.message.hdrs,
    };
    let headers = STANDARD.decode(headers.unwrap_or_default()).map_err(|_| JetStreamError::Malformed)?;
    Ok(Stored::Message(protocol::header(&headers, ID).map(str::to_owned)))
}

/// Waits for the acknowledgement of a message.
///
/// # Errors
/// When there is no acknowledgement, or the server does not store the message.
pub(crate) async fn acknowledged(message: Pending) -> Result<Acknowledgement, JetStreamError> {
    read(&message.response().await?)
}

fn read<T: DeserializeOwned>(response: &[u8]) -> Result<T, JetStreamError> {
    #[derive(Deserialize)]
    struct Refused {
        error: Refusal,
    }
    match serde_json::from_slice::<Refused>(response) {
        Ok(Refused { error: Refusal { err_code: OTHER_END } }) => Err(JetStreamError::OtherEnd),
        Ok(Refused { error }) => Err(JetStreamError::Refused(error.err_code)),
        Err(_no_error) => serde_json::from_slice(response).map_err(|_| JetStreamError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_before_a_result() {
        let ack =
            |text: &str| read::<Acknowledgement>(text.as_bytes()).map(|ack| (ack.sequence, ack.duplicate));
        assert_eq!(ack(r#"{"stream":"S","seq":7}"#), Ok((7, false)));
        assert_eq!(ack(r#"{"stream":"S","seq":7,"duplicate":true}"#), Ok((7, true)));
        assert_eq!(
            ack(
                r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 1"},"stream":"S","seq":0}"#
            ),
            Err(JetStreamError::OtherEnd)
        );
        assert_eq!(ack(r#"{"error":{"code":503,"err_code":10077}}"#), Err(JetStreamError::Refused(10077)));
        for other in ["", "[]", "{}", "{\"seq\":-1}", "\u{0}"] {
            assert_eq!(ack(other), Err(JetStreamError::Malformed), "{other}");
        }
    }
}
