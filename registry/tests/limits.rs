//! Every limit, from outside; and the isolation of clients from each other.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{IMAGE, Server, config, header, image, noise, refusal, sha256};
use registry::AllowAll;
use reqwest::{Method, Response, StatusCode};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) type Frames = mpsc::Sender<Result<Vec<u8>, std::io::Error>>;

/// A PATCH that has sent 1 MiB and waits for the test to continue.
pub(crate) async fn stalled_patch(
    server: &Server,
    location: &str,
) -> (Frames, JoinHandle<reqwest::Result<Response>>) {
    let (feed, frames) = mpsc::channel(1);
    let frames = futures_util::stream::unfold(frames, async |mut frames: mpsc::Receiver<_>| {
        Some((frames.recv().await?, frames))
    });
    let body = reqwest::Body::wrap_stream(frames);
    let patch = tokio::spawn(server.request(Method::PATCH, location).body(body).send());
    feed.send(Ok(vec![7; 1 << 20])).await.unwrap();
    while header(&server.get(location).await, "range") == "0-0" {}
    (feed, patch)
}

#[tokio::test]
async fn a_blob_over_the_limit_is_refused_with_and_without_a_length() {
    let server = Server::start_with(|config| config.max_blob_size = 100_000).await;
    assert_eq!(
        refusal(server.put_blob("a", &noise(1, 100_001)).await).await,
        (413, vec!["SIZE_INVALID".into()])
    );
    assert_eq!(server.put_blob("a", &noise(1, 100_000)).await.status(), StatusCode::CREATED);

    let location = server.begin("a").await;
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = (0..11).map(|_| Ok(vec![0; 10_000])).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let patch = server.request(Method::PATCH, &location).body(body).send().await.unwrap();
    assert_eq!(refusal(patch).await, (413, vec!["SIZE_INVALID".into()]));
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND, "the upload was cancelled");
}

#[tokio::test]
async fn no_more_sessions_than_allowed_are_open() {
    let server = Server::start_with(|config| config.max_upload_sessions = 2).await;
    let first = server.begin("a").await;
    server.begin("a").await;
    let third = server.send(Method::POST, "/v2/a/blobs/uploads/").await;
    assert_eq!(header(&third, "retry-after"), "5");
    assert_eq!(refusal(third).await, (429, vec!["TOOMANYREQUESTS".into()]));
    server.send(Method::DELETE, &first).await;
    server.begin("a").await;
}

