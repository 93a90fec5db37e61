//! A twin without a socket: the client's own seam to the network, answered by a twin in the same process.
//!
//! ```text
//!   client ── Transport::send(request, deadline) ──► InProcess ──► Twin::handle ──► Response
//!                                                        └── Severed, deadline ──► TransportError
//! ```
//!
//! Nothing here needs a network, a thread or the wall clock: with paused time and a [`super::MediaReader`] that
//! reads from memory a whole run is a function of its seed. What a failure says about the request's fate is what a
//! real connection would say: refused and handshake failures were not sent, everything later may have been.

use std::time::Duration;

use super::{
    response_faults::Delivery,
    sim_bmc::{Connection, ConnectionCut, SimBmc},
};
use async_trait::async_trait;
use redfish::transport::{MAX_BODY, Request, Response, Transport, TransportError, TransportErrorKind};

/// A [`Transport`] to a twin in this process.
#[derive(Clone, Debug)]
pub struct InProcess {
    twin: SimBmc,
    /// The revision of the certificate that was there first: what a client would have pinned.
    pinned: u64,
}

impl InProcess {
    /// A transport to this twin; any number of them may lead to the same one. It stands for a connection over TLS whose
    /// certificate is pinned as it is now.
    pub fn new(twin: SimBmc) -> Self {
        let pinned = twin.state().certificate;
        Self { twin, pinned }
    }

    /// A connection of its own for each request.
    fn connect(&self) -> Result<(), TransportError> {
        match self.twin.connect() {
            Ok(()) => {}
            Err(Connection::Cut) => return Err(failure(ConnectionCut::Refused)),
            Err(Connection::FailHandshake | Connection::LegacyTls) => {
                return Err(failure(ConnectionCut::Handshake));
            }
        }
        if self.twin.state().certificate != self.pinned {
            let detail = "the certificate of the twin is not the one that was pinned";
            return Err(TransportError::not_sent(TransportErrorKind::PinMismatch, detail));
        }
        Ok(())
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        self.connect()?;
        let mut told = http::Request::new(request.body.unwrap_or_default());
        *told.method_mut() = request.method;
        *told.headers_mut() = request.headers;
        *told.uri_mut() = request.path.parse().map_err(|error: http::uri::InvalidUri| {
            TransportError::not_sent(TransportErrorKind::Config, error.to_string())
        })?;
        let (parts, body) = self.twin.handle(told).await.map_err(failure)?.into_parts();
        match parts.extensions.get::<Delivery>() {
            Some(Delivery::Cut(_)) => return Err(failure(ConnectionCut::Reset)),
            Some(Delivery::Padded(length)) if *length > MAX_BODY as u64 => {
                let detail = format!("the answer has more than {MAX_BODY} bytes");
                return Err(TransportError::maybe_sent(TransportErrorKind::BodyTooLarge, detail));
            }
            Some(Delivery::Trickle(pause)) => {
                let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
                tokio::time::sleep(pause.saturating_mul(bytes)).await;
            }
            Some(Delivery::Padded(_) | Delivery::Chunked) | None => {}
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
                let detail = format!("no complete answer within {} s", deadline.as_secs_f32());
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
