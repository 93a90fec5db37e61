//! Blobs sent with `sendfile` equal blobs that are read and written.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use reqwest::StatusCode;

use crate::support::{Server, noise, sha256};

const SIZE: usize = (2 << 20) + 777;

/// A connection without an HTTP library.
struct RawConnection(TcpStream);

impl RawConnection {
    fn connect(address: SocketAddr) -> Self {
        RawConnection(TcpStream::connect(address).unwrap())
    }

    fn ask(&mut self, method: &str, path: &str, range: Option<&str>) {
        let range = range.map(|range| format!("range: bytes={range}\r\n")).unwrap_or_default();
        write!(self.0, "{method} {path} HTTP/1.1\r\nhost: x\r\n{range}\r\n").unwrap();
    }

    /// The head of a response without its date, and a body of the announced length.
    fn response(&mut self, has_body: bool) -> (String, Vec<u8>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let (dates, lines): (Vec<_>, Vec<_>) = head.lines().partition(|line| line.starts_with("date: "));
        assert_eq!(dates.len(), 1);
        let length = lines.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; if has_body { length.parse().unwrap() } else { 0 }];
        self.0.read_exact(&mut body).unwrap();
        (lines.join("\n"), body)
    }
}

async fn served() -> (Server, String, Vec<u8>) {
    let (server, content) = (Server::start().await, noise(9, SIZE));
    assert_eq!(server.put_blob("a", &content).await.status(), StatusCode::CREATED);
    let path = format!("/v2/a/blobs/{}", sha256(&content));
    (server, path, content)
}

const RANGES: [Option<&str>; 8] = [
    None,
    Some("0-0"),
    Some("0-131071"),
    Some("1-131072"),
    Some("262143-786433"),
    Some("-300000"),
    Some("1000000-"),
    Some("99999999-"),
];

#[tokio::test(flavor = "multi_thread")]
async fn both_ways_give_equal_responses() {
    let (server, path, content) = served().await;
    let (mut direct, mut copying) =
        (RawConnection::connect(server.address), RawConnection::connect(server.serve_copying().await));
    for method in ["GET", "HEAD"] {
        for range in RANGES {
            direct.ask(method, &path, range);
            copying.ask(method, &path, range);
            let response = direct.response(method == "GET");
            assert!(response == copying.response(method == "GET"), "{method} {range:?}: {}", response.0);
            if (method, range) == ("GET", None) {
                assert!(response.1 == content);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_served_in_order() {
    let (server, path, content) = served().await;
    let mut client = RawConnection::connect(server.address);
    for turn in 0..4 {
        client.ask("GET", &path, None);
        client.ask("GET", &path, Some(&format!("{turn}-200000")));
        client.ask("HEAD", &path, None);
        client.ask("GET", "/v2/", None);
    }
    for turn in 0..4 {
        assert!(client.response(true).1 == content);
        assert!(client.response(true).1 == content[turn..=200_000]);
        assert!(client.response(false).0.contains(&format!("content-length: {SIZE}")));
        assert_eq!(client.response(true).1, b"{}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_in_the_middle_affects_no_other() {
    let (server, path, content) = served().await;
    let mut stays = RawConnection::connect(server.address);
    for _ in 0..20 {
        let mut leaves = RawConnection::connect(server.address);
        leaves.ask("GET", &path, None);
        leaves.0.read_exact(&mut [0; 100_000]).unwrap();
        drop(leaves);
        stays.ask("GET", &path, None);
        assert!(stays.response(true).1 == content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_blob_breaks_the_connection() {
    let (server, path, content) = served().await;
    // The sockets hold less than the response, so that not all of it is sent when the file is truncated.
    let long = noise(10, 24 << 20);
    let digest = sha256(&long);
    assert_eq!(server.put_blob("a", &long).await.status(), StatusCode::CREATED);
    let stored = server.root().join("blobs/sha256").join(digest.hex());
    // A stored file is read-only, even for its owner.
    std::fs::set_permissions(&stored, Permissions::from_mode(0o644)).unwrap();
    let mut client = RawConnection::connect(server.address);
    client.ask("GET", &format!("/v2/a/blobs/{digest}"), None);
    client.0.read_exact(&mut [0; 300]).unwrap();
    let cut = 20 << 20;
    std::fs::OpenOptions::new().write(true).open(&stored).unwrap().set_len(cut).unwrap();
    let mut got = Vec::new();
    let _broken = client.0.read_to_end(&mut got);
    // Including the head, whose length does not matter here.
    assert!(got.len() as u64 <= cut + 1000, "{}", got.len());
    assert!(server.get(&path).await.bytes().await.unwrap() == content);
}
