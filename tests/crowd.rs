//! A crowd of idle connections without credentials, against the running program: clients, media reads and jobs go on.
//!
//! ```text
//!   crowd     1,500 or 10,000 connections that send nothing; one that is closed comes again
//!   honest    requests on new connections, reads of a mounted image, a job from its creation to its end
//! ```

#![allow(clippy::print_stdout, reason = "the times with and without the crowd are for the reader of the run")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lab_machines::Farm;
use reqwest::Method;
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::kit::{
    Client, ControllerProcess, DataDir, POLL_INTERVAL, TIME_LIMIT, healthy, silent, soon, start_farm,
};

/// The pause between two requests of a client, so that it is no match for a crowd that waits for a free place.
const PACE: Duration = Duration::from_millis(200);
/// The number of requests whose time is measured.
const SAMPLES: usize = 40;
/// A connection that was held for this long was not closed for another one.
const HELD: Duration = Duration::from_secs(25);
/// The pause of a connection that was closed early.
const PAUSE: Duration = Duration::from_secs(5);

/// The program with a limit of open files that a shell sets: `-S` is the soft limit only.
fn limited(limit: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    let script = format!("ulimit {limit} && exec \"$0\" serve");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_shoal")]).env_clear().stdin(std::process::Stdio::null());
    command
}

