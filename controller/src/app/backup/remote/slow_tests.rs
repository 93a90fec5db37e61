//! Registries that are slow, and such that stop, in virtual time.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use super::super::error::BackupError;
use super::super::tests::settings;
use super::super::work::Work;
use super::artifact::{Descriptor, FILE};
use super::client::{RemoteRegistry, SILENCE};
use super::error::RemoteBackupError;
use super::pack::LocalBlob;
use settings::BackupReference;

/// More than the buffers of a connection.
const SIZE: u64 = 64 << 20;
/// What a registry takes between two pauses.
const PORTION: u64 = 8 << 20;
/// Shorter than the silence that ends a request.
const SLOW: Duration = Duration::from_secs(40);

/// A registry without blobs that takes so many portions of an upload, and of a download it sends one byte.
async fn registry(portions: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(connection, portions));
        }
    });
    address
}

async fn serve(mut connection: TcpStream, portions: u64) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    let response = match head.split(|byte| *byte == b' ').next() {
        Some(b"PUT") => {
            let mut portion = vec![0; PORTION as usize];
            for _ in 0..portions.min(SIZE / PORTION) {
                connection.read_exact(&mut portion).await.unwrap();
                sleep(SLOW).await;
            }
            if portions < SIZE / PORTION {
                return std::future::pending().await;
            }
            "201 Created\r\ncontent-length: 0"
        }
        Some(b"POST") => "202 Accepted\r\nlocation: /v2/site/shoal/blobs/uploads/1\r\ncontent-length: 0",
        Some(b"GET") => "200 OK\r\ncontent-length: 7",
        _ => "404 Not Found\r\ncontent-length: 0",
    };
    let is_download = response.starts_with("200");
    let response = format!("HTTP/1.1 {response}\r\nconnection: close\r\n\r\n");
    connection.write_all(response.as_bytes()).await.unwrap();
    if is_download {
        connection.write_all(b"x").await.unwrap();
        std::future::pending::<()>().await;
    }
}

fn client(registry: SocketAddr) -> RemoteRegistry {
    let reference = BackupReference::parse(&format!("oci+http://{registry}/site/shoal")).unwrap().unwrap();
    RemoteRegistry::of(&settings(Path::new("/nowhere")), &reference.target).unwrap()
}

fn blob(folder: &Path, size: u64) -> LocalBlob {
    let path = folder.join("layer");
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    let digest = format!("sha256:{}", "0".repeat(64));
    LocalBlob {
        path,
        descriptor: Descriptor { media_type: FILE.to_owned(), digest, size, annotations: None },
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_takes_minutes_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let client = client(registry(SIZE / PORTION).await);
    let began = Instant::now();
    client.push_blob(&blob(folder.path(), SIZE)).await.unwrap();
    assert!(began.elapsed() > SILENCE * 3, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_takes_no_more_of_a_layer_ends_the_attempt_after_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let client = client(registry(1).await);
    let began = Instant::now();
    let ended = client.push_blob(&blob(folder.path(), SIZE)).await;
    assert!(matches!(ended, Err(RemoteBackupError::Silent { .. })), "{ended:?}");
    assert!(began.elapsed() <= SLOW + SILENCE + SILENCE / 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_sends_no_more_of_a_layer_ends_the_attempt_after_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let client = client(registry(0).await);
    let blob = blob(folder.path(), 7);
    let began = Instant::now();
    let ended = client.stream_blob(&blob.descriptor, &Work::default(), &mut |_| Ok(())).await;
    assert!(matches!(ended, Err(BackupError::Remote(RemoteBackupError::Silent { .. }))), "{ended:?}");
    assert!(began.elapsed() <= SILENCE + SILENCE / 2, "{:?}", began.elapsed());
}
