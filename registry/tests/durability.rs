//! Acknowledged changes persist; unacknowledged ones never become visible.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::support::{IMAGE, Server, config, header, noise, refusal, sha256};
use registry::{AllowAll, Reference, RepositoryName};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn open(root: &Path) -> Server {
    Server::open(config(root), Arc::new(AllowAll)).await
}

fn files_below(directory: &Path) -> Vec<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_restart_keeps_everything_that_was_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let blob = noise(1, 600_000);
    let first = open(root.path()).await;
    let one = first.push_image("team/one", "v1", "one").await;
    first.push_image("team/one", "v2", "two").await;
    first.put_blob("two", &blob).await;
    drop(first);

    let second = open(root.path()).await;
    let names: Vec<String> = second.registry.repositories().await.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["team/one", "two"]);
    let name: RepositoryName = "team/one".parse().unwrap();
    let tags: Vec<String> =
        second.registry.tags(&name).await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["v1", "v2"]);
    let manifest = second.registry.resolve(&name, &Reference::Tag("v1".parse().unwrap())).await.unwrap();
    assert_eq!((manifest.bytes.as_ref(), manifest.media_type.as_str()), (one.as_slice(), IMAGE));
    assert_eq!(manifest.digest, sha256(&one));
    let get = second.get(&format!("/v2/two/blobs/{}", sha256(&blob))).await;
    assert_eq!(get.bytes().await.unwrap(), blob);
    let open_blob = second.registry.blob(&sha256(&blob)).await.unwrap();
    let mut middle = [0; 100];
    open_blob.read_exact_at(&mut middle, 300_000).unwrap();
    assert_eq!((open_blob.length(), middle.as_slice()), (600_000, &blob[300_000..300_100]));
}

#[tokio::test]
async fn an_upload_continues_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let content = noise(2, 1_000_000);
    let first = open(root.path()).await;
    let location = first.begin("a").await;
    let patch =
        first.request(Method::PATCH, &location).body(content[..400_000].to_vec()).send().await.unwrap();
    assert_eq!(patch.status(), StatusCode::ACCEPTED);
    drop(first);

    let second = open(root.path()).await;
    let status = second.get(&location).await;
    assert_eq!((status.status(), header(&status, "range")), (StatusCode::NO_CONTENT, "0-399999"));
    let put = second
        .request(Method::PUT, &format!("{location}?digest={}", sha256(&content)))
        .header("content-range", "400000-999999")
        .body(content[400_000..].to_vec())
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
    assert!(files_below(&root.path().join("uploads")).is_empty());
}

#[tokio::test]
async fn a_torn_file_never_becomes_content() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()).await);
    let content = noise(3, 5000);
    let digest = sha256(&content);
    let id = "01234567-89ab-4cde-8f01-23456789abcd";
    // Half a blob, half a temporary manifest, and names this crate never writes.
    fs::write(root.path().join(format!("uploads/{id}=a")), &content[..2500]).unwrap();
    fs::write(root.path().join("uploads/lost+found"), b"junk").unwrap();
    fs::write(root.path().join("uploads/..=.."), b"junk").unwrap();
    fs::write(root.path().join("tmp/unfinished"), b"{\"schemaVersion\":").unwrap();

    let server = open(root.path()).await;
    assert!(files_below(&root.path().join("tmp")).is_empty(), "temporary files are removed at start");
    assert_eq!(server.head(&format!("/v2/a/blobs/{digest}")).await.status(), StatusCode::NOT_FOUND);
    let close = format!("/v2/a/blobs/uploads/{id}?digest={digest}");
    assert_eq!(refusal(server.send(Method::PUT, &close).await).await, (400, vec!["DIGEST_INVALID".into()]));
    assert!(files_below(&root.path().join("blobs/sha256")).is_empty());
    assert!(server.registry.repositories().await.is_empty());
}

#[tokio::test]
async fn a_broken_connection_leaves_an_upload_that_can_be_continued() {
    let server = Server::start().await;
    let content = noise(4, 900_000);
    let location = server.begin("a").await;
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = format!("PATCH {location} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", content.len());
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(&content[..500_000]).await.unwrap();
    connection.shutdown().await.unwrap();
    // The server closes when it has finished the request.
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response).await;
    drop(connection);

    let status = server.get(&location).await;
    let received: usize = header(&status, "range").strip_prefix("0-").unwrap().parse::<usize>().unwrap() + 1;
    assert!((1..=500_000).contains(&received), "{received}");
    let put = server
        .request(Method::PUT, &format!("{location}?digest={}", sha256(&content)))
        .header("content-range", format!("{received}-{}", content.len() - 1))
        .body(content[received..].to_vec())
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn corruption_on_disk_is_detected_and_repaired_by_pushing_again() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let document = server.push_image("a", "v1", "x").await;
    let stored = root.path().join("blobs/sha256").join(sha256(&document).hex());
    let mut rotten = document.clone();
    rotten[10] ^= 1;
    fs::remove_file(&stored).unwrap();
    fs::write(&stored, &rotten).unwrap();
    assert_eq!(refusal(server.get("/v2/a/manifests/v1").await).await, (500, vec!["UNKNOWN".into()]));
    assert_eq!(server.put_manifest("a", "v1", IMAGE, &document).await.status(), StatusCode::CREATED);
    assert_eq!(server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(), document);

    let layer = b"layer of x";
    let stored = root.path().join("blobs/sha256").join(sha256(layer).hex());
    fs::remove_file(&stored).unwrap();
    fs::write(&stored, b"").unwrap();
    assert_eq!(server.put_blob("a", layer).await.status(), StatusCode::CREATED);
    let get = server.get(&format!("/v2/a/blobs/{}", sha256(layer))).await;
    assert_eq!(get.bytes().await.unwrap(), layer.as_slice());
}

