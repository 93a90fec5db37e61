//! The link of a worker elsewhere to its controller: HTTPS requests that are repeated until there is a response.
//!
//! ```text
//!   no response, 5xx, 429 ── again after a pause that doubles, with jitter, for as long as the lease can last
//!   409 worker_hello ─────── the controller was started again: hello, then the request again
//!   401, 409 worker_version, 403 of hello ── the worker ends with the words of the controller
//!   another refusal ──────── an error of this request
//! ```
//!
//! Invariants: a command may be repeated, because its fence recognises a repetition; the token is sent to the host of the URL only,
//! because redirects are not followed and no proxy is used; a response is bounded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bmc::BmcServices;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::clock::FollowingClock;
use super::keeper::Keeper;
use super::messages::{
    Hello, Next, Progressed, Progressing, Releasing, Reported, Reporting, WORKER_HEADER, Welcome,
};
use engine::{
    Backend, BackendError, CallKey, MAX_MESSAGE, NextCall, Progress, ReportMessage, StepCall, StepReport,
};
use model::{Effect, Failure, IdSource, Run, StepRecord, SystemIdSource, distinct_causes};

/// The deadline of a request that does not wait at the controller.
const REQUEST: Duration = Duration::from_secs(30);
/// The deadline of a request that waits at the controller.
pub(super) const POLL: Duration = Duration::from_secs(super::messages::LONGEST_POLL_S + 20);
/// The first pause before a repetition, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How long a checkpoint is repeated: the call that writes it waits meanwhile.
const CHECKPOINT: Duration = Duration::from_secs(60);
/// How long a worker repeats that it gives a lease back.
const RELEASE: Duration = Duration::from_secs(10);
/// The largest response with calls.
const MAX_RESPONSE: usize = 64 << 20;
/// The largest text of a refusal that is shown.
const MAX_WORDS: usize = 2000;

/// Why a request has no response of use.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// The controller refuses this request.
    #[error("the controller refuses the request ({status}): {words}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The reason that the controller gives.
        words: String,
    },
    /// There was no response in time.
    #[error("the controller cannot be reached: {0}")]
    Unreachable(String),
    /// The worker must end.
    #[error("{0}")]
    Ended(String),
}

impl LinkError {
    fn backend(self) -> BackendError {
        BackendError(Box::new(self))
    }
}

/// One try of a request.
enum Tried {
    Response(Response),
    /// The controller does not know this worker.
    Unknown,
    Again(String),
}

/// The link to one controller.
pub(super) struct Link {
    http: reqwest::Client,
    base: Url,
    authorization: HeaderValue,
    process: HeaderValue,
    hello: Hello,
    clock: Arc<FollowingClock>,
    pub(super) keeper: Arc<Keeper>,
    /// The connections to BMCs, which receive the authorities of each welcome.
    bmc: OnceLock<Weak<BmcServices>>,
    /// How many checkpoints were written: the number of the next one is higher than that of any before.
    checkpoints: AtomicU64,
    /// How long a lease lasts.
    lease: Mutex<Duration>,
    /// Why the worker must end.
    why: Mutex<Option<String>>,
    pub(super) ended: CancellationToken,
    /// Whether the last try had a response.
    reached: Mutex<bool>,
}

impl Link {
    pub(super) fn new(
        http: reqwest::Client,
        base: Url,
        (authorization, process): (HeaderValue, HeaderValue),
        hello: Hello,
        clock: Arc<FollowingClock>,
        keeper: Arc<Keeper>,
    ) -> Self {
        Self {
            http,
            base,
            authorization,
            process,
            hello,
            clock,
            keeper,
            bmc: OnceLock::new(),
            checkpoints: AtomicU64::new(0),
            lease: Mutex::new(Duration::from_secs(600)),
            why: Mutex::default(),
            ended: CancellationToken::new(),
            reached: Mutex::new(true),
        }
    }

    /// Why the controller ended this worker.
    pub(super) fn why_ended(&self) -> Option<String> {
        self.why.lock().clone()
    }

    fn end(&self, words: String) -> LinkError {
        let mut why = self.why.lock();
        let words = why.get_or_insert(words).clone();
        self.ended.cancel();
        LinkError::Ended(words)
    }

    /// Says hello, as often as it is necessary.
    pub(super) async fn greet(&self) -> Result<Welcome, LinkError> {
        let welcome: Welcome = self.repeat("hello", &self.hello, REQUEST, None).await?;
        self.clock.follow(welcome.now);
        *self.lease.lock() = Duration::from_millis(welcome.lease_ms);
        if let Some(bmc) = self.bmc.get().and_then(Weak::upgrade) {
            bmc.connections.trust(welcome.redfish.authorities.clone().map(String::into_bytes));
        }
        Ok(welcome)
    }

