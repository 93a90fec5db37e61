//! Everything that a client holds or trusts is replaced under load over HTTPS: the certificate, API tokens, the master, signing and
//! report keys; and the controller is stopped and killed in between. No request is lost.
//!
//! ```text
//!   clients     API: read, change   registry: push, pull   media: task image   reports: token of the job, shared secret
//!                  |                                                                          each over its own connection
//!   each round  new pair, SIGHUP -> new API token, in use -> former one revoked -> keys -> restart
//! ```
//! A request is lost when it gets another status than it should, or no response although the controller was not restarted since the
//! last response on that connection.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use reqwest::{Method, RequestBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::kit::{ApiResponse, Client, DataDir, POLL_INTERVAL, binary, free_port, silent, soon, start_farm};

const ROUNDS: usize = 3;
const SERVER: &str = "ROT-1";

/// What the clients share with the rotation.
struct Shared {
    base: String,
    /// The certificates that the controller shows one after another.
    trusted: String,
    /// The API token in use, with the number of its generation.
    token: RwLock<(usize, String)>,
    /// Odd while the controller is being restarted.
    restarts: AtomicUsize,
    stop: AtomicBool,
    /// The generation of the token with which each client has finished a request.
    used: [AtomicUsize; 4],
    /// The file of the shared report secret.
    report_secret: std::path::PathBuf,
}

/// One client with its own connection.
struct LoadClient {
    shared: Arc<Shared>,
    http: Client,
    number: usize,
    /// The number of restarts at the last response.
    seen: usize,
    requests: usize,
}

impl LoadClient {
    fn new(shared: &Arc<Shared>, number: usize) -> Self {
        let http = Client::trusting(&shared.trusted, shared.base.clone());
        Self { shared: Arc::clone(shared), http, number, seen: 0, requests: 0 }
    }

