//! The interface between client and network: one HTTP request to one BMC, with one deadline.
//!
//! ```text
//!   Request {method, path, headers, body}  --send(deadline)-->  Response {status, headers, body <= 4 MiB}
//!                                                          \->  TransportError {kind, maybe_sent, detail}
//! ```
//!
//! A transport knows the address of its BMC; a request contains only a path (origin form, RFC 9112 3.2.1), so that no
//! response can direct credentials to another host. A transport follows no redirects and never retries. `maybe_sent`
//! says whether the BMC may have received, and carried out, a request that failed.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use crate::upload::UploadBody;

/// Maximum size of a response body.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// A request to the BMC the transport belongs to.
#[derive(Clone)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// Path and optional query, with a slash at the start.
    pub path: String,
    /// Header fields, including credentials.
    pub headers: HeaderMap,
    /// The body; `None` means no body and no content type.
    pub body: Option<Bytes>,
}

/// Headers and body may contain credentials and are not shown.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("body_bytes", &self.body.as_ref().map_or(0, Bytes::len))
            .finish_non_exhaustive()
    }
}

/// Response of the BMC with any status.
#[derive(Clone)]
pub struct Response {
    /// The HTTP status.
    pub status: StatusCode,
    /// Header fields, possibly with a session token.
    pub headers: HeaderMap,
    /// The whole body, at most [`MAX_BODY`] bytes.
    pub body: Bytes,
}

/// Headers and body may contain tokens and are not shown.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Sends requests to one BMC; concurrent calls are allowed.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends the request and reads the whole response, both within `deadline` from now.
    ///
    /// # Errors
    ///
    /// When there is no complete response in time; [`TransportError::maybe_sent`] says whether the BMC may have received
    /// the request.
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError>;

    /// Sends a request whose body is a stream, and reads the whole response, both within `deadline` from now. A transport
    /// that cannot send a stream reads the body into memory first, which this default does.
    ///
    /// # Errors
    ///
    /// As for [`Transport::send`]; also when the body cannot be read. Whether the BMC may have the whole body is known by
    /// the progress of the body.
    async fn upload(
        &self,
        request: Request,
        body: UploadBody,
        deadline: Duration,
    ) -> Result<Response, TransportError> {
        let unreadable =
            |error: std::io::Error| TransportError::not_sent(TransportErrorKind::Config, error.to_string());
        let body = Some(body.collect().await.map_err(unreadable)?);
        self.send(Request { body, ..request }, deadline).await
    }

    /// SHA-256 of the certificate in the latest handshake, also when it was refused; `None` without TLS.
    fn peer_certificate(&self) -> Option<[u8; 32]> {
        None
    }

    /// Releases connections and other state that the next request can create again.
    fn release_idle(&self) {}
}

/// A request without a response.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct TransportError {
    /// Kind of the failure.
    pub kind: TransportErrorKind,
    /// Whether the BMC may have received the request.
    pub maybe_sent: bool,
    /// One line for operators, without secrets.
    pub detail: String,
}

/// Kind of a transport failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// There is no connection: unreachable, or connect timeout.
    #[error("cannot connect")]
    Connect,
    /// The host refuses connections on this port.
    #[error("connection refused")]
    Refused,
    /// The host name has no address.
    #[error("the name does not resolve")]
    Resolve,
    /// The deadline passed before a complete response.
    #[error("no response in time")]
    Timeout,
    /// The peer ended the connection during the TLS handshake, as old firmware does with a version it does not know.
    #[error("connection ended during the TLS handshake")]
    HandshakeCut,
    /// The connection ended before a complete response.
    #[error("connection lost")]
    Lost,
    /// The certificate is not the pinned one.
    #[error("certificate differs from the pinned one")]
    PinMismatch,
    /// The certificate is not trusted by the given CA.
    #[error("certificate not trusted")]
    Untrusted,
    /// Client and BMC share no TLS version or cipher.
    #[error("the BMC offers only legacy TLS (older than 1.2, or insecure ciphers)")]
    LegacyTls,
    /// The peer does not use TLS.
    #[error("the peer does not use TLS")]
    NotTls,
    /// The TLS handshake failed for another reason.
    #[error("the TLS handshake failed")]
    TlsHandshake,
    /// The response is larger than [`MAX_BODY`].
    #[error("response too large")]
    BodyTooLarge,
    /// The response is not HTTP.
    #[error("not an HTTP response")]
    Protocol,
    /// The request could not be built with this configuration.
    #[error("invalid configuration")]
    Config,
}

impl TransportError {
    /// A failure after which it is certain that the BMC did not receive the request.
    pub fn not_sent(kind: TransportErrorKind, detail: impl Into<String>) -> Self {
        TransportError { kind, maybe_sent: false, detail: detail.into() }
    }

    /// A failure after which the BMC may have carried out the request.
    pub fn maybe_sent(kind: TransportErrorKind, detail: impl Into<String>) -> Self {
        TransportError { kind, maybe_sent: true, detail: detail.into() }
    }
}
