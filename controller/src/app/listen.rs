//! Accepts connections: HTTP/1 with limits that axum's accept loop does not have, over streams that send files with sendfile.
//! Every request carries the file sender of its connection as an extension, in the types of the registry and of media, unless
//! the connection has TLS.
//!
//! ```text
//!  at stop    no request           closed at once
//!             head arriving        has SLOW_CLIENT to arrive
//!             body arriving        has SLOW_CLIENT to arrive, then the handler receives an error
//!             handler at work      runs to its response, until the stop of the controller ends the process
//!             response being sent  has SLOW_CLIENT to be read, then the connection is closed
//! ```
//!
//! Invariants: a client has [`HEAD_TIMEOUT`] to send its request head, also the next one on a connection that is kept alive, and it
//! is no longer than the read buffer of a connection ([`registry::READ_BUFFER`]); connections and requests are admitted
//! ([`super::connections`]) and never wait in the kernel behind idle ones; every request that reaches the router has a valid `Host`
//! and carries the address of its client; no client delays a stop by reading or sending slowly; where plain HTTP is for this
//! machine, the router that a connection gets follows from its two addresses, never from what a client sends.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::connections::{Admission, AdmittedStream, Connection, ConnectionGuard, IncomingRequest};
use access::tls::{PresentedCertificate, TlsAcceptor};
use media::{FileSending, SendFiles};

/// How long a client may take to send its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to send the rest of a request or to read the rest of a response after a stop was requested.
const SLOW_CLIENT: Duration = Duration::from_secs(1);
/// The errors of an accept for which the process has no descriptor or memory.
const WITHOUT_ROOM: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
/// The pause after a failed accept, such as when no descriptor is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The file sender of a connection, for the media crate.
struct ConnectionSender(registry::FileSender);

impl SendFiles for ConnectionSender {
    fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
        self.0.placeholder(file, offset, length)
    }
}

/// The routers, TLS and admission of a listener.
#[derive(Clone)]
pub(super) struct Served {
    /// The router of connections from this machine, and of all others unless `elsewhere` is set.
    pub(super) router: Router,
    /// The router of connections from other machines.
    pub(super) elsewhere: Option<Router>,
    /// Makes TLS connections of the accepted ones.
    pub(super) tls: Option<TlsAcceptor>,
    /// Admits the connections. Listeners that serve the same may share one.
    pub(super) admission: Admission,
}

impl Served {
    /// Serves one accepted connection to its end.
    async fn connection(
        self,
        stream: TcpStream,
        peer: SocketAddr,
        admitted: &ConnectionGuard,
        stop: CancellationToken,
    ) {
        // Small responses are sent at once; a failure to set the option only costs latency.
        let _latency = stream.set_nodelay(true);
        let local = stream.local_addr().ok();
        let here = is_local(peer.ip(), local.map(|local| local.ip()));
        let router = self.elsewhere.filter(|_| !here).unwrap_or(self.router);
        let mut ends = Ends { peer, local, over_tls: self.tls.is_some(), certificate: None };
        match self.tls {
            None => {
                let wire = registry::SendfileStream::new(stream);
                let sender = wire.file_sender();
                connection(wire, sender, ends, admitted, router, stop).await;
            }
            // TLS encrypts what it sends, so no file goes from the disk to the socket by itself.
            Some(tls) => {
                if let Some(wire) = tls.accept(stream, &stop).await {
                    let shown = wire.get_ref().1.peer_certificates();
                    ends.certificate = shown.map(|chain| PresentedCertificate(chain.into()));
                    connection(wire, None, ends, admitted, router, stop).await;
                }
            }
        }
    }
}

/// Whether the client is on this machine: on loopback, or at the address that it connected to.
fn is_local(peer: IpAddr, local: Option<IpAddr>) -> bool {
    peer.to_canonical().is_loopback()
        || local.is_some_and(|local| local.to_canonical() == peer.to_canonical())
}

/// The ends of a connection.
struct Ends {
    peer: SocketAddr,
    local: Option<SocketAddr>,
    over_tls: bool,
    /// The certificate that the client showed in the handshake.
    certificate: Option<PresentedCertificate>,
}

/// Accepts connections until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    served: Served,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accept(&listener, &served.admission) => accepted,
        };
        let Some((stream, peer, admitted)) = accepted else { continue };
        let (served, stop) = (served.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = served.connection(stream, peer, &admitted, stop) => {}
                () = admitted.evicted() => tracing::debug!(%peer, "an idle connection was closed for a new one"),
            }
        });
    }
}

