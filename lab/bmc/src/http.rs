//! A twin behind a socket, with or without TLS.
//!
//! ```text
//!   TcpListener ── accept (at most 32 at a time) ── handshake ── HTTP/1.1 connection ── body (bounded) ── Twin::handle
//!        │                                                            │                                      │
//!        └── closed while the BMC is unreachable                      └── closed or reset ◄────── Severed ────┘
//!   SimBmcServer::stop (or its drop) ── no more accepts, open connections are cut
//! ```
//!
//! Invariants: no task outlives the [`SimBmcServer`]; headers, bodies, connections and their waits are bounded.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, response::IntoResponse};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::{body::Body, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    body::Sending,
    call::MAX_BODY_BYTES,
    response_faults::Delivery,
    sim_bmc::{Connection, ConnectionCut, SimBmc},
    tls,
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
    /// There is no certificate.
    #[error("preparing TLS for a twin failed")]
    Certificate(#[from] tls::CertificateError),
}

/// A twin that listens; it stops when this is dropped.
#[derive(Debug)]
pub struct SimBmcServer {
    address: SocketAddr,
    is_tls: bool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SimBmcServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL, without a path.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    /// Stops listening, cuts what is open and waits until all is gone.
    pub async fn stop(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for SimBmcServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl SimBmc {
    /// Serves the twin on a listener. Needs a runtime; any number of listeners may serve the same twin.
    pub fn serve(&self, listener: TcpListener) -> Result<SimBmcServer, ServeError> {
        self.listen(listener, false)
    }

    /// Serves the twin with TLS and a certificate of its own.
    pub fn serve_tls(&self, listener: TcpListener) -> Result<SimBmcServer, ServeError> {
        self.fingerprint()?;
        self.listen(listener, true)
    }

    fn listen(&self, listener: TcpListener, is_tls: bool) -> Result<SimBmcServer, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let place = Place { twin: self.clone(), address, is_tls, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(place.run(listener));
        tasks.close();
        Ok(SimBmcServer { address, is_tls, stop, tasks })
    }

    /// Serves the twin on a free port of 127.0.0.1.
    pub async fn serve_on_loopback(&self) -> Result<SimBmcServer, ServeError> {
        self.serve(TcpListener::bind(("127.0.0.1", 0)).await.map_err(ServeError::Bind)?)
    }

    /// Serves the twin with TLS on a free port of 127.0.0.1.
    pub async fn serve_tls_on_loopback(&self) -> Result<SimBmcServer, ServeError> {
        self.serve_tls(TcpListener::bind(("127.0.0.1", 0)).await.map_err(ServeError::Bind)?)
    }

    /// SHA-256 of the certificate that is shown now.
    ///
    /// # Errors
    /// When none can be made.
    pub fn fingerprint(&self) -> Result<[u8; 32], tls::CertificateError> {
        let revision = self.state().certificate;
        self.inner.certificates.fingerprint(revision)
    }

    /// Serves one connection of any kind (a socket, TLS, a pipe) to its end.
    pub async fn serve_connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        self.serve_stream(stream, &Arc::default()).await;
    }

    /// `reset` is set when the connection is to end with a reset.
    async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        reset: &Arc<AtomicBool>,
    ) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
            let (parts, body) = request.into_parts();
            let bytes = timeout(READ_TIMEOUT, read(body)).await.map_err(|_| ConnectionCut::Closed)??;
            let answer = self.handle(Request::from_parts(parts, bytes)).await;
            if answer.as_ref().is_err_and(|severed| *severed == ConnectionCut::Reset) {
                reset.store(true, Ordering::Relaxed);
            }
            answer.map(|response| {
                let delivery = response.extensions().get::<Delivery>().copied();
                response.map(|bytes| Sending::new(bytes, delivery, reset))
            })
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

async fn route(twin: &SimBmc, request: axum::extract::Request) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = read(body).await else { return cut() };
    match twin.handle(Request::from_parts(parts, bytes)).await {
        Ok(response) => response.map(axum::body::Body::from).into_response(),
        Err(_) => cut(),
    }
}

fn cut() -> axum::response::Response {
    let mut response = Response::new(axum::body::Body::new(Sending::Broken));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// Where a twin listens.
struct Place {
    twin: SimBmc,
    address: SocketAddr,
    is_tls: bool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Place {
    async fn run(self, mut listener: TcpListener) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let arrival = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (listener.accept().await, place)
            };
            let (accepted, place) = tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.twin.until_reachable(false) => {
                    // Closed, so that who comes is refused as by a BMC that is not there.
                    drop(listener);
                    let Some(again) = self.listen_again().await else { return };
                    listener = again;
                    continue;
                }
                arrival = arrival => arrival,
            };
            let Ok((stream, _)) = accepted else {
                // Out of file descriptors, or the peer was gone before it was served: neither lasts.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (twin, stop, is_tls) = (self.twin.clone(), self.stop.clone(), self.is_tls);
            self.tasks.spawn(async move {
                let _place = place;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = twin.take(stream, is_tls) => {}
                }
            });
        }
    }

    /// The same address once the twin is reachable; `None` when it is to stop.
    async fn listen_again(&self) -> Option<TcpListener> {
        let again = async {
            loop {
                self.twin.until_reachable(true).await;
                match TcpListener::bind(self.address).await {
                    Ok(listener) => return listener,
                    // Somebody else has the port for the moment.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => None,
            listener = again => Some(listener),
        }
    }
}

impl SimBmc {
    /// A connection, as it is to be taken.
    async fn take(&self, stream: TcpStream, is_tls: bool) {
        let reset = Arc::<AtomicBool>::default();
        let stream = Resettable { stream, reset: Arc::clone(&reset) };
        match self.connect() {
            Err(Connection::Cut) => reset.store(true, Ordering::Relaxed),
            Err(Connection::LegacyTls) if is_tls => {
                // Whatever comes of it, this connection is over.
                let _over = timeout(READ_TIMEOUT, tls::refuse_versions(stream)).await;
            }
            Err(Connection::FailHandshake) if is_tls => {}
            _ if is_tls => {
                let revision = self.state().certificate;
                let Ok(config) = self.inner.certificates.config(revision) else { return };
                match timeout(READ_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await {
                    Ok(Ok(stream)) => self.serve_stream(stream, &reset).await,
                    Ok(Err(error)) => {
                        tracing::debug!(server.serial = self.config().serial, %error, "no TLS handshake");
                    }
                    Err(_) => {}
                }
            }
            _ => self.serve_stream(stream, &reset).await,
        }
    }
}

/// A connection that can be made to end with a reset in place of a farewell.
struct Resettable {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // If it cannot be, the connection is closed the usual way.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for Resettable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Resettable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Reads a body until it ends or is longer than a twin takes; the rest is left unread.
async fn read<B>(mut body: B) -> Result<Bytes, ConnectionCut>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut bytes = Vec::new();
    while bytes.len() <= MAX_BODY_BYTES {
        let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await else { break };
        let frame = frame.map_err(|_| ConnectionCut::Closed)?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
    }
    Ok(Bytes::from(bytes))
}
