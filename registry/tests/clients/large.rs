//! One very large blob, pushed and pulled by oras and read in parts, from a registry in a separate process whose memory
//! is measured.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use reqwest::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::{oras, succeed};
use crate::crash::{REPORT_TO, ROOT};
use crate::support::client;

const SIZE: u64 = 10 << 30;
/// The limit of growth of the process: all buffers, and code it had not used before.
const GROWTH_KIB: u64 = 40 << 10;

/// The peak memory of the process, in KiB.
fn high_water(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go, its module proxy and 10 GiB of disk, run by .ci/run"]
async fn ten_gibibytes_are_pushed_and_pulled_in_parts_in_constant_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let program = oras::build(scratch.path()).await;
    let large = File::create(scratch.path().join("large")).unwrap();
    large.set_len(SIZE).unwrap();
    let marks = [(0, b"first"), (SIZE / 2, b"midst"), (SIZE - 5, b"final")];
    for (offset, mark) in marks {
        large.write_all_at(mark, offset).unwrap();
    }

    let reports = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["crash::victim", "--exact"])
        .env(ROOT, scratch.path().join("store"))
        .env(REPORT_TO, reports.local_addr().unwrap().to_string())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let process = child.id().unwrap();
    let (mut report, _) = reports.accept().await.unwrap();
    let mut port = [0; 2];
    report.read_exact(&mut port).await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes(port)));
    let before = high_water(process);

    let mut push = std::process::Command::new(program);
    push.current_dir(scratch.path()).args(["blob", "push", "--plain-http", "--descriptor"]);
    push.args([&format!("{address}/large"), "large"]);
    let pushed: serde_json::Value = serde_json::from_str(&succeed(push).await).unwrap();
    assert_eq!(pushed["size"], SIZE);
    let blob = format!("http://{address}/v2/large/blobs/{}", pushed["digest"].as_str().unwrap());

    let client = client();
    let head = client.head(&blob).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], SIZE.to_string());
    for (offset, mark) in marks {
        let range = format!("bytes={offset}-{}", offset + 4);
        let part = client.get(&blob).header("range", range).send().await.unwrap();
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
        assert_eq!(part.bytes().await.unwrap(), mark.as_slice());
    }
    let parts = (0..8u64).map(|part| {
        let first = part * (SIZE / 8);
        let range = format!("bytes={first}-{}", first + (64 << 20) - 1);
        let request = client.get(&blob).header("range", range);
        tokio::spawn(async move {
            let mut response = request.send().await.unwrap();
            let mut length = 0;
            while let Some(piece) = response.chunk().await.unwrap() {
                length += piece.len();
            }
            assert_eq!(length, 64 << 20);
        })
    });
    for part in futures_util::future::join_all(parts).await {
        part.unwrap();
    }
    // The whole blob, read and hashed by the client program.
    let mut pull = std::process::Command::new(scratch.path().join("oras"));
    let name = format!("{address}/large@{}", pushed["digest"].as_str().unwrap());
    pull.args(["blob", "fetch", "--plain-http", "--output", "/dev/null", &name]);
    succeed(pull).await;
    let grown = high_water(process) - before;
    assert!(grown <= GROWTH_KIB, "the process grew by {grown} KiB");
}
