//! One HTTP request to one BMC, under one deadline: the seam between the client and the network.
//!
//! ```text
//!   Request {method, path, headers, body}  --send(deadline)-->  Response {status, headers, body <= 4 MiB}
//!                                                          \->  TransportError {kind, maybe_sent, detail}
//! ```
//!
//! An implementation knows its BMC's address; a request carries only a path (origin form, RFC 9112 3.2.1), so
//! that nothing a BMC answers can direct credentials to another host. Redirects are not followed here. A
//! transport never retries. `maybe_sent` is the one thing the layers above must know about a failure: whether
//! the BMC may have seen (and carried out) the request.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

/// The largest response body a transport hands over.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// A request to the BMC the transport belongs to.
#[derive(Clone)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// Path and optional query, beginning with a slash.
    pub path: String,
    /// Header fields, credentials among them.
    pub headers: HeaderMap,
    /// The body; none means no body and no content type.
    pub body: Option<Bytes>,
}

/// Headers and body may hold credentials and are not shown.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body_bytes", &self.body.as_ref().map_or(0, Bytes::len))
            .finish_non_exhaustive()
    }
}

/// What the BMC answered, whatever its status.
#[derive(Clone)]
pub struct Response {
    /// The HTTP status.
    pub status: StatusCode,
    /// Header fields, possibly with a session token.
    pub headers: HeaderMap,
    /// The whole body, at most [`MAX_BODY`] bytes.
    pub body: Bytes,
}

/// Headers and body may hold tokens and are not shown.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Sends one request at a time to one BMC; shared, so it takes `&self`.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends the request and reads the whole answer, all within `deadline` from now.
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError>;

    /// Nothing is sent for a while: lets go of what the next request can make anew.
    fn rest(&self) {}
}

/// Why there is no response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct TransportError {
    /// What went wrong.
    pub kind: TransportErrorKind,
    /// Whether the BMC may have received the request.
    pub maybe_sent: bool,
    /// One line for people, without secrets.
    pub detail: String,
}

/// Kinds of transport failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// No connection: unreachable, connect timeout.
    #[error("cannot connect")]
    Connect,
    /// The address answers that nobody listens on that port.
    #[error("connection refused")]
    Refused,
    /// The host name has no address.
    #[error("the name does not resolve")]
    Resolve,
    /// The deadline passed before a complete answer.
    #[error("no answer in time")]
    Timeout,
    /// The connection ended before a complete answer.
    #[error("connection lost")]
    Lost,
    /// The certificate is not the pinned one.
    #[error("certificate differs from the pinned one")]
    PinMismatch,
    /// The certificate is not trusted by the given CA.
    #[error("certificate not trusted")]
    Untrusted,
    /// No common TLS version or cipher.
    #[error("the BMC offers only legacy TLS (older than 1.2, or ciphers nobody should use)")]
    LegacyTls,
    /// What answers does not speak TLS.
    #[error("what answers does not speak TLS")]
    NotTls,
    /// The TLS handshake failed for another reason.
    #[error("the TLS handshake failed")]
    TlsHandshake,
    /// The answer is larger than [`MAX_BODY`].
    #[error("answer too large")]
    BodyTooLarge,
    /// What came back is not HTTP.
    #[error("not an HTTP answer")]
    Protocol,
    /// The request could not be built from what was configured.
    #[error("invalid configuration")]
    Config,
}

impl TransportError {
    /// A failure of which it is certain that the BMC did not see the request.
    pub fn not_sent(kind: TransportErrorKind, detail: impl Into<String>) -> Self {
        TransportError { kind, maybe_sent: false, detail: detail.into() }
    }

    /// A failure after which the BMC may have carried out the request.
    pub fn maybe_sent(kind: TransportErrorKind, detail: impl Into<String>) -> Self {
        TransportError { kind, maybe_sent: true, detail: detail.into() }
    }
}
