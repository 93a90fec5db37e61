//! A twin behind a socket.
//!
//! ```text
//!   TcpListener ── accept (at most 32 at a time) ── HTTP/1.1 connection ── body (bounded) ── Twin::handle
//!                                                        │                                    │
//!                                                        └── cut without an answer ◄─ Severed ┘
//!   TwinServer::stop (or its drop) ── no more accepts, open connections are cut
//! ```
//!
//! Invariants: no task outlives the [`TwinServer`]; headers, bodies, connections and their waits are bounded.

use std::{convert::Infallible, future::poll_fn, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::{Router, response::IntoResponse};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::{
    body::{Body, Frame},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    call::MAX_BODY_BYTES,
    twin::{Severed, Twin},
};

const MAX_CONNECTIONS: usize = 32;
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a twin cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No port on the loopback address.
    #[error("binding a loopback port for a twin failed; check the limit of open files")]
    Bind(#[source] io::Error),
    /// The listener does not know its own address.
    #[error("reading the address of a twin's listener failed; pass a listener that is bound")]
    Address(#[source] io::Error),
}

/// A twin that listens; it stops when this is dropped.
#[derive(Debug)]
pub struct TwinServer {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl TwinServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening, cuts what is open and waits until all is gone.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for TwinServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Twin {
    /// Serves the twin on a listener. Needs a runtime; any number of listeners may serve the same twin.
    pub fn serve(&self, listener: TcpListener) -> Result<TwinServer, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(accept(self.clone(), listener, stop.clone(), tasks.clone()));
        tasks.close();
        Ok(TwinServer { address, stop, tasks })
    }

    /// Serves the twin on a free port of 127.0.0.1.
    pub async fn serve_on_loopback(&self) -> Result<TwinServer, ServeError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(ServeError::Bind)?;
        self.serve(listener)
    }

    /// Serves one connection of any kind (a socket, TLS, a pipe) to its end.
    pub async fn serve_connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
            let (parts, body) = request.into_parts();
            let bytes =
                tokio::time::timeout(READ_TIMEOUT, read(body)).await.map_err(|_| Severed::Closed)??;
            self.handle(Request::from_parts(parts, bytes)).await.map(|response| response.map(Whole::new))
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .max_buf_size(MAX_BODY_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(server.serial = self.config().serial, %error, "twin connection ended");
        }
    }

    /// The twin as a router, for who wants to put it behind a server of their own. A router cannot cut a
    /// connection before the head of the answer; it cuts it right behind.
    pub fn router(&self) -> Router {
        let twin = self.clone();
        Router::new().fallback(move |request: axum::extract::Request| {
            let twin = twin.clone();
            async move { route(&twin, request).await }
        })
    }
}

async fn route(twin: &Twin, request: axum::extract::Request) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = read(body).await else { return cut() };
    match twin.handle(Request::from_parts(parts, bytes)).await {
        Ok(response) => response.map(axum::body::Body::from).into_response(),
        Err(_) => cut(),
    }
}

fn cut() -> axum::response::Response {
    let mut response = Response::new(axum::body::Body::new(Cut));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

async fn accept(twin: Twin, listener: TcpListener, stop: CancellationToken, tasks: TaskTracker) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let arrival = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            () = stop.cancelled() => return,
            arrival = arrival => arrival,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, or the peer was gone before it was served: neither lasts.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (twin, stop) = (twin.clone(), stop.clone());
        tasks.spawn(async move {
            let _place = place;
            tokio::select! {
                () = stop.cancelled() => {}
                () = twin.serve_connection(stream) => {}
            }
        });
    }
}

/// Reads a body until it ends or is longer than a twin takes; the rest is left unread.
async fn read<B>(mut body: B) -> Result<Bytes, Severed>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut bytes = Vec::new();
    while bytes.len() <= MAX_BODY_BYTES {
        let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else { break };
        let frame = frame.map_err(|_| Severed::Closed)?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    Ok(Bytes::from(bytes))
}

/// A body in one piece.
struct Whole(Option<Bytes>);

impl Whole {
    fn new(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A body that breaks at once.
struct Cut;

impl Body for Cut {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        std::task::Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset))))
    }
}
