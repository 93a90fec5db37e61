//! A simulated BMC on a socket, with or without TLS.
//!
//! ```text
//!   TcpListener ── accept (at most 32 at a time) ── handshake ── HTTP/1.1 connection ── body (bounded) ── SimBmc::handle
//!        │                                                            │                                      │
//!        └── closed while the BMC is unreachable                      └── closed or reset ◄── ConnectionCut ──┘
//!   SimBmcServer::stop (or its drop) ── no further accepts, open connections are cut
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
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    body::{BodyTransfer, FaultyBody},
    call::{MAX_BODY_BYTES, upload_reader},
    sim_bmc::{Connection, ConnectionCut, SimBmc},
    tls,
    update::Upload,
};

const MAX_CONNECTIONS: usize = 32;
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many connections wait to be accepted.
const BACKLOG: u32 = 1024;

/// The reason why a simulated BMC cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Binding a port of the loopback address failed.
    #[error("binding a loopback port for a simulated BMC failed; check the limit of open files")]
    Bind(#[source] io::Error),
    /// The listener returned no address.
    #[error("reading the address of the listener of a simulated BMC failed; pass a bound listener")]
    Address(#[source] io::Error),
    /// Making the certificate failed.
    #[error("preparing TLS for a simulated BMC failed")]
    Certificate(#[from] tls::CertificateError),
}

/// A listening simulated BMC; dropping it stops the listener.
#[derive(Debug)]
pub struct SimBmcServer {
    address: SocketAddr,
    is_tls: bool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SimBmcServer {
    /// The address on which the simulated BMC listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL, without a path.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    /// Stops listening, cuts open connections and waits for their end.
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
    /// Serves the simulated BMC on a listener. Needs a Tokio runtime. One BMC may have any number of listeners.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn serve(&self, listener: TcpListener) -> Result<SimBmcServer, ServeError> {
        self.listen(listener, false)
    }

    /// Serves the simulated BMC with TLS and a self-signed certificate.
    ///
    /// # Errors
    /// When the listener has no address or the certificate cannot be made.
    pub fn serve_tls(&self, listener: TcpListener) -> Result<SimBmcServer, ServeError> {
        self.fingerprint()?;
        self.listen(listener, true)
    }

    fn listen(&self, listener: TcpListener, is_tls: bool) -> Result<SimBmcServer, ServeError> {
        let address = listener.local_addr().map_err(ServeError::Address)?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let task =
            ListenerTask { bmc: self.clone(), address, is_tls, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(task.run(listener));
        tasks.close();
        Ok(SimBmcServer { address, is_tls, stop, tasks })
    }

    /// Serves the simulated BMC on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be bound.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn serve_on_loopback(&self) -> Result<SimBmcServer, ServeError> {
        self.serve(TcpListener::bind(("127.0.0.1", 0)).await.map_err(ServeError::Bind)?)
    }

    /// Serves the simulated BMC with TLS on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be bound or the certificate cannot be made.
    ///
    /// # Errors
    /// When no port can be bound or the certificate cannot be made.
    pub async fn serve_tls_on_loopback(&self) -> Result<SimBmcServer, ServeError> {
        self.serve_tls(TcpListener::bind(("127.0.0.1", 0)).await.map_err(ServeError::Bind)?)
    }

    /// SHA-256 of the current certificate.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn fingerprint(&self) -> Result<[u8; 32], tls::CertificateError> {
        let revision = self.state().certificate;
        self.inner.certificates.fingerprint(revision)
    }

    /// Serves one connection (a socket, TLS, a pipe) to its end.
    pub async fn serve_connection(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        self.serve_stream(stream, &Arc::default()).await;
    }

    /// Serves one stream. Sets `reset` when the connection must end with a reset.
    async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        reset: &Arc<AtomicBool>,
    ) {
        let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
            let (mut parts, body) = request.into_parts();
            let bytes = if self.takes_upload(&parts.method, parts.uri.path()) {
                let cut = self.upload_cut(head_of(&parts));
                match read_upload(&parts.headers, body, cut).await {
                    Ok(upload) => parts.extensions.insert(upload),
                    Err(severed) => {
                        self.upload_was_cut();
                        reset.store(true, Ordering::Relaxed);
                        return Err(severed);
                    }
                };
                Bytes::new()
            } else {
                timeout(READ_TIMEOUT, read(body)).await.map_err(|_| ConnectionCut::Closed)??
            };
            let response = self.handle(Request::from_parts(parts, bytes)).await;
            if response.as_ref().is_err_and(|severed| *severed == ConnectionCut::Reset) {
                reset.store(true, Ordering::Relaxed);
            }
            response.map(|response| {
                let transfer = response.extensions().get::<BodyTransfer>().copied();
                response.map(|bytes| FaultyBody::new(bytes, transfer, reset))
            })
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(READ_TIMEOUT)
            .max_buf_size(MAX_BODY_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(server.serial = self.config().serial, %error, "connection to a simulated BMC ended");
        }
    }

    /// The simulated BMC as a router, for another HTTP server. A router cannot cut a connection before the response
    /// head; it cuts the connection directly after it.
    pub fn router(&self) -> Router {
        let bmc = self.clone();
        Router::new().fallback(move |request: axum::extract::Request| {
            let bmc = bmc.clone();
            async move { route(&bmc, request).await }
        })
    }
}

