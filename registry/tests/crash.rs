//! SIGKILL at arbitrary points of concurrent pushes, tag moves, deletes, resumed uploads and garbage collection. The
//! registry runs in its own process: this test binary, started again with some variables set.
//!
//! ```text
//!  round:  start ─> every client compares its tags and its upload with their possible states ─> work ─> kill ─> next round
//! ```
//!
//! A kill loses nothing the kernel already has, so this shows that no response is sent before its change is written and
//! renamed, and that unfinished changes stay invisible. Loss of power is covered by tests of the order of fsyncs (the
//! store's own tests). The mutant, a registry that responds before it stores, must be detected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use registry::{AllowAll, GcOptions, Registry};
use reqwest::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::{IMAGE, config, image, noise, sha256};

pub(crate) const ROOT: &str = "REGISTRY_CRASH_ROOT";
pub(crate) const REPORT_TO: &str = "REGISTRY_CRASH_REPORT_TO";
const MUTANT: &str = "REGISTRY_CRASH_MUTANT";
/// The number of kills; some seconds each.
const ROUNDS: &str = "REGISTRY_CRASH_ROUNDS";
const CLIENTS: u64 = 6;
const TAGS: u64 = 5;
const GRACE: Duration = Duration::from_secs(5);
const UPLOAD: usize = 12 << 20;

/// The process that is killed. It does nothing when it runs as an ordinary test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let (Some(root), Ok(report_to)) = (std::env::var_os(ROOT), std::env::var(REPORT_TO)) else { return };
    let mut config = config(root.as_ref());
    config.touch_interval = Duration::ZERO;
    let registry = Registry::open(config).await.unwrap();
    let mut router = registry.router(Arc::new(AllowAll));
    if std::env::var_os(MUTANT).is_some() {
        let inner = router.clone();
        router = axum::Router::new().fallback(move |request| respond_first(inner.clone(), request));
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut report = tokio::net::TcpStream::connect(report_to).await.unwrap();
    report.write_all(&listener.local_addr().unwrap().port().to_be_bytes()).await.unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    tokio::spawn(async move {
        loop {
            let mut options = GcOptions::at(SystemTime::now());
            (options.grace, options.push_duration, options.untagged) = (GRACE, GRACE, true);
            registry.collect(options).await.unwrap();
        }
    });
    // Until killed, or until the parent process has ended.
    let _ = report.read(&mut [0]).await;
}

/// A registry that acknowledges a manifest before it stores it.
async fn respond_first(mut router: axum::Router, request: Request) -> Response {
    use tower::{Service, ServiceExt};
    let eager = request.method() == Method::PUT && request.uri().path().contains("/manifests/");
    let serve =
        async move { router.as_service::<axum::body::Body>().ready().await.unwrap().call(request).await };
    if !eager {
        return serve.await.unwrap();
    }
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        serve.await
    });
    StatusCode::CREATED.into_response()
}

/// The state of one client over all rounds.
struct Client {
    number: u64,
    turn: u64,
    /// By tag: the images it may name; `None` for no tag. More than one after a request without a response.
    tags: BTreeMap<String, Vec<Option<Made>>>,
    /// An upload under way: location, content, acknowledged bytes.
    upload: Option<(String, Vec<u8>, usize)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Made {
    document: Vec<u8>,
    blobs: Vec<Vec<u8>>,
}

/// A violation by the registry; a broken connection is none.
type Outcome = Result<(), String>;

/// A client's connection to one process of the registry.
struct Connection {
    http: reqwest::Client,
    address: SocketAddr,
    answered: mpsc::UnboundedSender<()>,
}

impl Connection {
    /// The response; `None` when the process has ended.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &[u8],
    ) -> Option<(StatusCode, Vec<u8>, reqwest::header::HeaderMap)> {
        let request = self.http.request(method, format!("http://{}{path}", self.address));
        let response = request.header("content-type", IMAGE).body(body.to_vec()).send().await.ok()?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.ok()?.to_vec();
        let _ = self.answered.send(());
        Some((status, body, headers))
    }
}

impl Client {
    fn repository(&self) -> String {
        format!("team/{}", self.number % 2)
    }

    /// Compares everything, then works until the process has ended.
    async fn round(&mut self, connection: &Connection) -> Outcome {
        self.compare(connection).await?;
        loop {
            self.turn += 1;
            let gone = match self.turn % 7 {
                0 => self.delete(connection, true).await?,
                3 => self.delete(connection, false).await?,
                5 => self.upload_some(connection).await?,
                _ => self.push(connection).await?,
            };
            if gone.is_none() {
                return Ok(());
            }
        }
    }

