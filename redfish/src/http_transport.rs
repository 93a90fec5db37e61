//! The transport on real sockets: HTTP/1.1 over TCP or TLS.
//!
//! ```text
//!   connect (10 s) -> TLS (pin | CA | any) -> request -> status + headers -> body, counted up to 4 MiB
//!   `------------------------------- one deadline --------------------------------------------'
//! ```
//!
//! No proxy, no redirect, no compression, no HTTP/2. One idle connection is kept for a few seconds only: BMCs
//! drop idle connections, and a request that meets such a drop has an unknown fate. A transport that rests holds neither
//! connection nor TLS configuration: both come back with the next request.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::BytesMut;
use http::{HeaderMap, Method};
use tokio::time::timeout;

use crate::endpoint::Endpoint;
use crate::tls::{Fingerprint, PinMismatch, Seen, TlsMode, client_config};
use crate::transport::{MAX_BODY, Request, Response, Transport, TransportError, TransportErrorKind};

/// Times of the transport that do not depend on the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HttpOptions {
    /// How long TCP and TLS may take to be established.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept for the next request.
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
    tls: TlsMode,
    options: HttpOptions,
    /// None while it rests.
    client: Arc<Mutex<Option<reqwest::Client>>>,
    seen: Seen,
}

impl HttpTransport {
    /// Prepares a transport; nothing is sent. `tls` is not looked at when the endpoint is plain HTTP.
    pub fn new(endpoint: &Endpoint, tls: &TlsMode, options: HttpOptions) -> Result<Self, TransportError> {
        let base = endpoint.to_string();
        let (client, seen) = (Arc::default(), Seen::default());
        let transport = HttpTransport { base, tls: tls.clone(), options, client, seen };
        transport.client()?;
        Ok(transport)
    }

    fn client(&self) -> Result<reqwest::Client, TransportError> {
        let mut kept = self.kept();
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(client_config(&self.tls, self.seen.clone())?)
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

    fn kept(&self) -> MutexGuard<'_, Option<reqwest::Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fingerprint of the certificate seen at the newest handshake, also when it was refused.
    pub fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.seen.get()
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let url = format!("{}{}", self.base, request.path);
        let mut builder = self.client()?.request(request.method, url).headers(request.headers);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let mut response = builder.send().await.map_err(|error| failure(&error))?;
        let too_large = || {
            let detail = format!("the answer has more than {MAX_BODY} bytes");
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
        match timeout(deadline, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => {
                let detail = format!("no complete answer within {} s", deadline.as_secs_f32());
                Err(TransportError::maybe_sent(TransportErrorKind::Timeout, detail))
            }
        }
    }

    fn rest(&self) {
        self.kept().take();
    }
}

/// Reads the fingerprint of a BMC's certificate without sending any credentials, for the first pin.
pub async fn read_fingerprint(
    endpoint: &Endpoint,
    deadline: Duration,
) -> Result<Fingerprint, TransportError> {
    let transport = HttpTransport::new(endpoint, &TlsMode::Insecure, HttpOptions::default())?;
    let path = crate::discovery::SERVICE_ROOT.to_owned();
    let request = Request { method: Method::GET, path, headers: HeaderMap::new(), body: None };
    let sent = transport.send(request, deadline).await;
    match (transport.peer_fingerprint(), sent) {
        (Some(fingerprint), _) => Ok(fingerprint),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => {
            let detail = "the BMC answers without TLS, there is no certificate to pin";
            Err(TransportError::not_sent(TransportErrorKind::Config, detail))
        }
    }
}

/// What a failure of the HTTP library means; the detail never holds the URL.
fn failure(error: &reqwest::Error) -> TransportError {
    let detail = causes(error);
    if error.is_builder() {
        return TransportError::not_sent(TransportErrorKind::Config, detail);
    }
    if let Some((kind, known)) = tls_problem(error) {
        return TransportError::not_sent(kind, known.unwrap_or(detail));
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

/// Whether a TLS failure stands somewhere in the chain of causes, which one, and what is known of it.
fn tls_problem(error: &reqwest::Error) -> Option<(TransportErrorKind, Option<String>)> {
    use rustls::{AlertDescription, CertificateError, Error};
    let tls = find_cause::<Error>(error)?;
    Some(match tls {
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<PinMismatch>() {
                Some(mismatch) => (TransportErrorKind::PinMismatch, Some(mismatch.to_string())),
                None => (TransportErrorKind::Untrusted, None),
            }
        }
        Error::InvalidCertificate(_) => (TransportErrorKind::Untrusted, None),
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

/// Why there is no connection.
fn connect_problem(error: &reqwest::Error) -> TransportErrorKind {
    if find_cause::<std::io::Error>(error)
        .is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused)
    {
        return TransportErrorKind::Refused;
    }
    // The resolver's failure is a plain I/O error; only the connector's own words tell it from others.
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

/// More causes than this are not looked at.
const MAX_CAUSES: usize = 16;

/// The first cause of that type, also one inside an I/O error.
fn find_cause<T: StdError + 'static>(error: &reqwest::Error) -> Option<&T> {
    let mut cause: Option<&(dyn StdError + 'static)> = error.source();
    for _ in 0..MAX_CAUSES {
        let current = cause?;
        if let Some(found) = current.downcast_ref::<T>() {
            return Some(found);
        }
        // What an I/O error wraps is not its source but its inside, and it may wrap another one.
        let inside = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = inside.map(|inside| inside as &(dyn StdError + 'static)).or_else(|| current.source());
    }
    None
}

/// The causes of a library error in one bounded line, without its own first line (which would repeat the URL).
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