async fn route(bmc: &SimBmc, request: axum::extract::Request) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let Ok(bytes) = read(body).await else { return cut() };
    match bmc.handle(Request::from_parts(parts, bytes)).await {
        Ok(response) => response.map(axum::body::Body::from).into_response(),
        Err(_) => cut(),
    }
}

fn cut() -> axum::response::Response {
    let mut response = Response::new(axum::body::Body::new(FaultyBody::Broken));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}

/// The accept loop of one listener.
struct ListenerTask {
    bmc: SimBmc,
    address: SocketAddr,
    is_tls: bool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl ListenerTask {
    async fn run(self, mut listener: TcpListener) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let arrival = async {
                let permit = Arc::clone(&permits).acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.bmc.until_reachable(false) => {
                    // Closed, so that a client is refused as by a BMC that is not there.
                    drop(listener);
                    let Some(again) = self.listen_again().await else { return };
                    listener = again;
                    continue;
                }
                arrival = arrival => arrival,
            };
            let Ok((stream, _)) = accepted else {
                // No file descriptor is free, or the peer left before it was accepted: try again.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (bmc, stop, is_tls) = (self.bmc.clone(), self.stop.clone(), self.is_tls);
            self.tasks.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = bmc.take(stream, is_tls) => {}
                }
            });
        }
    }

    /// Binds the address again when the BMC is reachable; returns `None` when the listener is stopped.
    async fn listen_again(&self) -> Option<TcpListener> {
        let again = async {
            loop {
                // A port that is bound and not listening refuses connections, and no other socket gets it.
                let bound = bound(self.address);
                self.bmc.until_reachable(true).await;
                match bound.and_then(|socket| socket.listen(BACKLOG)) {
                    Ok(listener) => return listener,
                    // Another process has the port at this moment.
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

fn bound(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl SimBmc {
    /// Serves an accepted connection, or ends it as a fault says.
    async fn take(&self, stream: TcpStream, is_tls: bool) {
        let reset = Arc::<AtomicBool>::default();
        let stream = Resettable { stream, reset: Arc::clone(&reset) };
        match self.connect() {
            Err(Connection::Cut) => reset.store(true, Ordering::Relaxed),
            Err(Connection::LegacyTls) if is_tls => {
                // The connection ends after the alert, sent or not.
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

/// A connection that can end with a TCP reset in place of an orderly close.
struct Resettable {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Resettable {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // If that fails, the connection is closed in the usual way.
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

/// The request line and the headers of a request, without its body.
fn head_of(parts: &http::request::Parts) -> Request<Bytes> {
    let mut head = Request::new(Bytes::new());
    *head.method_mut() = parts.method.clone();
    *head.uri_mut() = parts.uri.clone();
    *head.headers_mut() = parts.headers.clone();
    head
}

/// Reads an upload piece by piece; with `cut` the connection ends after that many bytes.
async fn read_upload<B>(
    headers: &http::HeaderMap,
    mut body: B,
    cut: Option<u64>,
) -> Result<Option<Upload>, ConnectionCut>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut reader = upload_reader(headers);
    let mut length = 0;
    loop {
        let next = poll_fn(|context| Pin::new(&mut body).poll_frame(context));
        let Some(frame) = timeout(READ_TIMEOUT, next).await.map_err(|_| ConnectionCut::Closed)? else {
            break;
        };
        let frame = frame.map_err(|_| ConnectionCut::Closed)?;
        if let Some(data) = frame.data_ref() {
            length += data.len() as u64;
            if cut.is_some_and(|cut| length > cut) {
                return Err(ConnectionCut::Reset);
            }
            reader.feed(data);
        }
    }
    // Many BMCs refuse a chunked upload; it is read as one that is not valid.
    let announced =
        headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    Ok(reader.finish().filter(|_| announced == Some(length)))
}

/// Reads a body to its end or until it exceeds the limit; the rest stays unread.
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
