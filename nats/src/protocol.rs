//! The messages of a NATS server, read from its bytes with bounds.
//!
//! ```text
//!   INFO {json}\r\n                                                      before the login, and later at any time
//!   MSG <subject> <sid> [reply] <bytes>\r\n<payload>\r\n
//!   HMSG <subject> <sid> [reply] <bytes of headers> <bytes of all>\r\n<headers><payload>\r\n
//!   PING\r\n    PONG\r\n    +OK\r\n    -ERR '<text>'\r\n
//! ```
//!
//! Source: <https://docs.nats.io/reference/reference-protocols/nats-protocol>.
//!
//! Invariants
//! - A line has at most [`MAX_LINE`] bytes. A content has at most [`MAX_KEPT`] bytes in memory; a longer one, and one of a
//!   subscription whose messages have no content, is read and dropped.
//! - No length that the server names decides an allocation: memory grows with the bytes that have arrived.

use std::io;

use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// The longest line. The INFO of a server in a large cluster has some kilobytes.
const MAX_LINE: usize = 64 << 10;
/// The longest content that is kept: a message of the stream with the largest body, in base64.
pub(crate) const MAX_KEPT: usize = 512 << 10;
/// The longest content that is read at all: the largest `max_payload` of a server.
const MAX_CONTENT: usize = 64 << 20;

/// Why nothing more can be read from a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection failed: {0}")]
    Io(io::ErrorKind),
    #[error("the server does not keep to the NATS protocol: {0}")]
    Malformed(&'static str),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            kind => Self::Io(kind),
        }
    }
}

/// The properties of a server, from its `INFO`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerInfo {
    /// Whether messages can have headers.
    pub(crate) headers: bool,
    /// The most bytes of headers and body of a message.
    pub(crate) max_payload: u64,
    /// The text that a client with a key signs.
    pub(crate) nonce: Option<String>,
    /// Whether the server wants TLS now.
    pub(crate) tls_required: bool,
}

/// One operation of a server. Texts of an error are dropped: they are of the server and may repeat credentials.
#[derive(Debug)]
pub(crate) enum Operation {
    Info(ServerInfo),
    Message(Message),
    Ping,
    Pong,
    Confirmed,
    Refused,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    /// The subscription.
    pub(crate) sid: u64,
    /// The status in the headers of the message: the server responds with one when there is no content.
    pub(crate) status: Option<u16>,
    /// The content; `None` if it was dropped.
    pub(crate) content: Option<Vec<u8>>,
}

/// Reads the next operation. The content of messages of the subscription `keep` is kept.
///
/// # Errors
/// When the connection has ended, or the bytes are not those of the protocol.
pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin), keep: u64) -> Result<Operation, ReadError> {
    let line = line(from).await?;
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
    match verb.to_ascii_uppercase().as_str() {
        "PING" => Ok(Operation::Ping),
        "PONG" => Ok(Operation::Pong),
        "+OK" => Ok(Operation::Confirmed),
        "-ERR" => Ok(Operation::Refused),
        "INFO" => serde_json::from_str(rest)
            .map(Operation::Info)
            .map_err(|_| ReadError::Malformed("an INFO without its fields")),
        "MSG" => message(from, rest, false, keep).await,
        "HMSG" => message(from, rest, true, keep).await,
        _ => Err(ReadError::Malformed("an unknown operation")),
    }
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<String, ReadError> {
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE + 1).unwrap_or(u64::MAX);
    (&mut *from).take(limit).read_until(b'\n', &mut line).await?;
    match line.pop() {
        Some(b'\n') => {}
        Some(_) if line.len() >= MAX_LINE => return Err(ReadError::Malformed("a line that is too long")),
        _ => return Err(ReadError::Closed),
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| ReadError::Malformed("a line that is no text"))
}

