//! Probe and diagnostics of an address that is not registered: without a controller, with a temporary media listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use redfish::{
    Bmc, BmcCredentials, Endpoint, HttpOptions, HttpTransport, LimitOptions, Profile, RecordingTransport,
    RedfishError, RequestLimits, TlsVerification,
};
use secrecy::SecretString;
use serde_json::json;

use super::super::services::base_url_towards;
use super::super::slots::LearnedSlots;
use super::checks::{AllowedChanges, Diagnostics, TestMedium, run_checks};
use super::{BmcProblem, ProbeResult, ProbeTarget, bmc_problem, card, test_image};
use engine::model::Time;
use media::{Artifact, ImageBody, MediaToken, ReadObserver, Suffix, media_path, media_url, respond};

/// Timeout of reading a certificate.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// A BMC given on the command line.
pub struct DirectTarget {
    /// HOST, HOST:PORT or a URL; the default scheme is https.
    pub address: String,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: SecretString,
    /// The fingerprint of the only accepted certificate; `None` accepts the first one shown.
    pub fingerprint: Option<String>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// The expected serial number, if known.
    pub serial: Option<String>,
}

struct Connection {
    bmc: Bmc,
    recorder: RecordingTransport,
    tls: serde_json::Value,
    peer: SocketAddr,
}

async fn connect(target: &DirectTarget) -> Result<Connection, BmcProblem> {
    let config_problem = |sentence: String, next: &str| BmcProblem {
        code: "config".to_owned(),
        sentence,
        next_action: next.to_owned(),
    };
    let endpoint: Endpoint =
        target.address.parse().map_err(|why| config_problem(format!("{why}"), "correct the address"))?;
    let failed = |error| bmc_problem(&RedfishError::connecting(error), None);
    let (mode, tls) = if !endpoint.is_secure() {
        (TlsVerification::Insecure, json!({ "mode": "none", "fingerprint": null, "first_met": false }))
    } else if target.insecure {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (
            TlsVerification::Insecure,
            json!({ "mode": "insecure", "fingerprint": seen.to_string(), "first_met": false }),
        )
    } else if let Some(pin) = &target.fingerprint {
        let pin =
            pin.parse().map_err(|why| config_problem(format!("{why}"), "give 64 hexadecimal digits"))?;
        (
            TlsVerification::Pin(pin),
            json!({ "mode": "pinned", "fingerprint": pin.to_string(), "first_met": false }),
        )
    } else {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (
            TlsVerification::Pin(seen),
            json!({ "mode": "pinned", "fingerprint": seen.to_string(), "first_met": true }),
        )
    };
    let name = (endpoint.host().trim_matches(['[', ']']).to_owned(), endpoint.port());
    let peer = tokio::net::lookup_host(name).await.ok().and_then(|mut found| found.next());
    let transport = HttpTransport::new(&endpoint, &mode, HttpOptions::default()).map_err(failed)?;
    let recorder = RecordingTransport::over(Arc::new(transport));
    let credentials = BmcCredentials::new(target.username.clone(), target.password.clone());
    let bmc = Bmc::builder(endpoint, credentials, Arc::new(recorder.clone()), Profile::generic())
        .detecting()
        .limits(RequestLimits::new(LimitOptions::recommended(), None))
        .options(redfish::ClientOptions { read_attempts: 2, ..redfish::ClientOptions::default() })
        .build();
    let peer = peer.ok_or_else(|| {
        config_problem(
            "the BMC's host name does not resolve".to_owned(),
            "correct the name, or the DNS of this machine",
        )
    })?;
    Ok(Connection { bmc, recorder, tls, peer })
}

async fn log_out(bmc: &Bmc) {
    if let Err(error) = bmc.logout().await {
        tracing::debug!(%error, "the BMC session was not closed; it times out");
    }
}

