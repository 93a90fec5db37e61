//! Debian's NATS server with JetStream: stopped, started again, and started with an empty store.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;

use super::{MemoryLog, Running, ids, options, reader, tls_with};
use crate::credentials::test_user;
use crate::protocol::header;
use crate::session::SessionError;
use crate::{NatsCredentials, Options, STREAM, event_subject};

struct Server {
    child: Child,
    port: u16,
    store: PathBuf,
}

impl Server {
    /// Starts the server and waits until it listens.
    async fn start(port: u16, store: &Path) -> Self {
        Self::start_with(port, store, &[]).await
    }

    async fn start_with(port: u16, store: &Path, arguments: &[&str]) -> Self {
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(store)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed");
        let server = Self { child, port, store: store.to_owned() };
        let listens = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), listens).await.expect("nats-server listens");
        server
    }

    fn stop(mut self) -> (u16, PathBuf) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.port, self.store.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been stopped.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// Reads the ids of the stream until there are these, in this order.
async fn holds(port: u16, expected: &[String]) {
    let read = async {
        loop {
            let messages = reader::messages(port, STREAM).await;
            let id = |message: &reader::Message| {
                header(message.headers.as_bytes(), "Nats-Msg-Id").unwrap().to_owned()
            };
            let found: Vec<String> = messages.iter().map(id).collect();
            for (message, id) in messages.iter().zip(&found) {
                assert_eq!(message.subject, event_subject("provision", "job.created"));
                assert_eq!(message.body, id.replace("log-", "event ").into_bytes());
            }
            if found == expected {
                return;
            }
            assert!(
                found.len() <= expected.len() && expected.starts_with(&found),
                "in order and once: {found:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), read).await.expect("all events are in the stream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs nats-server, run by .ci/run"]
async fn a_server_that_is_stopped_and_started_again_has_every_event_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Server::start(port, &folder.path().join("first")).await;
    let running = Running::start(options(&format!("nats://127.0.0.1:{port}")), MemoryLog::new(300));
    holds(port, &ids(1..=300)).await;
    // Killed while events are published, and started with its store.
    running.log.append(500);
    let (port, store) = server.stop();
    running.log.append(10);
    let server = Server::start(port, &store).await;
    holds(port, &ids(1..=810)).await;
    // Started with an empty store: the log is published again.
    let (port, _) = server.stop();
    running.log.append(5);
    let _server = Server::start(port, &folder.path().join("second")).await;
    holds(port, &ids(1..=815)).await;
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs nats-server, run by .ci/run"]
async fn each_kind_of_credentials_is_accepted_by_a_server_that_knows_it_and_refused_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let (seed, public) = test_user();
    let kinds = [
        (seed.as_str(), format!("users: [{{ nkey: {public} }}]")),
        ("shoal:pass:word", "users: [{ user: shoal, password: \"pass:word\" }]".to_owned()),
        ("s3cr3t-t0ken", "token: s3cr3t-t0ken".to_owned()),
    ];
    for (index, (text, users)) in kinds.iter().enumerate() {
        let port = free_port();
        let config = folder.path().join(format!("{index}.conf"));
        std::fs::write(&config, format!("authorization {{ {users} }}\n")).unwrap();
        let store = folder.path().join(index.to_string());
        let _server = Server::start_with(port, &store, &["-c", config.to_str().unwrap()]).await;
        for (other, _) in &kinds {
            let options = Options {
                credentials: Some(NatsCredentials::parse(other).unwrap()),
                ..options(&format!("nats://127.0.0.1:{port}"))
            };
            let accepted = crate::session::open(&options, &[]).await.map(drop);
            assert_eq!(accepted.is_ok(), other == text, "{other} where {text} is known: {accepted:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs nats-server, run by .ci/run"]
async fn a_server_with_tls_is_used_when_its_certificate_is_of_a_known_authority_and_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let pair = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(path("cert"), pair.cert.pem()).unwrap();
    std::fs::write(path("key"), pair.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let (cert, key) = (path("cert"), path("key"));
    let tls = ["--tls", "--tlscert", cert.to_str().unwrap(), "--tlskey", key.to_str().unwrap()];
    let _server = Server::start_with(port, &path("store"), &tls).await;
    let mut known = rustls::RootCertStore::empty();
    known.add(pair.cert.der().clone()).unwrap();
    let connect = async |url: String, roots: &rustls::RootCertStore| {
        let options = Options { tls: tls_with(roots.clone()), ..options(&url) };
        crate::session::open(&options, &[]).await.map(drop)
    };
    connect(format!("tls://127.0.0.1:{port}"), &known).await.unwrap();
    // A server that requires TLS has it, whatever the URL says.
    connect(format!("nats://127.0.0.1:{port}"), &known).await.unwrap();
    let unknown = connect(format!("tls://127.0.0.1:{port}"), &rustls::RootCertStore::empty()).await;
    assert!(matches!(unknown, Err(SessionError::Tls(_))), "{unknown:?}");
    let other_name = connect(format!("tls://localhost:{port}"), &known).await;
    assert!(matches!(other_name, Err(SessionError::Tls(_))), "{other_name:?}");
    let plain_port = free_port();
    let _plain = Server::start(plain_port, &path("plain")).await;
    let plain = connect(format!("tls://127.0.0.1:{plain_port}"), &known).await;
    assert!(plain.is_err(), "a server without TLS");
}