async fn message(
    from: &mut (impl AsyncBufRead + Unpin),
    arguments: &str,
    has_headers: bool,
    keep: u64,
) -> Result<Operation, ReadError> {
    const MALFORMED: ReadError =
        ReadError::Malformed("a message without its subject, subscription or length");
    let words: Vec<&str> = arguments.split_ascii_whitespace().collect();
    // The reply subject between subscription and lengths is of no use here: nothing replies.
    let (subject, sid, lengths) = match (has_headers, words.as_slice()) {
        (false, [subject, sid, length] | [subject, sid, _, length]) => (subject, sid, ["0", length]),
        (true, [subject, sid, headers, length] | [subject, sid, _, headers, length]) => {
            (subject, sid, [*headers, *length])
        }
        _ => return Err(MALFORMED),
    };
    let number = |word: &str| word.parse::<usize>().map_err(|_| MALFORMED);
    let (headers, length) = (number(lengths[0])?, number(lengths[1])?);
    if headers > length || length > MAX_CONTENT {
        return Err(ReadError::Malformed("a message with a length that no server accepts"));
    }
    let sid = sid.parse().map_err(|_| MALFORMED)?;
    let mut content = if sid == keep && length <= MAX_KEPT {
        let mut content = Vec::new();
        (&mut *from).take(wide(length)).read_to_end(&mut content).await?;
        if content.len() < length {
            return Err(ReadError::Closed);
        }
        Some(content)
    } else {
        skip(from, length).await?;
        None
    };
    let mut end = [0; 2];
    from.read_exact(&mut end).await?;
    if &end != b"\r\n" {
        return Err(ReadError::Malformed("a message that is longer than its length"));
    }
    let status = content.as_ref().and_then(|content| status(&content[..headers]));
    if let Some(content) = &mut content {
        content.drain(..headers);
    }
    Ok(Operation::Message(Message { subject: (*subject).to_owned(), sid, status, content }))
}

async fn skip(from: &mut (impl AsyncBufRead + Unpin), length: usize) -> Result<(), ReadError> {
    let mut rest = (&mut *from).take(wide(length));
    while rest.limit() > 0 {
        let arrived = rest.fill_buf().await?.len();
        if arrived == 0 {
            return Err(ReadError::Closed);
        }
        rest.consume(arrived);
    }
    Ok(())
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// The status of headers: `NATS/1.0 503`.
fn status(headers: &[u8]) -> Option<u16> {
    let first = headers.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(first).ok()?.split_ascii_whitespace();
    words.next().filter(|version| version.starts_with("NATS/"))?;
    words.next()?.parse().ok()
}

/// The value of a header in the form in which the server stores it.
pub(crate) fn header<'a>(headers: &'a [u8], name: &str) -> Option<&'a str> {
    std::str::from_utf8(headers).ok()?.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Reads all operations of some bytes: the body of the fuzz target.
