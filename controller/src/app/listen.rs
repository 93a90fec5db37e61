//! Accepting connections: HTTP/1 with limits that axum's own loop does not have, over connections that send files by
//! themselves. Rooms that answer with files find in the request what promises them: the registry its own kind, media theirs.
//!
//! Invariants: a client has [`HEADERS`] to send its request head; at most [`CONNECTIONS`] are open at once, further ones wait
//! in the kernel; at stop, open requests end and idle connections close.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use media::{FileSending, SendFiles};

/// How long a client may take for its request head.
const HEADERS: Duration = Duration::from_secs(30);
/// Connections open at once.
const CONNECTIONS: usize = 4096;
/// The pause after the system refused to accept (out of descriptors, for one).
const REFUSED: Duration = Duration::from_millis(100);

/// The registry's promises of files, as media asks for them.
struct Sender(registry::FileSender);

impl SendFiles for Sender {
    fn promise(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
        self.0.placeholder(file, offset, length)
    }
}

/// Serves a router until `stop`.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            connection(stream, peer, router, stop).await;
            drop(place);
        });
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, place)),
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(REFUSED).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, stop: CancellationToken) {
    // Small answers go out at once; a failure to ask for that only costs latency.
    let _latency = stream.set_nodelay(true);
    let wire = registry::Wire::new(stream);
    let sender = wire.file_sender();
    let promises = sender.clone().map(|sender| FileSending::new(Sender(sender)));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(peer));
        if let (Some(sender), Some(promises)) = (&sender, &promises) {
            extensions.insert(sender.clone());
            extensions.insert(promises.clone());
        }
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(wire), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}