    async fn compare(&mut self, connection: &Connection) -> Outcome {
        let repository = self.repository();
        for (tag, allowed) in &mut self.tags {
            let path = format!("/v2/{repository}/manifests/{tag}");
            let Some((status, body, _)) = connection.send(Method::GET, &path, b"").await else {
                return Ok(());
            };
            let shown = match status {
                StatusCode::OK => {
                    let known = allowed.iter().flatten().find(|made| made.document == body);
                    Some(known.cloned().ok_or(format!("{tag} names something else"))?)
                }
                StatusCode::NOT_FOUND => None,
                other => return Err(format!("{path}: {other}")),
            };
            if !allowed.contains(&shown) {
                return Err(format!("{tag} is gone"));
            }
            for blob in shown.iter().flat_map(|made| &made.blobs) {
                let path = format!("/v2/{repository}/blobs/{}", sha256(blob));
                let Some((status, body, _)) = connection.send(Method::GET, &path, b"").await else {
                    return Ok(());
                };
                if status != StatusCode::OK || body != *blob {
                    return Err(format!("{path} of {tag}: {status}"));
                }
            }
            *allowed = vec![shown];
        }
        Ok(())
    }

    async fn push(&mut self, connection: &Connection) -> Result<Option<()>, String> {
        let seed = self.number << 32 | self.turn;
        let blobs = vec![
            noise(!seed, 100),
            noise(seed, 40_000 + 50_000 * (self.turn as usize % 5)),
            noise(self.turn % 3, 9000),
        ];
        let made = Made { document: image(&blobs[0], &[&blobs[1], &blobs[2]]), blobs };
        let repository = self.repository();
        let began = Instant::now();
        for blob in &made.blobs {
            let path = format!("/v2/{repository}/blobs/uploads/?digest={}", sha256(blob));
            match connection.send(Method::POST, &path, blob).await {
                None => return Ok(None),
                Some((StatusCode::CREATED, ..)) => {}
                Some((status, body, _)) => {
                    return Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)));
                }
            }
        }
        let tag = format!("c{}-{}", self.number, self.turn % TAGS);
        let path = format!("/v2/{repository}/manifests/{tag}");
        let allowed = self.tags.entry(tag).or_insert_with(|| vec![None]);
        allowed.push(Some(made.clone()));
        match connection.send(Method::PUT, &path, &made.document).await {
            None => Ok(None),
            Some((StatusCode::CREATED, ..)) => {
                *allowed = vec![Some(made)];
                Ok(Some(()))
            }
            Some((StatusCode::BAD_REQUEST, ..)) if began.elapsed() > GRACE => {
                allowed.pop();
                Ok(Some(()))
            }
            Some((status, body, _)) => Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body))),
        }
    }

    /// Deletes the tag of this turn, or the manifest it names.
    async fn delete(&mut self, connection: &Connection, tag_only: bool) -> Result<Option<()>, String> {
        let repository = self.repository();
        let tag = format!("c{}-{}", self.number, self.turn % TAGS);
        let Some(allowed) = self.tags.get_mut(&tag) else { return Ok(Some(())) };
        let [Some(made)] = allowed.as_slice() else { return Ok(Some(())) };
        let reference = if tag_only { tag } else { sha256(&made.document).to_string() };
        allowed.push(None);
        let path = format!("/v2/{repository}/manifests/{reference}");
        match connection.send(Method::DELETE, &path, b"").await {
            None => Ok(None),
            Some((StatusCode::ACCEPTED, ..)) => {
                *allowed = vec![None];
                Ok(Some(()))
            }
            Some((status, ..)) => Err(format!("DELETE {path}: {status}")),
        }
    }

    /// Sends a part of a long upload at its offset, and finishes it at the end of its content.
    async fn upload_some(&mut self, connection: &Connection) -> Result<Option<()>, String> {
        let repository = self.repository();
        let Some((location, content, acknowledged)) = &mut self.upload else {
            let path = format!("/v2/{repository}/blobs/uploads/");
            let Some((status, _, headers)) = connection.send(Method::POST, &path, b"").await else {
                return Ok(None);
            };
            assert_eq!(status, StatusCode::ACCEPTED);
            let location = headers["location"].to_str().unwrap().to_owned();
            self.upload = Some((location, noise(self.number << 40 | self.turn, UPLOAD), 0));
            return Ok(Some(()));
        };
        let Some((status, _, headers)) = connection.send(Method::GET, location, b"").await else {
            return Ok(None);
        };
        if status != StatusCode::NO_CONTENT {
            return Err(format!("an upload is missing: {status}"));
        }
        let last: usize = headers["range"].to_str().unwrap().strip_prefix("0-").unwrap().parse().unwrap();
        let received = if last == 0 { 0 } else { last + 1 };
        if received < *acknowledged {
            return Err(format!("an upload has {received} of {acknowledged} acknowledged bytes"));
        }
        let end = content.len().min(received + (5 << 20));
        match connection.send(Method::PATCH, location, &content[received..end]).await {
            None => return Ok(None),
            Some((StatusCode::ACCEPTED, ..)) => *acknowledged = end,
            Some((status, ..)) => return Err(format!("PATCH: {status}")),
        }
        if end < content.len() {
            return Ok(Some(()));
        }
        let path = format!("{location}?digest={}", sha256(content));
        // It may have been finished although the client received no response.
        self.upload = None;
        match connection.send(Method::PUT, &path, b"").await {
            None => Ok(None),
            Some((StatusCode::CREATED, ..)) => Ok(Some(())),
            Some((status, ..)) => Err(format!("finishing a resumed upload: {status}")),
        }
    }
}