    /// Gives the authorities of every later welcome to these connections. Only the first call counts.
    pub(super) fn trusts_for(&self, bmc: &Arc<BmcServices>) {
        let _of_first_call = self.bmc.set(Arc::downgrade(bmc));
    }

    /// [`Self::greet`] of a request that the controller did not know.
    fn greet_again(&self) -> BoxFuture<'_, Result<Welcome, LinkError>> {
        Box::pin(self.greet())
    }

    /// Sends a request once.
    pub(super) async fn once<T: DeserializeOwned>(
        &self,
        name: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, LinkError> {
        match self.try_once(name, body, deadline).await? {
            Tried::Response(response) => read(response).await,
            Tried::Unknown => {
                self.greet_again().await?;
                Err(LinkError::Unreachable("the controller was started again".to_owned()))
            }
            Tried::Again(why) => Err(LinkError::Unreachable(why)),
        }
    }

    /// The response whose body the caller reads, after as many tries as `patience` allows.
    pub(super) async fn bytes(&self, name: &str, body: &impl Serialize) -> Result<Response, LinkError> {
        self.respond(name, body, REQUEST, Some(CHECKPOINT)).await
    }

    /// Sends a request until it has a response.
    pub(super) async fn repeat<T: DeserializeOwned>(
        &self,
        name: &str,
        body: &impl Serialize,
        deadline: Duration,
        patience: Option<Duration>,
    ) -> Result<T, LinkError> {
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            let left = patience.map(|patience| patience.saturating_sub(began.elapsed()));
            let response = self.respond(name, body, deadline, left).await?;
            match read(response).await {
                // The response was cut: the request is sent again.
                Err(LinkError::Unreachable(_)) if left.is_none_or(|left| left > pause) => {
                    self.pause(&mut pause).await?;
                }
                read => return read,
            }
        }
    }

    async fn respond(
        &self,
        name: &str,
        body: &impl Serialize,
        deadline: Duration,
        patience: Option<Duration>,
    ) -> Result<Response, LinkError> {
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            let why = match self.try_once(name, body, deadline).await? {
                Tried::Response(response) => return Ok(response),
                Tried::Unknown => match self.greet_again().await {
                    Ok(_welcome) => "the controller was started again".to_owned(),
                    Err(error) => return Err(error),
                },
                Tried::Again(why) => why,
            };
            if patience.is_some_and(|patience| began.elapsed() + pause >= patience) {
                return Err(LinkError::Unreachable(why));
            }
            self.pause(&mut pause).await?;
        }
    }

    /// Waits before a repetition, and doubles the pause.
    pub(super) async fn pause(&self, pause: &mut Duration) -> Result<(), LinkError> {
        let jittered = pause.mul_f64(0.5 + SystemIdSource.jitter() / 2.0);
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        tokio::select! {
            () = self.ended.cancelled() => Err(LinkError::Ended(self.why_ended().unwrap_or_default())),
            () = tokio::time::sleep(jittered) => Ok(()),
        }
    }

    async fn try_once(
        &self,
        name: &str,
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<Tried, LinkError> {
        if let Some(why) = self.why_ended() {
            return Err(LinkError::Ended(why));
        }
        let body = serde_json::to_vec(body).map_err(|error| LinkError::Refused {
            status: 0,
            words: format!("the message cannot be written: {error}"),
        })?;
        let mut url = self.base.clone();
        // A URL with a host always has segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["worker", "v1", name]);
        }
        let request = self
            .http
            .post(url)
            .header(AUTHORIZATION, self.authorization.clone())
            .header(WORKER_HEADER, self.process.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let sent = tokio::time::timeout(deadline, request.send()).await;
        let response = match sent {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Ok(self.unreached(distinct_causes(&error.without_url()))),
            Err(_elapsed) => {
                return Ok(self.unreached(format!("no response within {} s", deadline.as_secs())));
            }
        };
        if !std::mem::replace(&mut *self.reached.lock(), true) {
            tracing::info!("the controller responds again");
        }
        let status = response.status();
        if status.is_success() {
            return Ok(Tried::Response(response));
        }
        let text = bounded(response, MAX_MESSAGE).await.unwrap_or_default();
        let refusal: Value = serde_json::from_slice(&text).unwrap_or_default();
        let code = refusal["error"].as_str().unwrap_or_default();
        let words: String = match refusal["message"].as_str() {
            Some(message) => message.chars().filter(|letter| !letter.is_control()).take(MAX_WORDS).collect(),
            None => format!("the response is not one of a Shoal controller ({status})"),
        };
        match (status, code) {
            (_, "conflict.worker_hello") => Ok(Tried::Unknown),
            (StatusCode::UNAUTHORIZED, "unauthorized")
            | (_, "conflict.worker_version" | "https_required") => Err(self.end(words)),
            (StatusCode::FORBIDDEN, "forbidden") if name == "hello" => Err(self.end(words)),
            (StatusCode::TOO_MANY_REQUESTS, _) => Ok(Tried::Again(words)),
            _ if status.is_server_error() => Ok(Tried::Again(words)),
            // A proxy or another program.
            (_, "") => Ok(Tried::Again(words)),
            _ => Err(LinkError::Refused { status: status.as_u16(), words }),
        }
    }

    fn unreached(&self, why: String) -> Tried {
        if std::mem::replace(&mut *self.reached.lock(), false) {
            tracing::warn!(why, "the controller cannot be reached; the worker tries again");
        }
        Tried::Again(why)
    }

    async fn send_report(&self, call: &StepCall, report: ReportMessage) -> Result<Reported, LinkError> {
        let patience = *self.lease.lock();
        let message = Reporting { key: CallKey::of(call), report };
        self.repeat("report", &message, REQUEST, Some(patience)).await
    }
}