async fn accept(
    listener: &TcpListener,
    admission: &Admission,
) -> Option<(TcpStream, SocketAddr, ConnectionGuard)> {
    admission.ready().await;
    match listener.accept().await {
        // A connection that is not admitted is closed here.
        Ok((stream, peer)) => admission.admit(peer).map(|admitted| (stream, peer, admitted)),
        Err(error) => {
            // A client that is gone before it was accepted delays no other.
            if !matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) {
                tracing::warn!(%error, "a connection was not accepted");
                if Errno::from_io_error(&error).is_some_and(|error| WITHOUT_ROOM.contains(&error)) {
                    admission.shed();
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
            None
        }
    }
}

async fn connection(
    wire: impl AsyncRead + AsyncWrite + Unpin,
    sender: Option<registry::FileSender>,
    ends: Ends,
    admitted: &ConnectionGuard,
    router: Router,
    stop: CancellationToken,
) {
    let Ends { peer, local, over_tls, certificate } = ends;
    let local = local.map(registry::LocalAddress);
    let sending = sender.clone().map(|sender| FileSending::new(ConnectionSender(sender)));
    let admitted = admitted.connection();
    let wire = AdmittedStream::new(wire, Arc::clone(&admitted));
    let (handler, mut at_work) = watch::channel(false);
    let stopping = stop.clone();
    let receiving = Arc::clone(&admitted);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        handler.send_replace(true);
        let handler = handler.clone();
        let (counted, full) = IncomingRequest::begin(&admitted, request.uri().path(), request.headers());
        let refused = full.or_else(|| api::host_refusal(request.version(), request.headers()));
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(counted.client));
        if let Some(local) = local {
            extensions.insert(local);
        }
        if let Some(certificate) = &certificate {
            extensions.insert(certificate.clone());
        }
        if over_tls {
            extensions.insert(registry::OverTls);
        }
        if let (Some(sender), Some(sending)) = (&sender, &sending) {
            extensions.insert(sender.clone());
            extensions.insert(sending.clone());
        }
        let (router, stopping, receiving) = (router.clone(), stopping.clone(), Arc::clone(&receiving));
        async move {
            let response = match refused {
                Some(response) => {
                    if !request.body().is_end_stream() {
                        receiving.left_unread();
                    }
                    response
                }
                None => {
                    let request = request.map(|body| arriving(body, stopping, receiving));
                    let Ok(response) = counted.handle(router.oneshot(request)).await;
                    response
                }
            };
            handler.send_replace(false);
            Ok::<_, std::convert::Infallible>(counted.respond(response))
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(registry::READ_BUFFER)
        .serve_connection(TokioIo::new(wire), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let slow = async {
                // An error means that the service is gone, and with it the connection.
                while at_work.wait_for(|at_work| !at_work).await.is_ok() {
                    tokio::time::sleep(SLOW_CLIENT).await;
                    if !*at_work.borrow() {
                        break;
                    }
                }
            };
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = slow => {
                    tracing::debug!(%peer, "a connection was closed at stop, because the client read or sent slowly");
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}

/// The body of a request: one that has not arrived completely ends with an error soon after `stop`.
fn arriving(body: Incoming, stop: CancellationToken, connection: Arc<Connection>) -> axum::body::Body {
    if body.is_end_stream() {
        return axum::body::Body::new(body);
    }
    let given_up = async move {
        stop.cancelled().await;
        tokio::time::sleep(SLOW_CLIENT).await;
    };
    axum::body::Body::new(ArrivingBody {
        body,
        given_up: Some(Box::pin(given_up)),
        connection,
        has_ended: false,
    })
}

/// A request body that the client still sends.
struct ArrivingBody {
    body: Incoming,
    /// Ends when the rest of the body is no longer awaited; `None` once it has ended.
    given_up: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    connection: Arc<Connection>,
    /// Whether the body was read to its end.
    has_ended: bool,
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        if !self.has_ended && !self.body.is_end_stream() {
            self.connection.left_unread();
        }
    }
}

impl Body for ArrivingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let stopped = || axum::Error::new("the controller stops; send the request again");
        let Some(given_up) = &mut this.given_up else { return Poll::Ready(Some(Err(stopped()))) };
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.has_ended = frame.is_none();
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        if given_up.as_mut().poll(context).is_ready() {
            this.given_up = None;
            return Poll::Ready(Some(Err(stopped())));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::time::Instant;

    use axum::Extension;
    use axum::http::StatusCode;
    use axum::routing::{get, post};
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::connections::{AdmissionParts, Serves};
    use super::*;
    use access::auth::TrustedProxies;
    use settings::descriptors::DescriptorBudget;

    /// An admission whose limits no test reaches.
    fn unlimited() -> Admission {
        let parts = AdmissionParts {
            budget: DescriptorBudget::of(20_000, 1),
            proxies: TrustedProxies::default(),
            denials: Arc::default(),
            clock: Arc::new(model::SystemClock),
            metrics: Arc::default(),
        };
        Admission::new(parts, Serves::All)
    }

    /// The content of the file of [`served`].
    const CONTENT: &[u8] = &[b'f'; 1 << 20];

    /// A server whose `/endless` is never sent completely, nor `/file`, which the kernel sends from a file, and whose `/body` reads the
    /// body of the request.
    async fn served() -> (SocketAddr, CancellationToken, TaskTracker) {
        let endless = || async {
            axum::body::Body::from_stream(futures_util::stream::repeat_with(|| {
                Ok::<_, std::io::Error>(Bytes::from_static(&[0; 65_536]))
            }))
        };
        let content = tempfile::tempfile().unwrap();
        content.write_all_at(CONTENT, 0).unwrap();
        let content = Arc::new(content);
        let file = |Extension(sender): Extension<registry::FileSender>| async move {
            axum::body::Body::from_stream(futures_util::stream::repeat_with(move || {
                let piece = sender.placeholder(&content, 0, CONTENT.len() as u64);
                piece.ok_or(std::io::Error::other("too many pieces are pending"))
            }))
        };
        let router = Router::new().route("/endless", get(endless)).route("/file", get(file)).route(
            "/body",
            post(|body: axum::body::Body| async move {
                match body.collect().await {
                    Ok(body) => format!("read {}", body.to_bytes().len()),
                    Err(error) => format!("not read: {error}"),
                }
            }),
        );
        let router = router.route("/refused", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let served = Served { router, elsewhere: None, tls: None, admission: unlimited() };
        tasks.spawn(serve(listener, served, stop.clone(), tasks.clone()));
        tasks.close();
        (address, stop, tasks)
    }

    async fn sent(address: SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn status(address: SocketAddr, request: &str) -> String {
        let mut stream = sent(address, request).await;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_client_is_on_this_machine_if_its_address_is_loopback_or_the_one_it_connected_to() {
        for (peer, local, expected) in [
            ("127.0.0.1", Some("127.0.0.1"), true),
            ("127.0.0.2", Some("127.0.0.1"), true),
            ("::1", Some("::1"), true),
            ("::ffff:127.0.0.1", Some("::ffff:127.0.0.1"), true),
            ("192.0.2.1", Some("192.0.2.1"), true),
            ("::ffff:192.0.2.1", Some("192.0.2.1"), true),
            ("192.0.2.7", Some("192.0.2.1"), false),
            ("192.0.2.7", None, false),
            ("2001:db8::7", Some("2001:db8::1"), false),
        ] {
            let local = local.map(|local| local.parse().unwrap());
            assert_eq!(is_local(peer.parse().unwrap(), local), expected, "{peer} to {local:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_stops_reading_does_not_delay_the_stop() {
        for (path, content) in [("/endless", 0), ("/file", CONTENT[0])] {
            let (address, stop, tasks) = served().await;
            let mut stream = sent(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            let mut begin = [1; 1024];
            stream.read_exact(&mut begin).await.unwrap();
            assert!(begin.ends_with(&[content; 512]), "{path}: {}", begin.escape_ascii());
            let began = Instant::now();
            stop.cancel();
            let stopped = tokio::time::timeout(SLOW_CLIENT * 3, tasks.wait()).await;
            assert!(stopped.is_ok(), "{path}: the client delays the stop");
            let took = began.elapsed();
            assert!(took >= SLOW_CLIENT, "{path}: the client had no time to read: {took:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_stops_sending_does_not_delay_the_stop() {
        let (address, stop, tasks) = served().await;
        let request = "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc";
        let mut stream = sent(address, request).await;
        // The handler is at work once another request of this server was responded to.
        assert_eq!(
            status(address, "POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await,
            "HTTP/1.1 200 OK"
        );
        stop.cancel();
        tokio::time::timeout(SLOW_CLIENT * 4, tasks.wait()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with("not read: the controller stops; send the request again"), "{response}");
    }

    #[tokio::test]
    async fn a_client_that_sends_a_long_body_to_a_handler_that_does_not_read_it_receives_the_response() {
        let (address, ..) = served().await;
        let length = 8 << 20;
        for request in [
            format!("POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"),
            // Refused before the router: no valid host.
            format!("POST /refused HTTP/1.1\r\nContent-Length: {length}\r\n\r\n"),
        ] {
            let mut stream = sent(address, &request).await;
            stream.write_all(&vec![b'x'; length]).await.expect("the body is taken");
            let mut response = String::new();
            stream.read_to_string(&mut response).await.expect("the response arrives");
            assert!(response.starts_with("HTTP/1.1 4"), "{response}");
        }
    }

    #[tokio::test]
    async fn a_request_without_exactly_one_valid_host_is_refused() {
        let (address, ..) = served().await;
        let ask = async |version: &str, headers: &str| {
            let request = format!("POST /body HTTP/{version}\r\n{headers}Connection: close\r\n\r\n");
            let line = status(address, &request).await;
            line.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        for wrong in [
            "",
            "Host: a\r\nHost: a\r\n",
            "Host: a\r\nHost: b\r\n",
            "Host: a b\r\n",
            "Host: user@a\r\n",
            "Host: a/b\r\n",
            "Host: http://a\r\n",
            "Host: a:port\r\n",
        ] {
            assert_eq!(ask("1.1", wrong).await, "400", "{wrong:?}");
        }
        for right in [
            "Host: a\r\n",
            "Host:\r\n",
            "Host: 192.0.2.1:8080\r\n",
            "Host: [2001:db8::1]:80\r\n",
            "host: bmc_1.example\r\n",
        ] {
            assert_eq!(ask("1.1", right).await, "200", "{right:?}");
        }
        assert_eq!(ask("1.0", "").await, "200", "HTTP/1.0 has no Host, and some BMCs speak it");
        assert_eq!(ask("1.0", "Host: a\r\nHost: b\r\n").await, "400");
    }
}