/// Idle connections. They end when this is dropped.
struct Crowd {
    open: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Crowd {
    /// Opens connections from several loopback addresses and waits until each was open once: none waits behind the others.
    async fn gather(base: &str, size: usize) -> Self {
        let address: std::net::SocketAddr = base.strip_prefix("http://").unwrap().parse().unwrap();
        let (open, arrived) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut connections = JoinSet::new();
        for number in 0..size {
            let source = std::net::SocketAddr::from(([127, 0, 0, 2 + (number % 8) as u8], 0));
            let (open, arrived) = (Arc::clone(&open), Arc::clone(&arrived));
            connections.spawn(async move {
                let mut first = true;
                loop {
                    let socket = TcpSocket::new_v4().unwrap();
                    socket.set_reuseaddr(true).unwrap();
                    socket.bind(source).unwrap();
                    let connected = socket.connect(address).await;
                    if std::mem::take(&mut first) {
                        arrived.fetch_add(1, Ordering::Relaxed);
                    }
                    let began = Instant::now();
                    if let Ok(mut stream) = connected {
                        open.fetch_add(1, Ordering::Relaxed);
                        let _closed = stream.read(&mut [0; 64]).await;
                        open.fetch_sub(1, Ordering::Relaxed);
                    }
                    if began.elapsed() < HELD {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            });
            if number % 64 == 63 {
                tokio::task::yield_now().await;
            }
        }
        let deadline = Instant::now() + TIME_LIMIT / 2;
        while arrived.load(Ordering::Relaxed) < size {
            let came = arrived.load(Ordering::Relaxed);
            assert!(Instant::now() < deadline, "only {came} of {size} connections were accepted");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Self { open, _connections: connections }
    }
}

/// The times of requests, sorted.
struct Latency(Vec<Duration>);

impl Latency {
    /// Sends requests, each on a new connection.
    async fn measure(base: &str, token: &str) -> Self {
        let mut times = Vec::new();
        for _ in 0..SAMPLES {
            tokio::time::sleep(PACE).await;
            let client = Client::anonymous(base).with_token(token);
            let began = Instant::now();
            client.get("/api/v1/jobs?limit=1").await.expect(200);
            times.push(began.elapsed());
        }
        times.sort();
        Self(times)
    }

    fn shown(&self) -> String {
        format!("median {:?}, max {:?}", self.0[SAMPLES / 2], self.0[SAMPLES - 1])
    }
}

/// Two servers: a job of the first waits for its report with its media mounted, the second is free.
async fn scene(data: &mut DataDir) -> (ControllerProcess, Farm, String) {
    let controller = data.serve().await;
    let farm = start_farm(vec![silent("CROWD-1"), healthy("CROWD-2")], data.path()).await;
    for server in farm.servers() {
        controller.admin.register(server).await;
    }
    controller.admin.push_image().await;
    let waiting = controller.admin.create_job("CROWD-1").await;
    controller.admin.awaits_report(&waiting).await;
    let slots = farm.servers()[0].bmc.snapshot().slots;
    let mut urls = slots.iter().filter_map(|slot| slot.image.as_ref()).map(|url| url.as_str().to_owned());
    let boot = urls.find(|url| url.contains("/boot.")).unwrap();
    (controller, farm, boot)
}

/// Reads a range of a mounted image on a new connection, as a BMC does.
async fn read_medium(url: &str) {
    let client = Client::anonymous(url);
    let response = client.send(client.request(Method::GET, url).header("range", "bytes=32768-65535")).await;
    assert_eq!((response.status, response.body.len()), (206, 32_768));
}

async fn withstands(program: fn() -> Command, size: usize) {
    let own = settings::descriptors::raise();
    let size = size.min(usize::try_from(own).unwrap().saturating_sub(1000));
    let mut data = DataDir::new().run_by(program).with("LOG_LEVEL", "info");
    let (controller, farm, boot) = scene(&mut data).await;
    let (base, token) = (data.base().to_owned(), controller.admin.token().to_owned());
    let before = Latency::measure(&base, &token).await;
    let crowd = Crowd::gather(&base, size).await;
    let beside = soon("requests beside the crowd", Latency::measure(&base, &token)).await;
    println!("without a crowd: {}", before.shown());
    let open = crowd.open.load(Ordering::Relaxed);
    println!("beside {open} of {size} idle connections: {}", beside.shown());
    soon("a media read", read_medium(&boot)).await;
    let id = soon("a new job", controller.admin.create_job("CROWD-2")).await;
    let job = controller.admin.complete(&id).await;
    assert_eq!(job["outcome"], "succeeded", "{}", controller.admin.event_log(&id).await);
    soon("a media read", read_medium(&boot)).await;
    controller.admin.get("/readyz").await.expect(200);
    assert!(!data.logs().contains("was not accepted"), "a descriptor was missing:\n{}", data.logs());
    drop(crowd);
    assert!(controller.terminate().await.success());
    farm.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_media_and_jobs_go_on_beside_1500_idle_connections_with_1024_descriptors() {
    withstands(|| limited("-n 1024"), 1500).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "10,000 connections: needs as many descriptors, and a minute"]
async fn clients_media_and_jobs_go_on_beside_10000_idle_connections() {
    withstands(|| limited("-S -n 1024"), 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_open_files_that_is_too_low_is_named_by_readiness_and_by_the_check_of_the_configuration() {
    let mut data = DataDir::new().run_by(|| limited("-n 300"));
    let controller = data.serve().await;
    let ready = controller.admin.get("/readyz").await.expect(503);
    let message = ready["checks"]["descriptors"]["message"].as_str().unwrap();
    assert!(message.contains("300") && message.contains("LimitNOFILE"), "{ready}");
    assert!(controller.terminate().await.success());
    let script = "ulimit -n 300 && exec \"$0\" config check";
    let checked = Command::new("/bin/sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_shoal")])
        .env_clear()
        .env("STORAGE_ROOT", data.path())
        .output()
        .unwrap();
    let shown = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && shown.contains("warning: the process may open 300 files"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_behind_a_trusted_proxy_are_limited_for_their_client_alone() {
    let mut data = DataDir::new().with("TRUSTED_PROXIES", "127.0.0.0/8");
    let controller = data.serve().await;
    let attempt = async |client: u8, token: &str| {
        let anonymous = Client::anonymous(data.base()).with_token(token);
        let request = anonymous.request(Method::GET, "/api/v1/jobs");
        anonymous.send(request.header("x-forwarded-for", format!("198.51.100.{client}"))).await
    };
    let deadline = Instant::now() + TIME_LIMIT;
    let limited = loop {
        let response = attempt(1, "not-a-token").await;
        if response.status != 401 {
            break response;
        }
        assert!(Instant::now() < deadline, "no attempt was limited");
    };
    limited.refused(429, "rate_limited");
    assert!(limited.header("retry-after").is_some());
    assert_eq!(attempt(2, "not-a-token").await.status, 401, "another client");
    assert_eq!(attempt(1, controller.admin.token()).await.status, 200, "a right token is never limited");
    let log = data.logs();
    assert!(log.contains("198.51.100.1"), "the log names the client: {log}");
    assert!(controller.terminate().await.success());
}
