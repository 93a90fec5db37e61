//! Debian's NATS server with JetStream: stopped, started again, and started with an empty store.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::net::TcpStream;

use super::{MemoryLog, Running, ids, options};
use crate::STREAM;

struct Server {
    child: Child,
    port: u16,
    store: PathBuf,
}

impl Server {
    /// Starts the server and waits until it listens.
    async fn start(port: u16, store: &Path) -> Self {
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(store)
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
    let client = async_nats::connect(format!("nats://127.0.0.1:{port}")).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let read = async {
        loop {
            let found = match context.get_stream(STREAM).await {
                Ok(stream) => {
                    let end = stream.cached_info().state.last_sequence;
                    let reads = futures_util::stream::iter(1..=end).then(async |sequence| {
                        let message = stream.get_raw_message(sequence).await.unwrap();
                        message.headers.get("Nats-Msg-Id").unwrap().to_string()
                    });
                    reads.collect::<Vec<_>>().await
                }
                Err(_) => Vec::new(),
            };
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
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
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
