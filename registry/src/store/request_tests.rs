//! Requests while the disk fails or waits.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::ServiceExt as _;

use super::Store;
use super::disk::{Disk, DiskHook, DiskOp, HookAction};
use super::faults::{config, directory};
use crate::access::AllowAll;
use crate::digest::{Algorithm, Digest};
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
