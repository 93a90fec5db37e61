//! Blobs sent by the connection itself are what blobs read and written are.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;

use reqwest::StatusCode;

use crate::support::{Server, noise, sha256};

const SIZE: usize = (2 << 20) + 777;

/// One connection, spoken to by hand.
struct Raw(TcpStream);

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        Raw(TcpStream::connect(address).unwrap())
    }

    fn ask(&mut self, method: &str, path: &str, range: Option<&str>) {
        let range = range.map(|range| format!("range: bytes={range}\r\n")).unwrap_or_default();
        write!(self.0, "{method} {path} HTTP/1.1\r\nhost: x\r\n{range}\r\n").unwrap();
    }

    /// The head of an answer, without its date, and as much as it promises after it.
    fn answer(&mut self, has_body: bool) -> (String, Vec<u8>) {
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
async fn both_ways_give_the_same_answers() {
    let (server, path, content) = served().await;
    let (mut direct, mut copying) =
        (Raw::connect(server.address), Raw::connect(server.serve_copying().await));
    for method in ["GET", "HEAD"] {
        for range in RANGES {
            direct.ask(method, &path, range);
            copying.ask(method, &path, range);
            let answer = direct.answer(method == "GET");
            assert!(answer == copying.answer(method == "GET"), "{method} {range:?}: {}", answer.0);
            if (method, range) == ("GET", None) {
                assert!(answer.1 == content);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_sent_ahead_are_answered_in_their_order() {
    let (server, path, content) = served().await;
    let mut client = Raw::connect(server.address);
    for turn in 0..4 {
        client.ask("GET", &path, None);
        client.ask("GET", &path, Some(&format!("{turn}-200000")));
        client.ask("HEAD", &path, None);
        client.ask("GET", "/v2/", None);
    }
    for turn in 0..4 {
        assert!(client.answer(true).1 == content);
        assert!(client.answer(true).1 == content[turn..=200_000]);
        assert!(client.answer(false).0.contains(&format!("content-length: {SIZE}")));
        assert_eq!(client.answer(true).1, b"{}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_in_the_middle_harms_nobody() {
    let (server, path, content) = served().await;
    let mut stays = Raw::connect(server.address);
    for _ in 0..20 {
        let mut leaves = Raw::connect(server.address);
        leaves.ask("GET", &path, None);
        leaves.0.read_exact(&mut [0; 100_000]).unwrap();
        drop(leaves);
        stays.ask("GET", &path, None);
        assert!(stays.answer(true).1 == content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_is_cut_off_breaks_the_connection() {
    let (server, path, content) = served().await;
    // Sockets hold less than is promised, so that not all of it is sent when the file is cut.
    let long = noise(10, 24 << 20);
    let digest = sha256(&long);
    assert_eq!(server.put_blob("a", &long).await.status(), StatusCode::CREATED);
    let stored = server.root().join("blobs/sha256").join(digest.hex());
    // What is stored is not to be written to, not even by its owner.
    std::fs::set_permissions(&stored, Permissions::from_mode(0o644)).unwrap();
    let mut client = Raw::connect(server.address);
    client.ask("GET", &format!("/v2/a/blobs/{digest}"), None);
    client.0.read_exact(&mut [0; 300]).unwrap();
    let cut = 20 << 20;
    std::fs::OpenOptions::new().write(true).open(&stored).unwrap().set_len(cut).unwrap();
    let mut got = Vec::new();
    let _broken = client.0.read_to_end(&mut got);
    // With the head, whose length is not this test's.
    assert!(got.len() as u64 <= cut + 1000, "{}", got.len());
    assert!(server.get(&path).await.bytes().await.unwrap() == content);
}