    /// Sends a request with the API token in use until the controller responds.
    async fn ask(
        &mut self,
        method: Method,
        place: &str,
        more: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> ApiResponse {
        let (generation, token) = self.shared.token.read().unwrap().clone();
        let client = self.http.with_token(&token);
        let response = self.send(|| more(client.request(method.clone(), place))).await;
        self.shared.used[self.number].store(generation, Ordering::Release);
        response
    }

    async fn send(&mut self, request: impl Fn() -> RequestBuilder) -> ApiResponse {
        loop {
            match self.http.try_send(request()).await {
                Ok(response) => {
                    self.seen = self.shared.restarts.load(Ordering::Acquire);
                    self.requests += 1;
                    return response;
                }
                Err(error) => {
                    let now = self.shared.restarts.load(Ordering::Acquire);
                    assert!(
                        now % 2 == 1 || now != self.seen,
                        "a request was lost without a restart: {error:?}"
                    );
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }

    /// Works until the rotation has ended. Returns the number of requests.
    async fn run(mut self, job: String, report_token: String, image: Vec<u8>) -> usize {
        while !self.shared.stop.load(Ordering::Relaxed) {
            match self.number {
                0 => self.uses_the_api().await,
                1 => self.uses_the_registry().await,
                2 => {
                    let read = self
                        .ask(Method::GET, &format!("/media/tasks/{job}/task.iso"), |request| request)
                        .await;
                    assert_eq!(read.status, 200, "{}", read.text());
                    assert!(read.body == image, "the task image is another one");
                }
                _ => self.reports(&job, &report_token).await,
            }
        }
        self.requests
    }

    async fn uses_the_api(&mut self) {
        let place = format!("/api/v1/servers/{SERVER}");
        self.ask(Method::GET, &place, |request| request).await.expect(200);
        let change = json!({ "labels": { "request": self.requests.to_string() } });
        self.ask(Method::PATCH, &place, |request| request.json(&change)).await.expect(200);
    }

    async fn uses_the_registry(&mut self) {
        let blob = format!("blob {}", self.requests).into_bytes();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&blob)));
        let place = format!("/v2/team/app/blobs/uploads/?digest={digest}");
        let octets = |request: RequestBuilder| {
            request.header("Content-Type", "application/octet-stream").body(blob.clone())
        };
        let pushed = self.ask(Method::POST, &place, octets).await;
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let pulled = self.ask(Method::GET, &format!("/v2/team/app/blobs/{digest}"), |request| request).await;
        assert_eq!((pulled.status, &pulled.body), (200, &blob));
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let entry = json!({ "mediaType": "application/octet-stream", "digest": digest, "size": blob.len() });
        let manifest = json!({ "schemaVersion": 2, "mediaType": kind, "config": entry, "layers": [entry] });
        let place = "/v2/team/app/manifests/newest";
        let put = |request: RequestBuilder| request.header("Content-Type", kind).body(manifest.to_string());
        let pushed = self.ask(Method::PUT, place, put).await;
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let pulled = self.ask(Method::GET, place, |request| request.header("Accept", kind)).await;
        assert_eq!((pulled.status, pulled.json()), (200, manifest));
    }

    /// Reports progress with the token of the job and with the shared secret.
    async fn reports(&mut self, job: &str, report_token: &str) {
        let generation = self.shared.token.read().unwrap().0;
        let file = std::fs::read_to_string(&self.shared.report_secret).unwrap();
        let secret = file.split_whitespace().next().unwrap().to_owned();
        let body =
            json!({ "status": "progress", "step": "image-linux.service", "percent": 5, "job_id": job });
        let client = self.http.clone();
        let place = format!("/api/v1/status-webhook/{SERVER}");
        for secret in [report_token, &secret] {
            let request =
                || client.request(Method::POST, &place).header("X-Webhook-Secret", secret).json(&body);
            self.send(request).await.expect(200);
        }
        self.shared.used[self.number].store(generation, Ordering::Release);
    }
}

/// A pair for `localhost` and loopback that is its own authority: certificate and key in PEM.
fn pair() -> (String, String) {
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn write_pair(folder: &Path, (certificate, key): &(String, String)) {
    std::fs::write(folder.join("cert.pem"), certificate).unwrap();
    std::fs::write(folder.join("key.pem"), key).unwrap();
}

async fn waits_until(what: &str, done: impl Fn() -> bool) {
    soon(what, async {
        while !done() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
}

/// Rotates a key by the command line, over HTTPS.
async fn rotate_key(shared: &Shared, folder: &Path, key: &str) {
    let authorities = folder.join("trusted.pem");
    std::fs::write(&authorities, &shared.trusted).unwrap();
    let mut command = binary(&["secret", "rotate", key, "--ca", authorities.to_str().unwrap()]);
    command.env("SHOAL_URL", &shared.base).env("SHOAL_TOKEN", &shared.token.read().unwrap().1);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{key}: {output:?}");
}

/// Issues a token, waits until every client has used it, and revokes the former one, which is refused then.
async fn rotate_token(shared: &Shared, round: usize) {
    let (former, text) = shared.token.read().unwrap().clone();
    let admin = Client::trusting(&shared.trusted, shared.base.clone()).with_token(&text);
    let new = json!({ "name": format!("load-{round}"), "role": "admin" });
    let made = admin.post("/api/v1/tokens", &new).await.expect(201);
    let fresh = made["token"].as_str().unwrap().to_owned();
    *shared.token.write().unwrap() = (former + 1, fresh.clone());
    waits_until("the use of the new token", || {
        shared.used.iter().all(|used| used.load(Ordering::Acquire) > former)
    })
    .await;
    let former = admin.get("/api/v1/me").await.expect(200)["name"].as_str().unwrap().to_owned();
    let admin = admin.with_token(&fresh);
    admin.delete(&format!("/api/v1/tokens/{former}")).await.expect(204);
    admin.with_token(&text).get("/api/v1/me").await.refused(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_while_certificate_tokens_and_keys_are_replaced_over_https_and_the_controller_restarts()
 {
    let folder = tempfile::tempdir().unwrap();
    let pairs: Vec<(String, String)> = (0..=ROUNDS).map(|_| pair()).collect();
    write_pair(folder.path(), &pairs[0]);
    let report_secret = folder.path().join("report.secret");
    std::fs::write(&report_secret, "the-first-report-secret\n").unwrap();
    let port = free_port();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut data = DataDir::new()
        .with("CONTROLLER_HTTPS_ADDR", &format!("127.0.0.1:{port}"))
        .with("TLS_CERT_FILE", &path("cert.pem"))
        .with("TLS_KEY_FILE", &path("key.pem"))
        .with("WEBHOOK_SECRET", &format!("file:{}", report_secret.display()));
    let mut controller = data.serve().await;
    let farm = start_farm(vec![silent(SERVER)], data.path()).await;
    controller.admin.register(farm.server(SERVER).unwrap()).await;
    controller.admin.push_image().await;
    let job = controller.admin.create_job(SERVER).await;
    controller.admin.awaits_report(&job).await;
    let image = controller.admin.task_image(&job).await;
    let report_token =
        controller.admin.job_document(&job).await["webhook_token"].as_str().unwrap().to_owned();

    let shared = Arc::new(Shared {
        base: format!("https://127.0.0.1:{port}"),
        trusted: pairs.iter().map(|(certificate, _)| certificate.as_str()).collect(),
        token: RwLock::new((1, controller.admin.token().to_owned())),
        restarts: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        used: Default::default(),
        report_secret,
    });
    let clients: Vec<_> = (0..shared.used.len())
        .map(|number| {
            let client = LoadClient::new(&shared, number);
            tokio::spawn(client.run(job.clone(), report_token.clone(), image.clone()))
        })
        .collect();
    for (round, pair) in pairs[1..].iter().enumerate() {
        write_pair(folder.path(), pair);
        controller.signal(Signal::HUP);
        // A client that trusts the new certificate only can connect.
        let strict = Client::trusting(&pair.0, shared.base.clone());
        soon("the new certificate", async {
            let health = || strict.request(Method::GET, "/healthz");
            while strict.try_send(health()).await.is_err() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
        .await;
        rotate_token(&shared, round).await;
        for key in ["master", "signing", "report"] {
            rotate_key(&shared, folder.path(), key).await;
        }
        shared.restarts.fetch_add(1, Ordering::AcqRel);
        match round % 2 {
            0 => assert!(controller.terminate().await.success()),
            _ => controller.kill(),
        }
        controller = data.serve().await;
        shared.restarts.fetch_add(1, Ordering::AcqRel);
        assert!(clients.iter().all(|client| !client.is_finished()), "a client has failed");
    }
    // After the last restart every client works again.
    rotate_token(&shared, ROUNDS).await;
    shared.stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.unwrap() > 2 * ROUNDS);
    }
    let admin = controller.admin.with_token(&shared.token.read().unwrap().1);
    assert_eq!(admin.job(&job).await["wait"]["reason"], "report", "the job was not touched");
    let done: Value = json!({ "status": "success", "job_id": job });
    admin.report(SERVER, &report_token, &done).await.expect(200);
    assert_eq!(admin.complete(&job).await["outcome"], "succeeded");
    farm.shutdown().await;
}
