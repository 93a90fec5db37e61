//! Events and wake-ups over Debian's NATS server: the real program, a real worker, and a server that goes away and comes back.

use std::collections::VecDeque;
use std::io::BufRead as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::firmware_install as install;
use crate::kit::{Scene, free_port, healthy, soon, with_bmc};
use crate::workers::{Elsewhere, FAR, SERIAL, plain, power_cycle, put_in_queue, succeeded, token};

/// A NATS server in its own process.
struct NatsServer {
    child: Child,
}

impl NatsServer {
    /// Starts the server and waits until it listens.
    async fn start(port: u16, store: &Path) -> Self {
        let mut child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(store)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server is installed");
        let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
        let server = Self { child };
        let (ready, is_ready) = oneshot::channel();
        // Reads to the end of the server: a full pipe would stop it.
        std::thread::spawn(move || {
            let mut ready = Some(ready);
            for line in lines.map_while(Result::ok) {
                if line.contains("Server is ready") {
                    ready.take().map(|ready| ready.send(()));
                }
            }
        });
        soon("the start of nats-server", is_ready).await.expect("nats-server runs");
        server
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The ids of the subscriptions of a [`Reader`].
const CREATED: &str = "1";
const RESPONSES: &str = "2";
const DELIVERED: &str = "3";

/// A message of the server.
struct Message {
    subscription: String,
    subject: String,
    /// Where the server expects a response; for a delivered message it says how many follow.
    reply: String,
    body: Value,
}

/// A client of the stream that is not the one under test: the text protocol on a socket.
struct Reader {
    socket: BufReader<TcpStream>,
    /// Messages that arrived before one of another subscription.
    early: VecDeque<Message>,
}

impl Reader {
    /// Connects, waits until the stream exists, and orders all its messages and those that will be in it.
    async fn start(port: u16) -> Self {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // Of this connection only: the server may still deliver the order of a former one.
        let event = format!("test.event.{}", socket.local_addr().unwrap().port());
        let mut reader = Self { socket: BufReader::new(socket), early: VecDeque::new() };
        let connect = json!({ "verbose": false, "pedantic": false, "lang": "test", "version": "0" });
        reader.send(&format!("CONNECT {connect}")).await;
        let created = "$JS.EVENT.ADVISORY.STREAM.CREATED.SHOAL_EVENTS";
        let subscriptions = [(created, CREATED), ("test.response", RESPONSES), (event.as_str(), DELIVERED)];
        for (subject, id) in subscriptions {
            reader.send(&format!("SUB {subject} {id}")).await;
        }
        let config = json!({ "deliver_subject": event, "deliver_policy": "all", "ack_policy": "none" });
        let order = json!({ "stream_name": "SHOAL_EVENTS", "config": config }).to_string();
        loop {
            let subject = "$JS.API.CONSUMER.CREATE.SHOAL_EVENTS";
            reader.send(&format!("PUB {subject} test.response {}\r\n{order}", order.len())).await;
            let response = reader.message_of(RESPONSES).await.body;
            match response["error"]["code"].as_u64() {
                None => return reader,
                Some(404) => drop(reader.message_of(CREATED).await),
                Some(_) => panic!("{response}"),
            }
        }
    }

    async fn send(&mut self, text: &str) {
        self.socket.write_all(format!("{text}\r\n").as_bytes()).await.unwrap();
    }

    /// The next message of a subscription.
    async fn message_of(&mut self, subscription: &str) -> Message {
        let early = self.early.iter().position(|message| message.subscription == subscription);
        if let Some(message) = early.and_then(|place| self.early.remove(place)) {
            return message;
        }
        loop {
            let message = self.message().await;
            if message.subscription == subscription {
                return message;
            }
            self.early.push_back(message);
        }
    }

    async fn message(&mut self) -> Message {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.socket.read_line(&mut line).await.unwrap(),
                0,
                "the server closed the connection"
            );
            let words: Vec<&str> = line.split_whitespace().collect();
            let (subject, subscription, reply, length) = match words[..] {
                ["MSG", subject, subscription, length] => (subject, subscription, "", length),
                ["MSG", subject, subscription, reply, length] => (subject, subscription, reply, length),
                ["PING"] => {
                    self.send("PONG").await;
                    continue;
                }
                ["INFO", ..] => continue,
                _ => panic!("{line}"),
            };
            let mut body = vec![0; length.parse::<usize>().unwrap() + "\r\n".len()];
            self.socket.read_exact(&mut body).await.unwrap();
            return Message {
                subscription: subscription.to_owned(),
                subject: subject.to_owned(),
                reply: reply.to_owned(),
                body: serde_json::from_slice(&body).unwrap(),
            };
        }
    }