///
/// # Panics
/// When a content is kept that is longer than the bytes, or than the limit.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    use futures_util::FutureExt as _;
    let mut from = bytes;
    let mut read_all = async || {
        while let Ok(operation) = read(&mut from, 1).await {
            if let Operation::Message(Message { content: Some(content), sid, .. }) = operation {
                assert!(sid == 1 && content.len() <= MAX_KEPT.min(bytes.len()));
            }
        }
    };
    // Bytes in memory are never waited for.
    assert!(read_all().now_or_never().is_some(), "bytes in memory are waited for");
    let _value = header(bytes, "Nats-Msg-Id");
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut bytes: &[u8]) -> (Vec<Operation>, ReadError) {
        let mut operations = Vec::new();
        loop {
            match read(&mut bytes, 1).await {
                Ok(operation) => operations.push(operation),
                Err(why) => return (operations, why),
            }
        }
    }

    #[tokio::test]
    async fn every_operation_of_a_server_is_read() {
        let sent = b"INFO {\"server_id\":\"A\",\"headers\":true,\"max_payload\":1048576,\"nonce\":\"n\"}\r\nPING\r\npong\r\n+OK\r\n\
            -ERR 'Authorization Violation'\r\nMSG a.b 1 5\r\nhello\r\nMSG a.b 1 reply.to 0\r\n\r\nMSG wake 2 5\r\nhello\r\n\
            HMSG a.b 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG a.b 1 r 19 21\r\nNATS/1.0\r\nA: bc\r\n\r\nhi\r\n";
        let (operations, end) = all(sent).await;
        assert!(matches!(end, ReadError::Closed), "{end}");
        let [
            Operation::Info(info),
            Operation::Ping,
            Operation::Pong,
            Operation::Confirmed,
            Operation::Refused,
            rest @ ..,
        ] = operations.as_slice()
        else {
            panic!("{operations:?}")
        };
        assert_eq!((info.headers, info.max_payload, info.nonce.as_deref()), (true, 1 << 20, Some("n")));
        let messages: Vec<_> = rest
            .iter()
            .map(|operation| match operation {
                Operation::Message(message) => (message.sid, message.status, message.content.as_deref()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            messages,
            [
                (1, None, Some(b"hello".as_slice())),
                (1, None, Some(b"".as_slice())),
                (2, None, None),
                (1, Some(503), Some(b"".as_slice())),
                (1, None, Some(b"hi".as_slice())),
            ]
        );
    }

    #[tokio::test]
    async fn other_bytes_end_the_connection_with_words() {
        let long = [b"INFO ".as_slice(), &[b'x'; MAX_LINE]].concat();
        for sent in [
            long.as_slice(),
            b"HTTP/1.1 200 OK\r\n",
            b"INFO nothing\r\n",
            b"\xff\r\n",
            b"MSG a 1\r\n",
            b"MSG a 1 -1\r\n",
            b"MSG a 1 18446744073709551615\r\n",
            b"MSG a 1 67108865\r\n",
            b"MSG a one 1\r\n",
            b"HMSG a 1 5 4\r\n",
            b"MSG a 1 1\r\nhello\r\n",
        ] {
            let (operations, end) = all(sent).await;
            assert!(operations.is_empty() && matches!(end, ReadError::Malformed(_)), "{operations:?}, {end}");
        }
        for cut in [b"PIN".as_slice(), b"MSG a 1 5\r\nhel", b"MSG a 2 5\r\nhel", b"MSG a 1 5\r\nhello"] {
            let (operations, end) = all(cut).await;
            assert!(operations.is_empty() && matches!(end, ReadError::Closed), "{operations:?}, {end}");
        }
    }

    #[tokio::test]
    async fn a_content_that_is_too_long_to_keep_is_dropped_and_reading_goes_on() {
        let long = vec![b'x'; MAX_KEPT + 1];
        let head = format!("MSG a 1 {}\r\n", long.len());
        let (operations, _) = all(&[head.as_bytes(), &long, b"\r\nPING\r\n"].concat()).await;
        let [Operation::Message(message), Operation::Ping] = operations.as_slice() else {
            panic!("{operations:?}")
        };
        assert!(message.content.is_none());
    }

    #[test]
    fn a_header_is_found_by_its_name_in_any_case() {
        let headers = b"NATS/1.0\r\nNats-Expected-Stream: S\r\nnats-msg-id:  log-7 \r\n\r\n";
        assert_eq!(header(headers, "Nats-Msg-Id"), Some("log-7"));
        assert_eq!(header(headers, "NATS/1.0"), None);
        assert_eq!(header(b"", "Nats-Msg-Id"), None);
    }

    /// The seeds in `fuzz/corpus`, replayed without a fuzzer, whole and cut at every byte.
    #[test]
    fn the_seeds_of_the_fuzz_target_break_no_promise() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/nats_server");
        let mut seeds = 0;
        for seed in std::fs::read_dir(corpus).unwrap().flatten() {
            let seed = std::fs::read(seed.path()).unwrap();
            for end in 0..=seed.len() {
                fuzz(&seed[..end]);
            }
            seeds += 1;
        }
        assert!(seeds > 3);
    }
}
