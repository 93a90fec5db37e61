//! Accepts connections: HTTP/1 with limits that axum's accept loop does not have, over streams that send files with sendfile.
//! Every request carries the file sender of its connection as an extension, in the types of the registry and of media.
//!
//! Invariants: a client has [`HEAD_TIMEOUT`] to send its request head; at most [`MAX_CONNECTIONS`] are open, further ones
//! wait in the kernel; at stop, open requests are completed and idle connections are closed.

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

/// How long a client may take to send its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum of open connections.
const MAX_CONNECTIONS: usize = 4096;
/// The pause after a failed accept, such as when no descriptor is free.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The file sender of a connection, for the media crate.
struct ConnectionSender(registry::FileSender);

impl SendFiles for ConnectionSender {
    fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
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
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = accept(&listener, &permits) => accepted,
        };
        let Some((stream, peer, permit)) = accepted else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        tasks.spawn(async move {
            connection(stream, peer, router, stop).await;
            drop(permit);
        });
    }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, permit)),
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(ACCEPT_RETRY).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router, stop: CancellationToken) {
    // Small responses are sent at once; a failure to set the option only costs latency.
    let _latency = stream.set_nodelay(true);
    let wire = registry::SendfileStream::new(stream);
    let sender = wire.file_sender();
    let sending = sender.clone().map(|sender| FileSending::new(ConnectionSender(sender)));
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(peer));
        if let (Some(sender), Some(sending)) = (&sender, &sending) {
            extensions.insert(sender.clone());
            extensions.insert(sending.clone());
        }
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
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
        tracing::debug!(%peer, %error, "a connection ended with an error");
    }
}
