//! The transport over sockets: HTTP/1.1 over TCP or TLS.
//!
//! ```text
//!   connect (10 s) -> TLS (pin | CA | any) -> request -> status + headers -> body, counted up to 4 MiB
//!   `------------------------------- one deadline --------------------------------------------'
//! ```
//!
//! No proxy, no redirect, no compression, no HTTP/2. One idle connection is kept for a few seconds only: BMCs drop
//! idle connections, and the outcome of a request on a dropped connection is unknown. After `release_idle` the
//! transport holds neither connection nor TLS configuration; the next request creates both.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::endpoint::Endpoint;
use crate::tls::{Fingerprint, PeerCertificate, PinMismatch, TlsVerification, client_config};
use crate::transport::{MAX_BODY, Request, Response, Transport, TransportError, TransportErrorKind};
use crate::upload::UploadBody;

/// Times of the transport that do not depend on the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpOptions {
    /// Time limit for the TCP connection and the TLS handshake.
    pub connect_timeout: Duration,
    /// The time for which an idle connection is kept for the next request.
    pub idle_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions { connect_timeout: Duration::from_secs(10), idle_timeout: Duration::from_secs(4) }
    }
}

/// A transport to one BMC over HTTP or HTTPS.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    base: String,
    tls: TlsVerification,
    options: HttpOptions,
    /// `None` before the first request and after `release_idle`.
    client: Arc<Mutex<Option<reqwest::Client>>>,
    peer: PeerCertificate,
}

impl HttpTransport {
    /// Creates a transport; nothing is sent. `tls` is not used when the endpoint is plain HTTP.
    ///
    /// # Errors
    ///
    /// When the TLS settings are not usable.
    pub fn new(
        endpoint: &Endpoint,
        tls: &TlsVerification,
        options: HttpOptions,
    ) -> Result<Self, TransportError> {
        let base = endpoint.to_string();
        let (client, peer) = (Arc::default(), PeerCertificate::default());
        let transport = HttpTransport { base, tls: tls.clone(), options, client, peer };
        transport.client()?;
        Ok(transport)
    }

    fn client(&self) -> Result<reqwest::Client, TransportError> {
        let mut kept = self.client.lock();
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(client_config(&self.tls, self.peer.clone())?)
            .no_proxy()
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(self.options.connect_timeout)
            .pool_max_idle_per_host(1)
            .pool_idle_timeout(self.options.idle_timeout)
            .build()
            .map_err(|error| TransportError::not_sent(TransportErrorKind::Config, causes(&error)))?;
        Ok(kept.insert(client).clone())
    }

