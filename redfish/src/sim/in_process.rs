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

use async_trait::async_trait;
use http::Method;

use super::twin::{Severed, Twin};
use crate::transport::{MAX_BODY, Request, Response, Transport, TransportError, TransportErrorKind};

/// A [`Transport`] to a twin in this process.
#[derive(Clone, Debug)]
pub struct InProcess {
    twin: Twin,
}

impl InProcess {
    /// A transport to this twin; any number of them may lead to the same one.
    pub fn new(twin: Twin) -> Self {
        Self { twin }
    }

    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let is_head = request.method == Method::HEAD;
        let mut told = http::Request::new(request.body.unwrap_or_default());
        *told.method_mut() = request.method;
        *told.headers_mut() = request.headers;
        *told.uri_mut() = request.path.parse().map_err(|error: http::uri::InvalidUri| {
            TransportError::not_sent(TransportErrorKind::Config, error.to_string())
        })?;
        let (parts, body) = self.twin.handle(told).await.map_err(failure)?.into_parts();
        if !is_head && body.len() > MAX_BODY {
            let detail = format!("the answer has more than {MAX_BODY} bytes");
            return Err(TransportError::maybe_sent(TransportErrorKind::BodyTooLarge, detail));
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

fn failure(severed: Severed) -> TransportError {
    let detail = severed.to_string();
    match severed {
        Severed::Refused => TransportError::not_sent(TransportErrorKind::Connect, detail),
        Severed::Closed => TransportError::maybe_sent(TransportErrorKind::Lost, detail),
    }
}
