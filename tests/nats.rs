//! Events and wake-ups over Debian's NATS server: the real program, a real worker, and a server that goes away and comes back.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::firmware_install as install;
use crate::kit::{POLL_INTERVAL, Scene, TIME_LIMIT, healthy, with_bmc};
use crate::workers::{Elsewhere, FAR, SERIAL, plain, power_cycle, put_in_queue, succeeded, token};

/// A NATS server in its own process.
struct NatsServer {
    child: Child,
}

impl NatsServer {
    async fn start(port: u16, store: &Path) -> Self {
        let child = Command::new("nats-server")
            .args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"])
            .arg(store)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed");
        let server = Self { child };
        let deadline = Instant::now() + TIME_LIMIT;
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            assert!(Instant::now() < deadline, "nats-server does not listen");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        server
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The events of the stream, in its order.
async fn stream(url: &str) -> Vec<Value> {
    let client = async_nats::connect(url).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let Ok(stream) = context.get_stream("SHOAL_EVENTS").await else { return Vec::new() };
    let mut events = Vec::new();
    for sequence in 1..=stream.cached_info().state.last_sequence {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let mut body: Value = serde_json::from_slice(&message.payload).unwrap();
        let kind = body["event"]["type"].as_str().unwrap();
        let workflow = body["workflow"].as_str().unwrap_or("controller").replace('.', "_");
        assert_eq!(message.subject.as_str(), format!("shoal.events.{workflow}.{kind}"));
        events.push(body["event"].take());
    }
    events
}

/// Waits until the stream has the event log of the controller: each event once, in its order.
async fn stream_is_the_log(scene: &Scene, url: &str) {
    let deadline = Instant::now() + TIME_LIMIT;
    loop {
        let mut log = Vec::new();
        let mut after = 0;
        loop {
            let page = scene.admin.get(&format!("/api/v1/events?after={after}&limit=500")).await.expect(200);
            let events = page["events"].as_array().unwrap().clone();
            let Some(last) = events.last() else { break };
            after = last["seq"].as_i64().unwrap();
            log.extend(events);
        }
        let numbers = |events: &[Value]| events.iter().map(|event| event["seq"].as_i64()).collect::<Vec<_>>();
        let found = stream(url).await;
        if numbers(&found) == numbers(&log) {
            assert!(!log.is_empty());
            return;
        }
        assert!(Instant::now() < deadline, "stream {:?}, log {:?}", numbers(&found), numbers(&log));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server, run by .ci/run"]
async fn events_are_published_and_a_worker_is_woken_over_nats() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
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
    stream_is_the_log(&scene, &url).await;

    // Without wake-ups the worker would order calls once a day.
    let token = token(&scene.admin, "b", FAR).await;
    let woken = ["--wake", &url, "--wake-interval", "86400"];
    let worker = Elsewhere::start_with(&plain(&scene), "w1", &token, FAR, &woken);
    worker.logged("the next order of calls follows a wake-up").await;
    let id = power_cycle(&scene.admin).await;
    succeeded(&scene, &id).await;
    stream_is_the_log(&scene, &url).await;
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
    stream_is_the_log(&scene, &url).await;
    drop(server);
    let _server = NatsServer::start(port, &folder.path().join("empty")).await;
    stream_is_the_log(&scene, &url).await;
    scene.end().await;
}