#[tokio::test]
async fn a_tag_without_its_manifest_does_not_exist() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let document = server.push_image("a", "v1", "x").await;
    let record = root.path().join("repos/a/_manifests/sha256").join(sha256(&document).hex());
    fs::remove_file(record).unwrap();
    assert_eq!(refusal(server.get("/v2/a/manifests/v1").await).await, (404, vec!["MANIFEST_UNKNOWN".into()]));
}

#[tokio::test]
async fn a_disk_error_reveals_no_path_to_the_client() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    server.push_image("a", "v1", "x").await;
    let record = root.path().join("repos/a/_tags/v1");
    fs::remove_file(&record).unwrap();
    fs::create_dir(&record).unwrap();
    let response = server.get("/v2/a/manifests/v1").await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let text = response.text().await.unwrap();
    assert!(text.contains("UNKNOWN") && !text.contains("repos") && !text.contains("_tags"), "{text}");
}

#[tokio::test]
async fn a_store_opens_in_a_new_directory() {
    let root = tempfile::tempdir().unwrap();
    let server = open(&root.path().join("several/levels/down")).await;
    server.push_image("a", "v1", "x").await;
}

#[tokio::test]
async fn abandoned_uploads_are_swept_and_live_ones_are_not() {
    let root = tempfile::tempdir().unwrap();
    let server = open(root.path()).await;
    let abandoned = server.begin("a").await;
    server.request(Method::PATCH, &abandoned).body(vec![0; 5000]).send().await.unwrap();
    let live = server.begin("a").await;
    let (feed, frames) = tokio::sync::mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    let frames =
        futures_util::stream::unfold(frames, async |mut frames| Some((frames.recv().await?, frames)));
    let patch = server.request(Method::PATCH, &live).body(reqwest::Body::wrap_stream(frames)).send();
    let patch = tokio::spawn(patch);
    feed.send(Ok(vec![1; 1 << 20])).await.unwrap();
    while header(&server.get(&live).await, "range") == "0-0" {}

    let now = SystemTime::now();
    assert_eq!(server.registry.sweep(now).await.unwrap().sessions, 0);
    let swept = server.registry.sweep(now + Duration::from_secs(25 * 3600)).await.unwrap();
    assert_eq!((swept.sessions, swept.bytes), (1, 5000));
    assert_eq!(server.get(&abandoned).await.status(), StatusCode::NOT_FOUND);
    drop(feed);
    assert_eq!(patch.await.unwrap().unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(files_below(&root.path().join("uploads")).len(), 1);
}

/// A small file system.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn of_size(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .status()
            .unwrap();
        assert!(mount.success());
        Mounted(directory)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
#[ignore = "needs root to mount a tmpfs, run by .ci/run"]
async fn a_stream_of_unknown_length_stops_before_the_reserve() {
    let root = Mounted::of_size("96m");
    let mut reserving = config(root.0.path());
    reserving.reserve = registry::Reserve::Bytes(48 << 20);
    let server = Server::open(reserving, Arc::new(AllowAll)).await;
    let location = server.begin("a").await;
    let pieces = (0..80).map(|seed| Ok::<_, std::io::Error>(noise(seed, 1 << 20)));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let response = server.request(Method::PATCH, &location).body(body).send().await.unwrap();
    assert_eq!(refusal(response).await, (507, vec!["INSUFFICIENT_STORAGE".into()]));
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
#[ignore = "needs root to mount a tmpfs, run by .ci/run"]
async fn a_full_disk_refuses_pushes_and_frees_their_space() {
    let root = Mounted::of_size("8m");
    let server = open(root.0.path()).await;
    let kept = server.push_image("a", "v1", "x").await;
    let before = server.registry.free_bytes().await.unwrap();

    // With a length: refused before the first byte. Streamed: refused when the disk is full.
    let location = server.begin("a").await;
    let announced = server.request(Method::PATCH, &location).body(noise(1, 9 << 20)).send().await;
    if let Ok(response) = announced {
        assert_eq!(refusal(response).await, (507, vec!["INSUFFICIENT_STORAGE".into()]));
    }
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = (0..90).map(|seed| Ok(noise(seed, 100_000))).collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let response = server.request(Method::PATCH, &location).body(body).send().await.unwrap();
    assert_eq!(refusal(response).await, (507, vec!["INSUFFICIENT_STORAGE".into()]));
    assert_eq!(server.get(&location).await.status(), StatusCode::NOT_FOUND);
    // The file system frees the space when the last open file of the session is closed, which may be after the response.
    let freed = async {
        while server.registry.free_bytes().await.unwrap() + 100_000 <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), freed).await.expect("the space is freed");

    assert_eq!(server.get("/v2/a/manifests/v1").await.bytes().await.unwrap(), kept);
    assert_eq!(server.send(Method::DELETE, "/v2/a/manifests/v1").await.status(), StatusCode::ACCEPTED);
    assert_eq!(server.put_blob("a", b"small").await.status(), StatusCode::CREATED);
}