/// Runs this many rounds; returns the number of responses, or the violation a client found.
async fn crash(rounds: u64, mutant: bool) -> Result<u64, String> {
    let root = tempfile::tempdir().unwrap();
    let new = |number| Client { number, turn: 0, tags: BTreeMap::new(), upload: None };
    let mut clients: Vec<Client> = (0..CLIENTS).map(new).collect();
    let mut requests = 0;
    for round in 0..rounds {
        let (mut child, _report, address) = start(root.path(), mutant).await;
        let (answered, mut responses) = mpsc::unbounded_channel();
        let working: Vec<_> = clients
            .drain(..)
            .map(|mut client| {
                let connection =
                    Connection { http: crate::support::client(), address, answered: answered.clone() };
                tokio::spawn(async move {
                    let outcome = client.round(&connection).await;
                    (client, outcome)
                })
            })
            .collect();
        drop(answered);
        // The last round only compares: the state after the kill before it.
        let steps = if round + 1 == rounds { 0 } else { 150 + round * 7919 % 170 };
        for _ in 0..steps {
            if responses.recv().await.is_none() {
                break;
            }
        }
        if steps == 0 {
            while working.iter().any(|client| !client.is_finished()) && responses.len() < 400 {
                tokio::task::yield_now().await;
            }
        }
        child.start_kill().unwrap();
        child.wait().await.unwrap();
        requests += steps;
        for client in working {
            let (client, outcome) = client.await.unwrap();
            outcome.map_err(|why| format!("round {round}, client {}: {why}", client.number))?;
            clients.push(client);
        }
        requests += responses.len() as u64;
        only_whole_content(root.path());
    }
    Ok(requests)
}

async fn start(root: &Path, mutant: bool) -> (tokio::process::Child, tokio::net::TcpStream, SocketAddr) {
    let reports = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["crash::victim", "--exact"]).env(ROOT, root);
    command.env(REPORT_TO, reports.local_addr().unwrap().to_string());
    if mutant {
        command.env(MUTANT, "1");
    }
    let child = command.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let (mut report, _) = reports.accept().await.unwrap();
    let mut port = [0; 2];
    report.read_exact(&mut port).await.unwrap();
    (child, report, SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes(port))))
}

fn only_whole_content(root: &Path) {
    for entry in std::fs::read_dir(root.join("blobs/sha256")).unwrap() {
        let entry = entry.unwrap();
        let content = std::fs::read(entry.path()).unwrap();
        assert_eq!(sha256(&content).hex(), entry.file_name().to_str().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let rounds = std::env::var(ROUNDS).map_or(6, |text| text.parse().unwrap());
    let requests = crash(rounds, false).await.unwrap();
    println!("{rounds} kills, {requests} responses, nothing lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes some seconds, run by .ci/run"]
async fn a_registry_that_responds_before_it_stores_is_detected() {
    assert!(crash(30, true).await.is_err(), "thirty kills had no effect on any client");
}
