//! The networks of a world: controllers to BMCs, and everybody to the controller.
//!
//! ```text
//!   controller --Wire (delay, loss of the process)--> SimBmc::handle
//!   BMC, machine, operator --World::call (delay, nobody there)--> the controller's own router, in the caller's process
//! ```
//!
//! No socket, no thread: what arrives when is decided by the seed.

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
};
use serde_json::Value;
use tower::ServiceExt;

use super::boundary::Boundary;
use super::rng::WorldRng;
use super::world::World;
use engine::model::Serial;
use provision::BmcConnector;

/// The largest body anybody reads.
const MAX_BODY: usize = 8 << 20;

/// The way of one controller to all BMCs.
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
        let nobody = || nobody(format!("no BMC at {endpoint}"));
        let (serial, bmc) = self.world.bmc_at(&endpoint.host()).ok_or_else(nobody)?;
        Ok(Arc::new(WorldTransport {
            boundary: Arc::clone(&self.boundary),
            rng: WorldRng::new(self.world.plan.seed, &format!("wire {serial} {}", self.boundary.owner)),
            world: Arc::clone(&self.world),
            serial,
            bmc,
        }))
    }

    async fn fingerprint(&self, endpoint: &Endpoint) -> Result<Fingerprint, TransportError> {
        Err(nobody(format!("the BMC at {endpoint} speaks no TLS")))
    }
}

fn nobody(why: String) -> TransportError {
    TransportError::not_sent(TransportErrorKind::Connect, why)
}

/// The way to one BMC.
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
            self.world.note(&format!("{} {} {}", self.serial, request.method, short(&request.path)));
            self.world.bmc_changes.notify_waiters();
            self.world.checker.bmc_change(&self.world, &self.serial, &self.boundary.owner, &request)
        });
        let answer = InProcess::new(self.bmc.clone()).send(request, deadline).await;
        drop(change);
        tokio::time::sleep(self.latency()).await;
        answer
    }
}

/// The end of a path, which is what says what is done.
fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[async_trait]
impl Transport for WorldTransport {
    async fn send(&self, request: Request, deadline: Duration) -> Result<Response, TransportError> {
        self.boundary.call_out().await;
        let sent = tokio::time::timeout(deadline, self.exchange(request, deadline));
        let answer = self.boundary.while_alive(sent).await.unwrap_or_else(|_elapsed| {
            Err(TransportError::maybe_sent(TransportErrorKind::Timeout, "no response in time"))
        });
        self.boundary.call_out().await;
        answer
    }
}

/// What a client of the controller got.
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
    /// Asks the controller; `None` when nobody is there, or nobody answers any more.
    pub(super) async fn call(self: &Arc<Self>, asked: ApiRequest<'_>) -> Option<ApiResponse> {
        let mut request = http::Request::builder().method(asked.method).uri(asked.path);
        if let Some((name, value)) = asked.header {
            request = request.header(name, value);
        }
        let body = match asked.body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let (parts, bytes) = self.exchange(request.body(body).ok()?).await?;
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Some(ApiResponse { status: parts.status.as_u16(), body })
    }

    /// The whole of an image; `None` when it cannot be had now.
    pub(super) async fn image(self: &Arc<Self>, url: &str) -> Option<bytes::Bytes> {
        let request = http::Request::get(url::Url::parse(url).ok()?.path()).body(Body::empty()).ok()?;
        let (parts, bytes) = self.exchange(request).await?;
        parts.status.is_success().then_some(bytes)
    }

    /// One request to the controller, in a task of its own: when the controller dies the task dies with it.
    async fn exchange(
        self: &Arc<Self>,
        mut request: http::Request<Body>,
    ) -> Option<(http::response::Parts, bytes::Bytes)> {
        tokio::time::sleep(self.rng.time(Duration::from_millis(1), Duration::from_millis(20))).await;
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 9], 40_000))));
        let (router, boundary) = self.endpoint()?;
        let answered = tokio::spawn(async move {
            boundary
                .while_alive(async {
                    let Ok(response) = router.oneshot(request).await;
                    let (parts, body) = response.into_parts();
                    let bytes = axum::body::to_bytes(body, MAX_BODY).await.ok()?;
                    // Nothing leaves a controller that is dead or stands still.
                    boundary.call_out().await;
                    Some((parts, bytes))
                })
                .await
        });
        answered.await.ok().flatten()
    }
}

/// How the BMCs of a world read images: from the controller, like everybody.
pub(super) struct WorldMedia(pub(super) std::sync::Weak<World>);

#[async_trait]
impl MediaReader for WorldMedia {
    async fn fetch(&self, asked: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let gone = || MediaRefusal::Unreachable("nobody answers".to_owned());
        let world = self.0.upgrade().ok_or_else(gone)?;
        let url =
            url::Url::parse(asked.url.as_str()).map_err(|why| MediaRefusal::Unreachable(why.to_string()))?;
        let mut request = http::Request::builder()
            .method(if asked.head { Method::HEAD } else { Method::GET })
            .uri(url.path());
        if let Some((first, last)) = asked.range {
            request = request.header(header::RANGE, format!("bytes={first}-{last}"));
        }
        let request =
            request.body(Body::empty()).map_err(|why| MediaRefusal::Unreachable(why.to_string()))?;
        let (parts, mut body) = world.exchange(request).await.ok_or_else(gone)?;
        body.truncate(asked.keep);
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