#[tokio::test]
async fn bodies_beyond_the_limit_wait_and_are_then_refused_with_retry_after() {
    let server = Server::start_with(|config| {
        config.max_concurrent_uploads = 1;
        config.upload_queue_timeout = Duration::from_millis(20);
    })
    .await;
    let location = server.begin("a").await;
    let (feed, patch) = stalled_patch(&server, &location).await;
    assert_eq!(refusal(server.put_blob("a", b"late").await).await, (429, vec!["TOOMANYREQUESTS".into()]));
    drop(feed);
    assert_eq!(patch.await.unwrap().unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(server.put_blob("a", b"late").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_client_that_stops_sending_is_disconnected_and_may_continue() {
    let server = Server::start_with(|config| config.upload_read_timeout = Duration::from_millis(50)).await;
    let location = server.begin("a").await;
    let (feed, patch) = stalled_patch(&server, &location).await;
    let response = patch.await.unwrap().unwrap();
    assert_eq!(refusal(response).await, (408, vec!["BLOB_UPLOAD_INVALID".into()]));
    drop(feed);
    let content = vec![7; 1 << 20];
    let put = server.send(Method::PUT, &format!("{location}?digest={}", sha256(&content))).await;
    assert_eq!(put.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_stalled_upload_delays_only_its_session() {
    let server = Server::start().await;
    let location = server.begin("a").await;
    let (feed, patch) = stalled_patch(&server, &location).await;
    server.push_image("a", "v1", "meanwhile").await;
    let intruder = server.send(Method::DELETE, &location).await;
    assert_eq!(refusal(intruder).await, (429, vec!["TOOMANYREQUESTS".into()]));
    drop(feed);
    assert_eq!(patch.await.unwrap().unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(server.send(Method::DELETE, &location).await.status(), StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn without_free_space_pushes_are_refused_and_everything_else_works() {
    let root = tempfile::tempdir().unwrap();
    let first = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let document = first.push_image("a", "v1", "x").await;
    let location = first.begin("a").await;
    assert!(first.registry.accepts_pushes().await.unwrap());
    drop(first);

    let mut full = config(root.path());
    full.reserve = registry::Reserve::Bytes(u64::MAX);
    let server = Server::open(full, Arc::new(AllowAll)).await;
    assert!(!server.registry.accepts_pushes().await.unwrap());
    let no_space = (507, vec!["INSUFFICIENT_STORAGE".to_owned()]);
    assert_eq!(refusal(server.send(Method::POST, "/v2/a/blobs/uploads/").await).await, no_space);
    assert_eq!(refusal(server.put_blob("a", b"new").await).await, no_space);
    let patch = server.request(Method::PATCH, &location).body("more").send().await.unwrap();
    assert_eq!(refusal(patch).await, no_space);
    assert_eq!(refusal(server.put_manifest("a", "v2", IMAGE, &document).await).await, no_space);
    assert_eq!(server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(), document);
    assert_eq!(server.send(Method::DELETE, &location).await.status(), StatusCode::NO_CONTENT);
    assert_eq!(server.send(Method::DELETE, "/v2/a/manifests/v1").await.status(), StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_pushes_all_succeed_and_leave_one_copy_of_each_blob() {
    let root = tempfile::tempdir().unwrap();
    let server = Arc::new(Server::open(config(root.path()), Arc::new(AllowAll)).await);
    let shared = noise(1, 2 << 20);
    let pushes = (0..8u64).map(|client| {
        let (server, shared) = (Arc::clone(&server), shared.clone());
        tokio::spawn(async move {
            let own = noise(100 + client, 300_000);
            let repository = format!("team-{}", client % 2);
            for blob in [&shared, &own] {
                let location = server.begin(&repository).await;
                let patch = server.request(Method::PATCH, &location).body(blob.clone()).send().await.unwrap();
                assert_eq!(patch.status(), StatusCode::ACCEPTED);
                let close = format!("{location}?digest={}", sha256(blob));
                assert_eq!(server.send(Method::PUT, &close).await.status(), StatusCode::CREATED);
            }
            let document = image(&own, &[&shared]);
            for tag in ["latest", &format!("client-{client}")] {
                let put = server.put_manifest(&repository, tag, IMAGE, &document).await;
                assert_eq!(put.status(), StatusCode::CREATED);
            }
            (repository, own, document)
        })
    });
    let pushed = futures_util::future::join_all(pushes).await;

    let mut contents = HashSet::from([sha256(&shared).hex().to_owned()]);
    for (client, done) in pushed.into_iter().enumerate() {
        let (repository, own, document) = done.unwrap();
        let get = server.get(&format!("/v2/{repository}/manifests/client-{client}")).await;
        assert_eq!(get.bytes().await.unwrap(), document);
        for blob in [&own, &shared] {
            let get = server.get(&format!("/v2/{repository}/blobs/{}", sha256(blob))).await;
            assert_eq!(get.bytes().await.unwrap(), *blob);
        }
        contents.extend([sha256(&own).hex().to_owned(), sha256(&document).hex().to_owned()]);
    }
    let names = |directory: &str| -> HashSet<String> {
        let entries = fs::read_dir(root.path().join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names("blobs/sha256"), contents);
    // Layouts are updated a moment later, through their own temporary files.
    server.registry.flush_layouts().await.unwrap();
    assert!(names("uploads").is_empty() && names("tmp").is_empty());
}
