//! Diagnostics of a BMC that is not registered: without a controller, with a temporary media listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::http::StatusCode;

use super::checks::{AllowedChanges, BootIntent, Diagnostics, TestMedium, run_checks};
use super::test_image;
use bmc::base_url_towards;
use bmc::probe::BmcProblem;
use bmc::probe::direct::{DirectConnection, DirectTarget};
use media::{Artifact, ImageBody, MediaToken, ReadObserver, Suffix, media_path, media_url, respond};
use model::Time;

/// Runs every check, with a temporary media listener on `listen` (port 0: any free port).
///
/// # Errors
/// Returns the problem when the BMC cannot be connected or the listener cannot be opened.
pub async fn run(
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
    let connection = DirectConnection::open(target).await?;
    let listen = listen.unwrap_or_else(|| SocketAddr::new(connection.wildcard(), 0));
    let listener = tokio::net::TcpListener::bind(listen)
        .await
        .map_err(|why| config(format!("cannot listen on {listen}: {why}")))?;
    let bound = listener.local_addr().map_err(|why| config(why.to_string()))?;
    let media_base = base_url_towards(bound, connection.peer).map_err(config)?;
    let served = TestMediaServer::new(&media_base, now).map_err(config)?;
    let router = axum::Router::new().fallback(serve).with_state(served.shared());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let probe_target = connection.probe_target(target, &media_base, now);
    let write_boot: Option<&dyn BootIntent> = if write_boot { Some(&Unrecorded) } else { None };
    let allowed = AllowedChanges { medium: Ok(&served), write_boot, unverified_serial: true };
    let diagnostics = run_checks(&connection.bmc, &probe_target, &allowed).await;
    connection.close().await;
    serving.abort();
    Ok(diagnostics)
}

/// The intent of a direct connection, which has no database; the next command shows an override that a killed command left set.
struct Unrecorded;

#[async_trait]
impl BootIntent for Unrecorded {
    async fn record(&self) -> bool {
        true
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
