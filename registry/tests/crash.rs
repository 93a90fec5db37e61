//! SIGKILL at arbitrary points of concurrent pushes. The registry runs in a process of its own: this test binary,
//! started again with one variable set.
//!
//! A kill loses nothing the kernel already has, so this shows that nothing is answered before it is written and
//! renamed, and that whatever is half done stays invisible. Power loss is the business of the order of fsyncs.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use registry::{AllowAll, Digest};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::{IMAGE, Server, config, image, noise, sha256};

pub(crate) const ROOT: &str = "REGISTRY_CRASH_ROOT";
pub(crate) const REPORT_TO: &str = "REGISTRY_CRASH_REPORT_TO";
const ROUNDS: u64 = 4;
const CLIENTS: u64 = 6;
const ACKNOWLEDGED_PER_ROUND: usize = 40;

/// Something the registry said it has.
enum Acknowledged {
    Blob(String, Digest, Vec<u8>),
    Manifest(String, String, Vec<u8>),
}

/// The process that is killed; as a test of its own it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let (Some(root), Ok(report_to)) = (std::env::var_os(ROOT), std::env::var(REPORT_TO)) else { return };
    let server = Server::open(config(root.as_ref()), Arc::new(AllowAll)).await;
    let mut report = tokio::net::TcpStream::connect(report_to).await.unwrap();
    report.write_all(&server.address.port().to_be_bytes()).await.unwrap();
    // Until killed, or until whoever started this is gone.
    let _ = report.read(&mut [0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let reports = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["crash::victim", "--exact"])
            .env(ROOT, root.path())
            .env(REPORT_TO, reports.local_addr().unwrap().to_string())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (mut report, _) = reports.accept().await.unwrap();
        let mut port = [0; 2];
        report.read_exact(&mut port).await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes(port)));

        let (tell, mut told) = mpsc::unbounded_channel();
        let pushes: Vec<_> = (0..CLIENTS)
            .map(|client| tokio::spawn(push_until_killed(address, round, client, tell.clone())))
            .collect();
        drop(tell);
        for _ in 0..ACKNOWLEDGED_PER_ROUND {
            acknowledged.push(told.recv().await.expect("pushes go on until the kill"));
        }
        child.start_kill().unwrap();
        child.wait().await.unwrap();
        for push in pushes {
            push.await.unwrap();
        }
        while let Some(late) = told.recv().await {
            acknowledged.push(late);
        }
        verify(root.path(), &acknowledged).await;
    }
}

/// Pushes image after image and tells what was acknowledged; ends when the server does.
async fn push_until_killed(
    address: SocketAddr,
    round: u64,
    client: u64,
    tell: mpsc::UnboundedSender<Acknowledged>,
) {
    let http = crate::support::client();
    let repository = format!("team/{}", client % 2);
    let send = async |method: Method, path: &str, body: &[u8]| {
        let request = http.request(method, format!("http://{address}{path}"));
        request
            .header("content-type", IMAGE)
            .body(body.to_vec())
            .send()
            .await
            .ok()
            .map(|answer| answer.status())
    };
    for turn in 0u64.. {
        let seed = (round << 40) | (client << 32) | turn;
        let blobs = [noise(seed, 40_000 + 90_000 * (turn as usize % 5)), noise(!seed, 100)];
        for blob in &blobs {
            let digest = sha256(blob);
            let path = format!("/v2/{repository}/blobs/uploads/?digest={digest}");
            let Some(status) = send(Method::POST, &path, blob).await else { return };
            assert_eq!(status, StatusCode::CREATED);
            let _ = tell.send(Acknowledged::Blob(repository.clone(), digest, blob.clone()));
        }
        let document = image(&blobs[1], &[&blobs[0]]);
        let tag = format!("r{round}-c{client}-t{turn}");
        let path = format!("/v2/{repository}/manifests/{tag}");
        let Some(status) = send(Method::PUT, &path, &document).await else { return };
        assert_eq!(status, StatusCode::CREATED);
        let _ = tell.send(Acknowledged::Manifest(repository.clone(), tag, document));
    }
}

async fn verify(root: &std::path::Path, acknowledged: &[Acknowledged]) {
    let server = Server::open(config(root), Arc::new(AllowAll)).await;
    for item in acknowledged {
        let (path, content) = match item {
            Acknowledged::Blob(repository, digest, content) => {
                (format!("/v2/{repository}/blobs/{digest}"), content)
            }
            Acknowledged::Manifest(repository, tag, document) => {
                (format!("/v2/{repository}/manifests/{tag}"), document)
            }
        };
        assert_eq!(server.get(&path).await.bytes().await.unwrap(), content, "{path}");
    }
    for entry in std::fs::read_dir(root.join("blobs/sha256")).unwrap() {
        let entry = entry.unwrap();
        let content = std::fs::read(entry.path()).unwrap();
        assert_eq!(
            sha256(&content).hex(),
            entry.file_name().to_str().unwrap(),
            "only whole content has a name"
        );
    }
}