/// Reads a BMC without changing anything.
///
/// # Errors
/// Returns the problem when the BMC cannot be read.
pub async fn probe(target: &DirectTarget, capture: bool, now: Time) -> Result<ProbeResult, BmcProblem> {
    let connection = connect(target).await?;
    let unspecified = SocketAddr::new(unspecified(connection.peer), 80);
    let media_base = base_url_towards(unspecified, connection.peer).map_err(|why| BmcProblem {
        code: "config".to_owned(),
        sentence: why,
        next_action: String::new(),
    })?;
    let probe_target = ProbeTarget {
        serial: target.serial.as_deref(),
        media_base: &media_base,
        tls: connection.tls.clone(),
        learned: LearnedSlots::default(),
        now,
    };
    let card = card(&connection.bmc, &probe_target, &connection.recorder).await;
    log_out(&connection.bmc).await;
    let capture = capture.then(|| connection.recorder.capture(uuid::Uuid::new_v4().as_u64_pair().0));
    Ok(ProbeResult { card: card?, capture })
}

/// Runs every check, with a temporary media listener on `listen` (port 0: any free port).
///
/// # Errors
/// Returns the problem when the BMC cannot be connected or the listener cannot be opened.
pub async fn doctor(
    target: &DirectTarget,
    write_boot: bool,
    listen: Option<SocketAddr>,
    now: Time,
) -> Result<Diagnostics, BmcProblem> {
    let config = |sentence: String| BmcProblem {
        code: "config".to_owned(),
        sentence,
        next_action: "set --listen to an address of this machine that the BMC can reach".to_owned(),
    };
    let connection = connect(target).await?;
    let listen = listen.unwrap_or_else(|| SocketAddr::new(unspecified(connection.peer), 0));
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|why| config(format!("cannot listen on {listen}: {why}")))?;
    let bound = listener.local_addr().map_err(|why| config(why.to_string()))?;
    let media_base = base_url_towards(bound, connection.peer).map_err(config)?;
    let served = TestMediaServer::new(&media_base, now).map_err(config)?;
    let router = axum::Router::new().fallback(serve).with_state(served.shared());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let probe_target = ProbeTarget {
        serial: target.serial.as_deref(),
        media_base: &media_base,
        tls: connection.tls.clone(),
        learned: LearnedSlots::default(),
        now,
    };
    let diagnostics =
        run_checks(&connection.bmc, &probe_target, &AllowedChanges { medium: Ok(&served), write_boot }).await;
    log_out(&connection.bmc).await;
    serving.abort();
    Ok(diagnostics)
}

fn unspecified(peer: SocketAddr) -> std::net::IpAddr {
    match peer {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Serves the test image under one path.
struct TestMediaServer {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    path: String,
    body: ImageBody,
    read: AtomicBool,
}

impl TestMediaServer {
    fn new(base: &str, now: Time) -> Result<Self, String> {
        let id = uuid::Uuid::new_v4();
        let image = test_image::image(id, now).map_err(|why| why.to_string())?;
        let body = image.rebuild().map_err(|why| why.to_string())?;
        let token =
            MediaToken::parse(&id.simple().to_string()).ok_or("the generated media token is invalid")?;
        let url = media_url(base, &token, Artifact::Task, Suffix::Iso).map_err(|why| why.to_string())?;
        let path = media_path(&token, Artifact::Task, Suffix::Iso);
        Ok(Self { url, shared: Arc::new(Shared { path, body, read: AtomicBool::new(false) }) })
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl ReadObserver for Shared {
    fn read(&self, _offset: u64, _len: u64) {
        self.read.store(true, Ordering::Relaxed);
    }

    fn ended(&self) -> bool {
        false
    }
}

#[async_trait]
impl TestMedium for TestMediaServer {
    fn url(&self) -> &str {
        &self.url
    }

    async fn was_read(&self) -> bool {
        self.shared.read.load(Ordering::Relaxed)
    }
}

async fn serve(
    axum::extract::State(shared): axum::extract::State<Arc<Shared>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let (parts, _no_body) = request.into_parts();
    if parts.uri.path() != shared.path {
        return axum::response::IntoResponse::into_response(StatusCode::NOT_FOUND);
    }
    let body = shared.body.clone();
    respond(&body, &parts, shared)
}
