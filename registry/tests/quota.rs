//! Quotas: exact under concurrent pushes, and freed by deletes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use registry::{AllowAll, GcOptions, Quota, QuotaUsage};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Server, config, noise, refusal, sha256};

fn usage(server: &Server) -> (u64, u64) {
    let quotas = server.registry.quotas();
    let QuotaUsage { used, reserved, .. } = quotas[0];
    (used, reserved)
}

fn limited(root: &std::path::Path, bytes: u64) -> registry::Config {
    let mut config = config(root);
    config.quotas = vec![Quota { repositories: "team/**".parse().unwrap(), bytes }];
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_pushes_never_exceed_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(limited(root.path(), 10_000), Arc::new(AllowAll)).await;
    let blobs: Vec<Vec<u8>> = (0..30).map(|seed| noise(seed, 1000)).collect();
    let pushes = blobs.iter().enumerate().map(|(number, blob)| {
        let server = &server;
        async move { server.put_blob(&format!("team/{}", number % 3), blob).await.status() }
    });
    let statuses = join_all(pushes).await;
    let count = |wanted: StatusCode| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(StatusCode::CREATED), count(StatusCode::FORBIDDEN)), (10, 20), "{statuses:?}");
    assert_eq!(usage(&server), (10_000, 0));
    assert_eq!(server.put_blob("elsewhere", &blobs[0]).await.status(), StatusCode::CREATED);
    let mount = format!("/v2/team/0/blobs/uploads/?mount={}&from=elsewhere", sha256(b"x"));
    server.put_blob("elsewhere", b"x").await;
    assert_eq!(refusal(server.send(Method::POST, &mount).await).await, (403, vec!["DENIED".into()]));
    // Counted again from the stored content.
    drop(server);
    let server = Server::open(limited(root.path(), 10_000), Arc::new(AllowAll)).await;
    assert_eq!(usage(&server), (10_000, 0));
}

#[tokio::test]
async fn deleted_content_frees_the_quota_and_uploads_reserve_it() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(limited(root.path(), 10_000), Arc::new(AllowAll)).await;
    let blob = noise(1, 6000);
    assert_eq!(server.put_blob("team/a", &blob).await.status(), StatusCode::CREATED);
    assert_eq!(
        server.put_blob("team/a", &blob).await.status(),
        StatusCode::FORBIDDEN,
        "reserved during the upload"
    );
    let path = format!("/v2/team/a/blobs/{}", sha256(&blob));
    assert_eq!(server.send(Method::DELETE, &path).await.status(), StatusCode::ACCEPTED);
    assert_eq!(usage(&server), (0, 0));

    let location = server.begin("team/b").await;
    server.request(Method::PATCH, &location).body(noise(2, 3000)).send().await.unwrap();
    assert_eq!(usage(&server), (0, 3000));
    let response = server.request(Method::PATCH, &location).body(noise(2, 8000)).send().await.unwrap();
    assert_eq!(refusal(response).await, (403, vec!["DENIED".into()]));
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(usage(&server), (0, 0));

    let document = server.push_image("team/c", "v1", "x").await;
    let (with_image, _) = usage(&server);
    assert!(with_image > document.len() as u64);
    server.send(Method::DELETE, &format!("/v2/team/c/manifests/{}", sha256(&document))).await;
    assert_eq!(usage(&server).0, with_image - document.len() as u64);
    let later = SystemTime::now() + Duration::from_secs(24 * 3600);
    server.registry.collect(GcOptions::at(later)).await.unwrap();
    assert_eq!(usage(&server), (0, 0));
}

/// Announces `announced` bytes, sends `sent` of them, and closes the connection after the session has them.
async fn cut_upload(server: &Server, location: &str, announced: usize, sent: &[u8]) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("PATCH {location} HTTP/1.1\r\nhost: a\r\ncontent-length: {announced}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    // The registry notices the end of the body, and closes the connection with or without a response.
    let _refusal = stream.read_to_end(&mut rest).await;
    let received = async {
        while server.get(location).await.headers()["range"] != format!("0-{}", sent.len() - 1).as_str() {}
    };
    tokio::time::timeout(Duration::from_secs(60), received).await.expect("the session has what was sent");
}

#[tokio::test]
async fn a_cut_upload_counts_what_has_arrived_and_not_what_it_announced() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(limited(root.path(), 10_000), Arc::new(AllowAll)).await;
    let location = server.begin("team/a").await;
    cut_upload(&server, &location, 9000, &noise(1, 500)).await;
    assert_eq!(usage(&server), (0, 500));
    assert_eq!(server.put_blob("team/a", &noise(1, 9000)).await.status(), StatusCode::CREATED, "the retry");
    assert_eq!(usage(&server), (9000, 500));
    // The cut upload can still be continued.
    let close = format!("{location}?digest={}", sha256(&noise(1, 500)));
    assert_eq!(server.send(Method::PUT, &close).await.status(), StatusCode::CREATED);
    assert_eq!(usage(&server), (9500, 0));
}

#[tokio::test]
async fn a_chunk_that_is_rolled_back_does_not_count() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(limited(root.path(), 10_000_000), Arc::new(AllowAll)).await;
    let location = server.begin("team/a").await;
    // Longer than its Content-Range says, without a length that would be refused at once.
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = (0..8).map(|_| Ok(vec![0; 300_000])).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let patch = server.request(Method::PATCH, &location).header("content-range", "0-2000000").body(body);
    assert_eq!(patch.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    assert_eq!(usage(&server), (0, 0));
}

#[tokio::test]
async fn a_push_ends_uploads_without_a_request_that_keep_it_out_of_the_quota() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(limited(root.path(), 10_000), Arc::new(AllowAll)).await;
    let session = async |repository: &str, content: &[u8]| {
        let location = server.begin(repository).await;
        let patch = server.request(Method::PATCH, &location).body(content.to_vec()).send().await.unwrap();
        assert_eq!(patch.status(), StatusCode::ACCEPTED);
        location
    };
    let oldest = session("team/a", &noise(1, 6000)).await;
    let elsewhere = session("elsewhere", &noise(1, 6000)).await;
    let second = session("team/b", &noise(2, 2000)).await;
    let blob = noise(3, 7000);
    let early = server.put_blob("team/a", &blob).await;
    assert_eq!(early.status(), StatusCode::FORBIDDEN, "an upload that is seconds old may be continued");
    for (location, minutes) in [(&oldest, 3), (&elsewhere, 4), (&second, 2)] {
        let id = location.rsplit('/').next().unwrap();
        let mut files =
            std::fs::read_dir(root.path().join("uploads")).unwrap().map(|file| file.unwrap().path());
        let file = files.find(|file| file.to_str().unwrap().contains(id)).unwrap();
        let written = SystemTime::now() - Duration::from_secs(minutes * 60);
        std::fs::File::options().write(true).open(file).unwrap().set_modified(written).unwrap();
    }
    assert_eq!(server.put_blob("team/a", &noise(4, 10_001)).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(usage(&server), (0, 8000), "a push that can never fit ends nothing");
    assert_eq!(server.put_blob("team/a", &blob).await.status(), StatusCode::CREATED);
    assert_eq!(server.get(&oldest).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.get(&second).await.status(), StatusCode::NO_CONTENT, "no more than needed");
    assert_eq!(server.get(&elsewhere).await.status(), StatusCode::NO_CONTENT, "not under this quota");
    assert_eq!(usage(&server), (7000, 2000));
}
