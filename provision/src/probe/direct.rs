//! The same looks at an address that nobody has registered: without a controller, with a media listener of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use redfish::{
    Bmc, Credentials, Endpoint, HttpOptions, HttpTransport, LimitOptions, Limits, Profile, Recorder,
    RedfishError, TlsMode,
};
use secrecy::SecretString;
use serde_json::json;

use super::super::services::base_url_towards;
use super::super::slots::Learned;
use super::checks::{AllowedChanges, Findings, TestMedium, examine};
use super::{ProbeResult, Subject, Trouble, card, test_image, trouble};
use engine::model::Time;
use media::{Artifact, Body, MediaToken, ReadObserver, Suffix, media_path, media_url, respond};

/// How long a certificate may take to be shown.
const FINGERPRINT: Duration = Duration::from_secs(10);

/// A BMC as it is given on a command line.
pub struct Target {
    /// HOST, HOST:PORT or a URL; https unless said.
    pub address: String,
    /// The account.
    pub username: String,
    /// Its password.
    pub password: SecretString,
    /// The only certificate accepted; none: the one it shows first.
    pub fingerprint: Option<String>,
    /// Whether any certificate is.
    pub insecure: bool,
    /// The serial number it should have, if it is known.
    pub serial: Option<String>,
}

struct Connection {
    bmc: Bmc,
    recorder: Recorder,
    tls: serde_json::Value,
    peer: SocketAddr,
}

async fn connect(target: &Target) -> Result<Connection, Trouble> {
    let wrong = |sentence: String, next: &str| Trouble {
        code: "config".to_owned(),
        sentence,
        next_action: next.to_owned(),
    };
    let endpoint: Endpoint =
        target.address.parse().map_err(|why| wrong(format!("{why}"), "correct the address"))?;
    let failed = |error| trouble(&RedfishError::connecting(error), None);
    let (mode, tls) = if !endpoint.is_secure() {
        (TlsMode::Insecure, json!({ "mode": "none", "fingerprint": null, "first_met": false }))
    } else if target.insecure {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (
            TlsMode::Insecure,
            json!({ "mode": "insecure", "fingerprint": seen.to_string(), "first_met": false }),
        )
    } else if let Some(pin) = &target.fingerprint {
        let pin = pin.parse().map_err(|why| wrong(format!("{why}"), "give 64 hexadecimal digits"))?;
        (TlsMode::Pin(pin), json!({ "mode": "pinned", "fingerprint": pin.to_string(), "first_met": false }))
    } else {
        let seen = redfish::read_fingerprint(&endpoint, FINGERPRINT).await.map_err(failed)?;
        (TlsMode::Pin(seen), json!({ "mode": "pinned", "fingerprint": seen.to_string(), "first_met": true }))
    };
    let name = (endpoint.host().trim_matches(['[', ']']).to_owned(), endpoint.port());
    let peer = tokio::net::lookup_host(name).await.ok().and_then(|mut found| found.next());
    let transport = HttpTransport::new(&endpoint, &mode, HttpOptions::default()).map_err(failed)?;
    let recorder = Recorder::over(Arc::new(transport));
    let credentials = Credentials::new(target.username.clone(), target.password.clone());
    let bmc = Bmc::builder(endpoint, credentials, Arc::new(recorder.clone()), Profile::generic())
        .detecting()
        .limits(Limits::new(LimitOptions::usual(), None))
        .options(redfish::Options { read_attempts: 2, ..redfish::Options::default() })
        .build();
    let peer = peer.ok_or_else(|| {
        wrong(
            "the BMC's host name does not resolve".to_owned(),
            "correct the name, or the DNS of this machine",
        )
    })?;
    Ok(Connection { bmc, recorder, tls, peer })
}

async fn leave(bmc: &Bmc) {
    if let Err(error) = bmc.logout().await {
        tracing::debug!(%error, "the BMC session was not closed; it times out");
    }
}

/// Looks at a BMC without changing anything.
pub async fn probe(target: &Target, capture: bool, now: Time) -> Result<ProbeResult, Trouble> {
    let connection = connect(target).await?;
    let unspecified = SocketAddr::new(unspecified(connection.peer), 80);
    let media_base = base_url_towards(unspecified, connection.peer).map_err(|why| Trouble {
        code: "config".to_owned(),
        sentence: why,
        next_action: String::new(),
    })?;
    let subject = Subject {
        serial: target.serial.as_deref(),
        media_base: &media_base,
        tls: connection.tls.clone(),
        learned: Learned::default(),
        now,
    };
    let card = card(&connection.bmc, &subject, &connection.recorder).await;
    leave(&connection.bmc).await;
    let capture = capture.then(|| connection.recorder.capture(uuid::Uuid::new_v4().as_u64_pair().0));
    Ok(ProbeResult { card: card?, capture })
}

/// Makes every check, with a media listener on `listen` (port 0: any) for as long as it takes.
pub async fn doctor(
    target: &Target,
    write_boot: bool,
    listen: Option<SocketAddr>,
    now: Time,
) -> Result<Findings, Trouble> {
    let config = |sentence: String| Trouble {
        code: "config".to_owned(),
        sentence,
        next_action: "give --listen an address of this machine that the BMC reaches".to_owned(),
    };
    let connection = connect(target).await?;
    let listen = listen.unwrap_or_else(|| SocketAddr::new(unspecified(connection.peer), 0));
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|why| config(format!("cannot listen on {listen}: {why}")))?;
    let bound = listener.local_addr().map_err(|why| config(why.to_string()))?;
    let media_base = base_url_towards(bound, connection.peer).map_err(config)?;
    let served = Served::new(&media_base, now).map_err(config)?;
    let router = axum::Router::new().fallback(answer).with_state(served.shared());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let subject = Subject {
        serial: target.serial.as_deref(),
        media_base: &media_base,
        tls: connection.tls.clone(),
        learned: Learned::default(),
        now,
    };
    let findings =
        examine(&connection.bmc, &subject, &AllowedChanges { medium: Ok(&served), write_boot }).await;
    leave(&connection.bmc).await;
    serving.abort();
    Ok(findings)
}

fn unspecified(peer: SocketAddr) -> std::net::IpAddr {
    match peer {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// One image under one path.
struct Served {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    path: String,
    body: Body,
    read: AtomicBool,
}

impl Served {
    fn new(base: &str, now: Time) -> Result<Self, String> {
        let id = uuid::Uuid::new_v4();
        let image = test_image::image(id, now).map_err(|why| why.to_string())?;
        let body = image.thaw().map_err(|why| why.to_string())?;
        let token = MediaToken::parse(&id.simple().to_string()).ok_or("the drawn token is not one")?;
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
impl TestMedium for Served {
    fn url(&self) -> &str {
        &self.url
    }

    async fn was_read(&self) -> bool {
        self.shared.read.load(Ordering::Relaxed)
    }
}

async fn answer(
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
