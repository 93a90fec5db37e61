//! The networks of a world: from controllers to BMCs, and from clients to the controller.
//!
//! ```text
//!   controller --WorldTransport (delay, death of the process)--> SimBmc::handle
//!   BMC, machine, operator --World::call (delay, no controller)--> the router of the controller
//! ```
//!
//! There is no socket and no thread: the seed decides when a message arrives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Method, header};
use lab_bmc::{InProcess, MediaReader, MediaRefusal, MediaRequest, MediaResponse, SimBmc};
use redfish::{
    Endpoint, Fingerprint, Request, Response, TlsVerification, Transport, TransportError, TransportErrorKind,
    UploadBody,
};
use serde_json::Value;
use tower::ServiceExt;

use super::boundary::Boundary;
use super::checker::action;
use super::rng::WorldRng;
use super::world::World;
use bmc::BmcConnector;
use model::Serial;

/// Maximum length of a body in bytes.
const MAX_BODY: usize = 8 << 20;

/// The connection of one controller to all BMCs.
pub(super) struct BmcNetwork {
    pub(super) boundary: Arc<Boundary>,
    pub(super) world: Arc<World>,
}

#[async_trait]
impl BmcConnector for BmcNetwork {
    fn transport(
        &self,
        endpoint: &Endpoint,
        _tls: &TlsVerification,
    ) -> Result<Arc<dyn Transport>, TransportError> {
        let missing = || unreachable(format!("no BMC at {endpoint}"));
        let (serial, bmc) = self.world.bmc_at(&endpoint.host()).ok_or_else(missing)?;
        Ok(Arc::new(WorldTransport {
            boundary: Arc::clone(&self.boundary),
            rng: WorldRng::new(self.world.plan.seed, &format!("wire {serial} {}", self.boundary.owner)),
            world: Arc::clone(&self.world),
            serial,
            bmc,
        }))
    }

    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError> {
        Err(unreachable(format!("the BMC at {endpoint} does not support TLS")))
    }
}

fn unreachable(why: String) -> TransportError {
    TransportError::not_sent(TransportErrorKind::Connect, why)
}

/// The transport from one controller to one BMC.
struct WorldTransport {
    boundary: Arc<Boundary>,
    world: Arc<World>,
    rng: WorldRng,
    serial: Serial,
    bmc: SimBmc,
}

impl WorldTransport {
    fn latency(&self) -> Duration {
        match self.rng.below(200) {
            0 if !self.world.is_quiet() => self.rng.seconds(1, 12),
            _ => self.rng.time(Duration::from_millis(1), Duration::from_millis(60)),
        }
    }

    async fn exchange(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        tokio::time::sleep(self.latency()).await;
        let mutates = request.method != Method::GET
            && request.method != Method::HEAD
            && !request.path.contains("/Sessions");
        let change = mutates.then(|| {
            self.world.note(&format!("{} {} {}", self.serial, request.method, action(&request.path)));
            self.world.bmc_changes.notify_waiters();
            let store = self.world.observer();
            if let [run] = store.peek_begun(&self.serial)[..] {
                self.world.run_changes(run, &self.bmc);
            }
            let sent = (&request, deadline);
            self.world.checker.bmc_change(store, &self.serial, &self.boundary.owner, sent, &self.bmc)
        });
        let response = InProcess::new(self.bmc.clone()).send(request, deadline).await;
        drop(change);
        tokio::time::sleep(self.latency()).await;
        response
    }
}

