//! Quotas: exact under concurrent pushes, and freed by deletes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use registry::{AllowAll, GcOptions, Quota, QuotaUsage};
use reqwest::{Method, StatusCode};

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
    let answer = server.request(Method::PATCH, &location).body(noise(2, 8000)).send().await.unwrap();
    assert_eq!(refusal(answer).await, (403, vec!["DENIED".into()]));
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