    /// The fingerprint of the certificate in the latest handshake, also when it was refused.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.peer.get()
    }

    async fn exchange(&self, mut request: Request) -> Result<Response, TransportError> {
        let body = request.body.take().map(reqwest::Body::from);
        self.exchange_with(request, body).await
    }

    async fn exchange_with(
        &self,
        request: Request,
        body: Option<reqwest::Body>,
    ) -> Result<Response, TransportError> {
        let url = format!("{}{}", self.base, request.path);
        let mut builder = self.client()?.request(request.method, url).headers(request.headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let mut response = builder.send().await.map_err(|error| failure(&error))?;
        let too_large = || {
            let detail = format!("the response has more than {MAX_BODY} bytes");
            TransportError::maybe_sent(TransportErrorKind::BodyTooLarge, detail)
        };
        if response.content_length().is_some_and(|length| length > MAX_BODY as u64) {
            return Err(too_large());
        }
        let mut body = BytesMut::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len() + chunk.len() > MAX_BODY {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        let headers = std::mem::take(response.headers_mut());
        Ok(Response { status: response.status(), headers, body: body.freeze() })
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        in_time(deadline, self.exchange(request)).await
    }

    async fn upload(
        &self,
        request: Request,
        body: UploadBody,
        deadline: Duration,
    ) -> Result<Response, TransportError> {
        // The exact size of the body becomes its Content-Length: many BMCs refuse a chunked upload.
        let body = Some(reqwest::Body::wrap(body));
        in_time(deadline, self.exchange_with(request, body)).await
    }

    fn peer_certificate(&self) -> Option<[u8; 32]> {
        self.peer.get().map(|fingerprint| fingerprint.0)
    }

    fn release_idle(&self) {
        self.client.lock().take();
    }
}

/// Waits for an exchange until its deadline.
async fn in_time(
    deadline: Duration,
    exchange: impl Future<Output = Result<Response, TransportError>>,
) -> Result<Response, TransportError> {
    match timeout(deadline, exchange).await {
        Ok(result) => result,
        Err(_) => {
            let detail = format!("no complete response within {} s", deadline.as_secs_f32());
            Err(TransportError::maybe_sent(TransportErrorKind::Timeout, detail))
        }
    }
}

/// Reads the fingerprint of a BMC's certificate without sending credentials, for the first pin.
///
/// # Errors
///
/// When the TLS handshake fails before the certificate is received, or when the BMC responds without TLS.
pub async fn read_fingerprint(
    endpoint: &Endpoint,
    deadline: Duration,
) -> Result<Fingerprint, TransportError> {
    let transport = HttpTransport::new(endpoint, &TlsVerification::Insecure, HttpOptions::default())?;
    let path = crate::endpoint::SERVICE_ROOT.to_owned();
    let request = Request { method: Method::GET, path, headers: HeaderMap::new(), body: None };
    let sent = transport.send(request, deadline).await;
    match (transport.peer_fingerprint(), sent) {
        (Some(fingerprint), _) => Ok(fingerprint),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => {
            let detail = "the BMC responds without TLS, there is no certificate to pin";
            Err(TransportError::not_sent(TransportErrorKind::Config, detail))
        }
    }
}

/// Converts a failure of the HTTP library; the detail never contains the URL.
fn failure(error: &reqwest::Error) -> TransportError {
    let detail = causes(error);
    if error.is_builder() {
        return TransportError::not_sent(TransportErrorKind::Config, detail);
    }
    if let Some((kind, known)) = tls_problem(error) {
        let detail = known.unwrap_or(detail);
        // A BMC can end TLS when it has the whole request, such as a web server that stops because its firmware is written.
        return match error.is_connect() {
            true => TransportError::not_sent(kind, detail),
            false => TransportError::maybe_sent(kind, detail),
        };
    }
    if error.is_connect() {
        return TransportError::not_sent(connect_problem(error), detail);
    }
    if error.is_timeout() {
        return TransportError::maybe_sent(TransportErrorKind::Timeout, detail);
    }
    if detail.contains("invalid HTTP") {
        return TransportError::maybe_sent(TransportErrorKind::Protocol, detail);
    }
    TransportError::maybe_sent(TransportErrorKind::Lost, detail)
}

/// The TLS failure in the chain of causes, with its detail; `None` when there is none.
fn tls_problem(error: &reqwest::Error) -> Option<(TransportErrorKind, Option<String>)> {
    use rustls::{AlertDescription, CertificateError, Error};
    let tls = find_cause::<Error>(error)?;
    Some(match tls {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<PinMismatch>() {
                Some(mismatch) => (TransportErrorKind::PinMismatch, Some(mismatch.to_string())),
                None => (TransportErrorKind::Untrusted, Some(tls.to_string())),
            }
        }
        Error::InvalidCertificate(_) => (TransportErrorKind::Untrusted, Some(tls.to_string())),
        Error::PeerIncompatible(_)
        | Error::AlertReceived(
            AlertDescription::ProtocolVersion
            | AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity,
        ) => (TransportErrorKind::LegacyTls, Some(tls.to_string())),
        Error::InvalidMessage(_) => (TransportErrorKind::NotTls, Some(tls.to_string())),
        _ => (TransportErrorKind::TlsHandshake, Some(tls.to_string())),
    })
}

/// The reason why there is no connection.
fn connect_problem(error: &reqwest::Error) -> TransportErrorKind {
    use std::io::ErrorKind;
    // The connector wraps an I/O error into another one, so every cause is looked at.
    let caused_by = |kind| find_cause_that(error, |io: &std::io::Error| io.kind() == kind).is_some();
    if caused_by(ErrorKind::ConnectionRefused) {
        return TransportErrorKind::Refused;
    }
    // A TCP connection does not end before it exists: this is the end of a TLS handshake.
    if caused_by(ErrorKind::UnexpectedEof) {
        return TransportErrorKind::HandshakeCut;
    }
    // A failure of the resolver is a plain I/O error; only the text of the connector distinguishes it.
    let mut cause = error.source();
    for _ in 0..MAX_CAUSES {
        let Some(current) = cause else { break };
        if current.to_string().starts_with("dns error") {
            return TransportErrorKind::Resolve;
        }
        cause = current.source();
    }
    TransportErrorKind::Connect
}

/// Maximum number of causes that are searched.
const MAX_CAUSES: usize = 16;

/// The first cause of this type, also inside an I/O error.
fn find_cause<T: StdError + 'static>(error: &reqwest::Error) -> Option<&T> {
    find_cause_that(error, |_| true)
}

/// The first cause of this type with a property.
fn find_cause_that<T: StdError + 'static>(error: &reqwest::Error, fits: impl Fn(&T) -> bool) -> Option<&T> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    for _ in 0..MAX_CAUSES {
        let current = cause?;
        if let Some(found) = current.downcast_ref::<T>().filter(|found| fits(found)) {
            return Some(found);
        }
        // `source` of an I/O error skips the error it wraps, so that one is taken with `get_ref`.
        let inside = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = inside.map(|inside| inside as &(dyn StdError + 'static)).or_else(|| current.source());
    }
    None
}

/// The causes of a library error in one bounded line, without its first line, which contains the URL.
fn causes(error: &dyn StdError) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(current) = cause {
        let text = current.to_string();
        if parts.len() < 8 && parts.last() != Some(&text) {
            parts.push(text);
        }
        cause = current.source();
    }
    if parts.is_empty() {
        parts.push("the HTTP library gave no reason".to_owned());
    }
    crate::json::clip(&parts.join(": "), 300)
}