#[async_trait]
impl Transport for WorldTransport {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        self.boundary.call_out().await;
        let sent = tokio::time::timeout(deadline, self.exchange(request, deadline));
        let response = self.boundary.while_alive(sent).await.unwrap_or_else(|_elapsed| {
            Err(TransportError::maybe_sent(TransportErrorKind::Timeout, "no response in time"))
        });
        self.boundary.call_out().await;
        response
    }

    async fn upload(
        &self,
        request: Request,
        body: UploadBody,
        deadline: Duration,
    ) -> Result<Response, TransportError> {
        if self.world.faults_active() && self.world.firmware.chance_per_mille(30) {
            self.world.note(&format!("{} an upload breaks off", self.serial));
            return Err(TransportError::maybe_sent(TransportErrorKind::Lost, "the connection broke off"));
        }
        let unreadable =
            |error: std::io::Error| TransportError::not_sent(TransportErrorKind::Config, error.to_string());
        let body = Some(body.collect().await.map_err(unreadable)?);
        self.send(Request { body, ..request }, deadline).await
    }
}

/// A response of the controller.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// A request to the controller.
pub(super) struct ApiRequest<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) header: Option<(&'static str, String)>,
    pub(super) body: Option<Value>,
}

impl World {
    /// Sends a request to the controller. Returns `None` if no controller runs or it dies before the response.
    pub(super) async fn call(self: &Arc<Self>, request: ApiRequest<'_>) -> Option<ApiResponse> {
        let mut builder = http::Request::builder().method(request.method).uri(request.path);
        if let Some((name, value)) = request.header {
            builder = builder.header(name, value);
        }
        let body = match request.body {
            Some(body) => {
                builder = builder.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let (parts, bytes) = self.exchange(builder.body(body).ok()?).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Some(ApiResponse { status: parts.status.as_u16(), body })
    }

    /// Reads a whole image. Returns `None` if it cannot be read now.
    pub(super) async fn image(self: &Arc<Self>, url: &str) -> Option<bytes::Bytes> {
        let request = http::Request::get(url::Url::parse(url).ok()?.path()).body(Body::empty()).ok()?;
        let (parts, bytes) = self.exchange(request).await?;
        parts.status.is_success().then_some(bytes)
    }

    /// Sends one request to the controller in a separate task, which ends if the controller dies.
    async fn exchange(
        self: &Arc<Self>,
        mut request: http::Request<Body>,
    ) -> Option<(http::response::Parts, bytes::Bytes)> {
        tokio::time::sleep(self.rng.time(Duration::from_millis(1), Duration::from_millis(20))).await;
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 9], 40_000))));
        let (router, boundary) = self.endpoint()?;
        let task = tokio::spawn(async move {
            boundary
                .while_alive(async {
                    let Ok(response) = router.oneshot(request).await;
                    let (parts, body) = response.into_parts();
                    let bytes = axum::body::to_bytes(body, MAX_BODY).await.ok()?;
                    // A dead or paused controller sends no response.
                    boundary.call_out().await;
                    Some((parts, bytes))
                })
                .await
        });
        task.await.ok().flatten()
    }
}

/// The media reader of the simulated BMCs: reads images from the controller.
pub(super) struct WorldMedia(pub(super) std::sync::Weak<World>);

#[async_trait]
impl MediaReader for WorldMedia {
    async fn fetch(&self, wanted: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let gone = || MediaRefusal::Unreachable("the controller does not respond".to_owned());
        let world = self.0.upgrade().ok_or_else(gone)?;
        let url =
            url::Url::parse(wanted.url.as_str()).map_err(|why| MediaRefusal::Unreachable(why.to_string()))?;
        let mut request = http::Request::builder()
            .method(if wanted.head { Method::HEAD } else { Method::GET })
            .uri(url.path());
        if let Some((first, last)) = wanted.range {
            request = request.header(header::RANGE, format!("bytes={first}-{last}"));
        }
        let request =
            request.body(Body::empty()).map_err(|why| MediaRefusal::Unreachable(why.to_string()))?;
        let (parts, mut body) = world.exchange(request).await.ok_or_else(gone)?;
        body.truncate(wanted.keep);
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(MediaResponse {
            status: parts.status.as_u16(),
            length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            content_range: text(header::CONTENT_RANGE),
            encoded: parts.headers.contains_key(header::CONTENT_ENCODING),
            body,
        })
    }
}
