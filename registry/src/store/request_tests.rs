//! Requests while the disk fails or waits.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tower::ServiceExt as _;

use super::Store;
use super::disk::{Disk, DiskHook, DiskOp, HookAction};
use super::faults::script::{IMAGE, image, push, put};
use super::faults::{config, directory};
use crate::access::{AllowAll, Audit, AuditEvent, Audited};
use crate::digest::{Algorithm, Digest};
use crate::name::RepositoryName;
use crate::places::Places;
use crate::{Config, Registry};

/// A registry on a disk with a hook.
fn registry(hook: Arc<dyn DiskHook>, config: Config) -> Registry {
    let places = Arc::new(Places::new(&config));
    Registry { store: Arc::new(Store::open_on(Disk { hook: Some(hook) }, config).unwrap()), places }
}

async fn send(router: &axum::Router, method: Method, path: &str, body: Body) -> Response {
    let request = Request::builder().method(method).uri(path).body(body).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

/// Makes the first fsync of a file of an upload fail, as when the kernel reports a lost write.
struct LostWrite {
    failed: AtomicBool,
    seen: Mutex<Option<oneshot::Sender<()>>>,
}

impl DiskHook for LostWrite {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        let of_upload = matches!(op, DiskOp::SyncFile(path) if path.parent().is_some_and(|parent| parent.ends_with("uploads")));
        if !of_upload || self.failed.swap(true, Ordering::SeqCst) {
            return HookAction::Go;
        }
        self.seen.lock().take().unwrap().send(()).unwrap();
        HookAction::Fail(ErrorKind::Other)
    }

    fn after(&self, _: DiskOp<'_>) {}
}

#[tokio::test]
async fn an_upload_of_which_an_early_flush_lost_bytes_is_not_acknowledged() {
    let root = directory();
    let (seen, lost) = oneshot::channel();
    let hook = LostWrite { failed: AtomicBool::new(false), seen: Mutex::new(Some(seen)) };
    let router = registry(Arc::new(hook), config(root.path())).router(Arc::new(AllowAll));
    let begun = send(&router, Method::POST, "/v2/a/blobs/uploads/", Body::empty()).await;
    let location = begun.headers()[header::LOCATION].to_str().unwrap().to_owned();
    let content = bytes::Bytes::from(vec![7; 65 << 20]);
    let pieces = content.chunks(64 << 10).map(|piece| Ok::<_, std::io::Error>(content.slice_ref(piece)));
    let body = Body::from_stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()));
    let patched = send(&router, Method::PATCH, &location, body).await.status();
    lost.await.unwrap();

    let finish = format!("{location}?digest={}", Digest::of(Algorithm::Sha256, &content));
    let finished = send(&router, Method::PUT, &finish, Body::empty()).await.status();
    assert_ne!(finished, StatusCode::CREATED, "after {patched}");
    for directory in ["uploads", "states", "blobs/sha256"] {
        let left = root.path().join(directory).read_dir().unwrap().count();
        assert_eq!(left, 0, "{directory}, after {patched} and {finished}");
    }
    let again = send(&router, Method::PUT, &finish, Body::empty()).await.status();
    assert_eq!(again, StatusCode::NOT_FOUND);
}

/// Pauses the next change of tags before it is durable.
#[derive(Default)]
struct PausedTags(Mutex<Option<(oneshot::Sender<()>, Receiver<()>)>>);

impl DiskHook for PausedTags {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        if matches!(op, DiskOp::SyncDirectory(path) if path.ends_with("_tags"))
            && let Some((reached, release)) = self.0.lock().take()
        {
            reached.send(()).unwrap();
            release.recv().unwrap();
        }
        HookAction::Go
    }

    fn after(&self, _: DiskOp<'_>) {}
}

struct Events(mpsc::UnboundedSender<AuditEvent>);

impl Audit for Events {
    fn record(&self, event: &AuditEvent) {
        self.0.send(event.clone()).unwrap();
    }
}

/// Serves one connection; returns when its last request has ended or was dropped.
async fn serve_one(listener: TcpListener, router: axum::Router) {
    let (stream, _) = listener.accept().await.unwrap();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        router.clone().oneshot(request.map(Body::new))
    });
    let _disconnected = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn a_change_whose_client_disconnects_is_recorded_once() {
    let (root, hook) = (directory(), Arc::new(PausedTags::default()));
    let registry = registry(Arc::clone(&hook) as _, config(root.path()));
    let (store, name) = (Arc::clone(&registry.store), "a".parse::<RepositoryName>().unwrap());
    push(&store, &name, &Digest::of(Algorithm::Sha256, b"{}"), &[b"{}"]).unwrap();
    put(&store, &name, &["v1".parse().unwrap()], &image(b"{}", &[], ""), IMAGE).unwrap();
    let (sender, mut events) = mpsc::unbounded_channel();
    let router = registry.audited_router(Arc::new(AllowAll), Arc::new(Events(sender)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let served = tokio::spawn(serve_one(listener, router));
    let ((reached, waits), (release, released)) = (oneshot::channel(), channel());
    *hook.0.lock() = Some((reached, released));

    client.write_all(b"DELETE /v2/a/manifests/v1 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    waits.await.unwrap();
    drop(client);
    served.await.unwrap();
    assert!(events.try_recv().is_err(), "the change is not durable yet");
    release.send(()).unwrap();

    let event = events.recv().await.unwrap();
    assert_eq!((event.what, event.reference), (Audited::DeleteTag, Some("v1".parse().unwrap())));
    assert!(events.recv().await.is_none(), "the change is recorded once");
    assert!(store.tags(&name, None, 10).unwrap().tags.is_empty());
}
