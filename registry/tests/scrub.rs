//! Corrupted content is found, quarantined and repaired; the read-only mode.

use std::fs;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use registry::{AllowAll, Error, GcOptions};
use reqwest::{Method, StatusCode};

use crate::support::{IMAGE, Server, config, header, noise, refusal, sha256};

const FAST: NonZeroU64 = NonZeroU64::MAX;

/// Flips one bit of stored content, as a failing disk would.
fn corrupt(root: &std::path::Path, content: &[u8]) {
    let path = root.join("blobs/sha256").join(sha256(content).hex());
    let mut rotten = fs::read(&path).unwrap();
    let middle = rotten.len() / 2;
    rotten[middle] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, rotten).unwrap();
}

#[tokio::test]
async fn corrupted_content_is_quarantined_and_repaired_by_pushing_again() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let document = server.push_image("a", "v1", "x").await;
    let blob = noise(1, 3 << 20);
    server.put_blob("a", &blob).await;
    let whole = server.registry.scrub(FAST).await.unwrap();
    assert_eq!((whole.blobs, whole.corrupted.len()), (4, 0));
    assert!(whole.bytes > 3 << 20 && whole.completed >= whole.started);

    corrupt(root.path(), &blob);
    corrupt(root.path(), &document);
    let found = server.registry.scrub(FAST).await.unwrap();
    let mut corrupted = found.corrupted.clone();
    corrupted.sort();
    let mut expected = vec![sha256(&blob), sha256(&document)];
    expected.sort();
    assert_eq!((corrupted, found.blobs), (expected, 2));
    let path = format!("/v2/a/blobs/{}", sha256(&blob));
    assert_eq!(server.head(&path).await.status(), StatusCode::NOT_FOUND);
    assert_eq!(server.head("/v2/a/manifests/v1").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(fs::read_dir(root.path().join("quarantine")).unwrap().count(), 2);

    assert_eq!(server.put_blob("a", &blob).await.status(), StatusCode::CREATED);
    assert_eq!(server.put_manifest("a", "v1", IMAGE, &document).await.status(), StatusCode::CREATED);
    assert_eq!(server.get(&path).await.bytes().await.unwrap(), blob);
    assert_eq!(server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(), document);
    assert_eq!(server.registry.scrub(FAST).await.unwrap().corrupted, []);

    // The time of the last verification survives a restart.
    let last = server.registry.last_scrub().unwrap();
    drop(server);
    let again = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    let seconds = |time: Option<std::time::SystemTime>| {
        time.unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    };
    let known = again.registry.last_scrub().unwrap();
    assert_eq!((known.blobs, seconds(known.completed)), (last.blobs, seconds(last.completed)));
}

#[tokio::test(start_paused = true)]
async fn a_scrub_reads_no_faster_than_its_limit() {
    let root = tempfile::tempdir().unwrap();
    let registry = registry::Registry::open(config(root.path())).await.unwrap();
    let content = noise(2, 5 << 20);
    fs::write(root.path().join("blobs/sha256").join(sha256(&content).hex()), &content).unwrap();
    let began = tokio::time::Instant::now();
    let rate = NonZeroU64::new(1 << 20).unwrap();
    assert_eq!(registry.scrub(rate).await.unwrap().blobs, 1);
    let took = began.elapsed();
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_reported_and_does_not_hold_up_the_others() {
    let root = tempfile::tempdir().unwrap();
    let server = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    server.push_image("a", "v1", "x").await;
    // A link to itself, which not even root can open. Of some contents one is before it and one after it.
    let lost = sha256(b"lost");
    let path = root.path().join("blobs/sha256").join(lost.hex());
    std::os::unix::fs::symlink(&path, &path).unwrap();
    let bad = noise(4, 1000);
    server.put_blob("a", &bad).await;
    corrupt(root.path(), &bad);
    for corrupted in [vec![sha256(&bad)], vec![]] {
        let found = server.registry.scrub(FAST).await.unwrap();
        assert_eq!((found.blobs, found.corrupted, found.unreadable), (3, corrupted, vec![lost.clone()]));
    }
    drop(server);
    let again = Server::open(config(root.path()), Arc::new(AllowAll)).await;
    assert_eq!(again.registry.last_scrub().unwrap().unreadable, [lost]);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_was_interrupted_is_known_after_a_restart_and_so_is_the_first_open() {
    let root = tempfile::tempdir().unwrap();
    let open = async || registry::Registry::open(config(root.path())).await.unwrap();
    let registry = open().await;
    let opened = registry.first_opened().unwrap();
    assert!(!registry.scrub_unfinished());
    let content = noise(5, 5 << 20);
    fs::write(root.path().join("blobs/sha256").join(sha256(&content).hex()), &content).unwrap();
    let slow = NonZeroU64::new(1 << 20).unwrap();
    let interrupted = tokio::time::timeout(Duration::from_secs(2), registry.scrub(slow)).await;
    assert!(interrupted.is_err() && registry.scrub_unfinished());
    drop(registry);
    let record = root.path().join("scrub.json");
    let mut written: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    written["opened"] = (written["opened"].as_u64().unwrap() - 1000).into();
    fs::write(&record, written.to_string()).unwrap();

    let registry = open().await;
    assert!(registry.scrub_unfinished());
    let known = registry.first_opened().unwrap();
    assert!((1000..=1001).contains(&opened.duration_since(known).unwrap().as_secs()));
    assert_eq!(registry.scrub(FAST).await.unwrap().blobs, 1);
    assert!(!registry.scrub_unfinished());
    assert_eq!(registry.first_opened(), Some(known));
}

#[tokio::test]
async fn in_read_only_mode_every_change_is_refused_and_every_read_is_served() {
    let server = Server::start().await;
    let document = server.push_image("a", "v1", "x").await;
    let location = server.begin("a").await;
    server.registry.set_read_only(Some("the disk is being moved, come back at noon".to_owned()));
    let layer = sha256(b"layer of x");
    let changes = [
        (Method::POST, "/v2/a/blobs/uploads/".to_owned()),
        (Method::POST, format!("/v2/b/blobs/uploads/?mount={layer}&from=a")),
        (Method::PATCH, location.clone()),
        (Method::PUT, format!("{location}?digest={layer}")),
        (Method::DELETE, location.clone()),
        (Method::DELETE, "/v2/a/manifests/v1".to_owned()),
        (Method::DELETE, format!("/v2/a/blobs/{layer}")),
    ];
    for (method, path) in changes {
        let response = server.send(method.clone(), &path).await;
        assert_eq!(header(&response, "allow"), "GET, HEAD", "{method} {path}");
        assert_eq!(refusal(response).await, (405, vec!["UNSUPPORTED".into()]), "{method} {path}");
    }
    let put = server.put_manifest("a", "v2", IMAGE, &document).await;
    assert!(put.text().await.unwrap().contains("come back at noon"));
    let collected = server.registry.collect(GcOptions::at(std::time::SystemTime::now())).await;
    assert!(matches!(collected, Err(Error::ReadOnly(_))));
    assert_eq!(server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(), document);
    assert_eq!(server.get(&location).await.status(), StatusCode::NO_CONTENT);

    server.registry.set_read_only(None);
    assert_eq!(server.put_manifest("a", "v2", IMAGE, &document).await.status(), StatusCode::CREATED);
}
