//! A simulated BMC without a socket: the client's [`Transport`] trait, served by a BMC in the same process.
//!
//! ```text
//!   client ── Transport::send(request, deadline) ──► InProcess ──► SimBmc::handle ──► Response
//!                                                        └── ConnectionCut, deadline ──► TransportError
//! ```
//!
//! Nothing here needs a network, a thread or the wall clock: with paused time and a [`super::MediaReader`] that
//! reads from memory a whole run is a function of its seed. A failure says the same about the request as on a real
//! connection: with a refused connection or handshake it was not sent, with every later failure it may have been sent.

use std::time::Duration;

use super::{
    body::BodyTransfer,
    sim_bmc::{Connection, ConnectionCut, SimBmc},
};
use async_trait::async_trait;
use redfish::transport::{MAX_BODY, Request, Response, Transport, TransportError, TransportErrorKind};

/// A [`Transport`] to a simulated BMC in this process.
#[derive(Clone, Debug)]
pub struct InProcess {
    bmc: SimBmc,
    /// The revision of the certificate at the start: the one a client would have pinned.
    pinned: u64,
}

impl InProcess {
    /// Creates a transport to this simulated BMC, which may have any number of them. It stands for a TLS connection that
    /// pins the current certificate.
    pub fn new(bmc: SimBmc) -> Self {
        let pinned = bmc.state().certificate;
        Self { bmc, pinned }
    }

    /// Opens a connection: each request has its own.
    fn connect(&self) -> Result<(), TransportError> {
        match self.bmc.connect() {
            Ok(()) => {}
            Err(Connection::Cut) => return Err(failure(ConnectionCut::Refused)),
            Err(Connection::FailHandshake | Connection::LegacyTls) => {
                return Err(failure(ConnectionCut::Handshake));
            }
        }
        if self.bmc.state().certificate != self.pinned {
            let detail = "the certificate of the simulated BMC is not the pinned one";
            return Err(TransportError::not_sent(TransportErrorKind::PinMismatch, detail));
        }
        Ok(())
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        self.connect()?;
        let mut received = http::Request::new(request.body.unwrap_or_default());
        *received.method_mut() = request.method;
        *received.headers_mut() = request.headers;
        *received.uri_mut() = request.path.parse().map_err(|error: http::uri::InvalidUri| {
            TransportError::not_sent(TransportErrorKind::Config, error.to_string())
        })?;
        let (parts, body) = self.bmc.handle(received).await.map_err(failure)?.into_parts();
        match parts.extensions.get::<BodyTransfer>() {
            Some(BodyTransfer::Cut(_)) => return Err(failure(ConnectionCut::Reset)),
            Some(BodyTransfer::Padded(length)) if *length > MAX_BODY as u64 => {
                let detail = format!("the response has more than {MAX_BODY} bytes");
                return Err(TransportError::maybe_sent(TransportErrorKind::BodyTooLarge, detail));
            }
            Some(BodyTransfer::Trickle(pause)) => {
                let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
                tokio::time::sleep(pause.saturating_mul(bytes)).await;
            }
            Some(BodyTransfer::Padded(_) | BodyTransfer::Chunked) | None => {}
        }
        Ok(Response { status: parts.status, headers: parts.headers, body })
    }
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        match tokio::time::timeout(deadline, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => {
                let detail = format!("no complete response within {} s", deadline.as_secs_f32());
                Err(TransportError::maybe_sent(TransportErrorKind::Timeout, detail))
            }
        }
    }
}

fn failure(severed: ConnectionCut) -> TransportError {
    let detail = severed.to_string();
    match severed {
        ConnectionCut::Refused => TransportError::not_sent(TransportErrorKind::Connect, detail),
        ConnectionCut::Handshake => TransportError::not_sent(TransportErrorKind::TlsHandshake, detail),
        ConnectionCut::Closed | ConnectionCut::Reset => {
            TransportError::maybe_sent(TransportErrorKind::Lost, detail)
        }
    }
}
