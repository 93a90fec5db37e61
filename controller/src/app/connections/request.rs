//! Admits one request: its client, the form of its head, and the response when there is no room for it.
//!
//! ```text
//!   /t<token>/task.iso ...................... a claim to media          proved by an open grant
//!   Authorization, X-Webhook-Secret ......... a claim to be known       proved by right credentials
//!   anything else ........................... anonymous
//! ```
//!
//! Invariant: a request counts until the last byte of its response was accepted by the kernel.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::admission::{Connection, RequestGuard};
use super::table::Refusal;
use access::auth::{SessionSecret, Standing, of_request};
use api::{Overload, overload_response};
use media::MediaPath;

/// A request whose head has arrived.
pub(in crate::app) struct IncomingRequest {
    connection: Arc<Connection>,
    /// The client: the peer, or the one that a trusted proxy names.
    pub(in crate::app) client: SocketAddr,
    guard: Option<RequestGuard>,
}

impl IncomingRequest {
    /// Counts a request; returns also the response when there is no room for it.
    pub(in crate::app) fn begin(
        connection: &Arc<Connection>,
        path: &str,
        headers: &HeaderMap,
    ) -> (Self, Option<Response>) {
        let client = connection.client(headers);
        let (guard, refused) = match connection.begin(client.ip(), claim(path, headers)) {
            Ok(guard) => (Some(guard), None),
            Err(Refusal::Share) => (None, Some(overload_response(path, Overload::Share))),
            // An evicted connection is closed before this response is sent.
            Err(Refusal::Full | Refusal::Evicted) => (None, Some(overload_response(path, Overload::All))),
        };
        (Self { connection: Arc::clone(connection), client, guard }, refused)
    }

    /// Runs the handler. What it proves about the client is counted for the connection.
    pub(in crate::app) async fn handle<T>(&self, handler: impl Future<Output = T>) -> T {
        of_request(Arc::clone(&self.connection) as _, handler).await
    }

    /// The response, with which the request ends.
    pub(in crate::app) fn respond(self, response: Response) -> Response<CountedBody> {
        response.map(|body| CountedBody { body, _guard: self.guard })
    }
}

/// Returns the standing that the head of a request claims.
fn claim(path: &str, headers: &HeaderMap) -> Standing {
    if MediaPath::parse(path).is_some() {
        Standing::Media
    } else if headers.contains_key(header::AUTHORIZATION)
        || headers.contains_key("x-webhook-secret")
        || SessionSecret::of(headers).is_some()
    {
        Standing::Known
    } else {
        Standing::Anonymous
    }
}

/// The body of a response whose request is counted.
pub(in crate::app) struct CountedBody {
    body: Body,
    _guard: Option<RequestGuard>,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