async fn read<T: DeserializeOwned>(response: Response) -> Result<T, LinkError> {
    let status = response.status().as_u16();
    let bytes = bounded(response, MAX_RESPONSE).await?;
    let bytes = if bytes.is_empty() { b"null".to_vec() } else { bytes };
    serde_json::from_slice(&bytes).map_err(|error| LinkError::Refused {
        status,
        // The text of the error may name a value of the response, such as a password.
        words: format!("the response cannot be read (line {}, column {})", error.line(), error.column()),
    })
}

async fn bounded(mut response: Response, most: usize) -> Result<Vec<u8>, LinkError> {
    let mut bytes = Vec::new();
    loop {
        let piece = tokio::time::timeout(REQUEST, response.chunk()).await;
        match piece {
            Ok(Ok(Some(piece))) if bytes.len() + piece.len() <= most => bytes.extend_from_slice(&piece),
            Ok(Ok(Some(_))) => {
                let words = format!("the response has more than {most} bytes");
                return Err(LinkError::Refused { status: response.status().as_u16(), words });
            }
            Ok(Ok(None)) => return Ok(bytes),
            Ok(Err(error)) => return Err(LinkError::Unreachable(distinct_causes(&error.without_url()))),
            Err(_elapsed) => return Err(LinkError::Unreachable("the response stopped".to_owned())),
        }
    }
}

#[async_trait]
impl Progress for Link {
    async fn progress(
        &self,
        run: &Run,
        record: StepRecord,
        effects: Vec<Effect>,
    ) -> Result<bool, BackendError> {
        if !effects.is_empty() {
            let words = format!("the step {} stores what only the controller stores", record.name);
            return Err(LinkError::Refused { status: 0, words }.backend());
        }
        let key = CallKey { run: run.id, epoch: run.epoch, at: record.at, attempt: record.attempt };
        let number = self.checkpoints.fetch_add(1, Ordering::Relaxed) + 1;
        let message = Progressing { key, number, output: record.output };
        let progressed: Progressed =
            self.repeat("progress", &message, REQUEST, Some(CHECKPOINT)).await.map_err(LinkError::backend)?;
        self.clock.follow(progressed.now);
        Ok(progressed.held)
    }
}

#[async_trait]
impl Backend for Link {
    async fn report(
        &self,
        call: &StepCall,
        _: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, BackendError> {
        let reported = match self.send_report(call, ReportMessage::of(call, &report)).await {
            // The report itself is refused: the step fails with the words of the controller.
            Err(LinkError::Refused { words, .. }) => {
                let failure = Failure {
                    class: model::class::INTERNAL,
                    step: call.record.name.clone(),
                    summary: format!("the controller refuses the report of the worker: {words}"),
                    detail: None,
                    next_action: "run the same version of the program on both sides, then order it again"
                        .to_owned(),
                };
                let message = ReportMessage::of(call, &StepReport::fail(failure));
                self.send_report(call, message).await
            }
            sent => sent,
        };
        let reported = reported.map_err(LinkError::backend)?;
        self.clock.follow(reported.now);
        Ok(match reported.next {
            Next::Call(parcel) => NextCall::Call(Box::new(self.keeper.take(*parcel))),
            Next::Released => NextCall::Released,
            Next::Lost => NextCall::Lost,
        })
    }

    async fn release(&self, call: &StepCall) -> Result<(), BackendError> {
        let message = Releasing { key: CallKey::of(call) };
        self.repeat("release", &message, REQUEST, Some(RELEASE)).await.map_err(LinkError::backend)
    }
}