    /// The number of the next event of the stream, and whether the stream ended with it.
    async fn event(&mut self) -> (i64, bool) {
        let Message { subject, reply, body, .. } = self.message_of(DELIVERED).await;
        let kind = body["event"]["type"].as_str().unwrap();
        let workflow = body["workflow"].as_str().unwrap_or("controller").replace('.', "_");
        assert_eq!(subject, format!("shoal.events.{workflow}.{kind}"));
        (body["event"]["seq"].as_i64().unwrap(), reply.ends_with(".0"))
    }
}

/// The numbers of the event log of the controller.
async fn log(scene: &Scene) -> Vec<i64> {
    let mut log = Vec::new();
    loop {
        let after = log.last().copied().unwrap_or_default();
        let page = scene.admin.get(&format!("/api/v1/events?after={after}&limit=500")).await.expect(200);
        let events = page["events"].as_array().unwrap();
        if events.is_empty() {
            return log;
        }
        log.extend(events.iter().map(|event| event["seq"].as_i64().unwrap()));
    }
}

/// Waits until the stream has the event log of the controller: each event once, in its order.
async fn stream_is_the_log(scene: &Scene, port: u16) {
    let read = async {
        let mut reader = Reader::start(port).await;
        let mut found = Vec::new();
        loop {
            let (event, last) = reader.event().await;
            found.push(event);
            if last {
                let log = log(scene).await;
                assert!(log.starts_with(&found), "stream {found:?}, log {log:?}");
                if found == log {
                    return;
                }
            }
        }
    };
    soon("the publication of all events", read).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server, run by .ci/run"]
async fn events_are_published_and_a_worker_is_woken_over_nats() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let url = format!("nats://127.0.0.1:{port}");
    let store = folder.path().join("store");
    let server = NatsServer::start(port, &store).await;
    let spec = with_bmc(healthy(SERIAL), |bmc| bmc.starts_on = true);
    let scene = Scene::start_with(vec![spec], |settings, _| {
        install::quick(settings);
        settings.events = Some(url.parse().unwrap());
    })
    .await;
    put_in_queue(&scene.admin, SERIAL).await;
    stream_is_the_log(&scene, port).await;

    // Without wake-ups the worker would order calls once a day.
    let token = token(&scene.admin, "b", FAR).await;
    let woken = ["--wake", &url, "--wake-interval", "86400"];
    let worker = Elsewhere::start_with(&plain(&scene), "w1", &token, FAR, &woken);
    worker.logged("the next order of calls follows a wake-up").await;
    let id = power_cycle(&scene.admin).await;
    succeeded(&scene, &id).await;
    stream_is_the_log(&scene, port).await;
    let metrics = scene.admin.get("/metrics").await.text();
    assert!(metrics.lines().any(|line| line == "nats_connected 1"), "{metrics}");

    // Without the server, the orders of the worker wait at the controller, and everything goes on.
    drop(server);
    worker.logged("no connection to NATS").await;
    let id = power_cycle(&scene.admin).await;
    succeeded(&scene, &id).await;
    assert_eq!(scene.anonymous().get("/readyz").await.status, 200);

    // With its store, it receives what it missed; with an empty one, everything.
    let server = NatsServer::start(port, &store).await;
    stream_is_the_log(&scene, port).await;
    drop(server);
    let _server = NatsServer::start(port, &folder.path().join("empty")).await;
    stream_is_the_log(&scene, port).await;
    scene.end().await;
}
