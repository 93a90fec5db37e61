//! One logical request: what happens between an operation and the transport.
//!
//! ```text
//!   read:      transmit, again after a transient failure (number, total time and Retry-After bounded)
//!   perform:   proof -> transmit -> 401? -> new proof -> transmit, once; the session that met 401 is deleted
//!   patch:     transmit with ETag -> 412/428? -> read again -> next of [etag, strong etag, *, none]
//!   transmit:  permits -> fence -> send -> 307/308 on the same origin; a read once more after 406
//! ```
//!
//! A mutation is repeated only after an answer that proves it was not carried out (307, 308, 401, 412, 428);
//! any failure of its transport goes to the caller as it is. A refusal that is only worth another body is the
//! business of the operation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, sleep};
use url::Url;

use crate::bmc::Options;
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Operation, RedfishError, classify, from_transport};
use crate::etag::Tags;
use crate::json::{self, Resource};
use crate::limits::Limits;
use crate::message::ErrorBody;
use crate::observe::{Exchange, ExchangeResult, Fence, Observer, SessionKeeper};
use crate::profile::{Choice, Profile};
use crate::resource_cache::Recent;
use crate::retry::{Jitter, retry_after};
use crate::session::{Credentials, Proof, Session};
use crate::transport::{Request, Transport};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
/// How many redirects one request follows.
const MAX_HOPS: usize = 2;

/// Everything the operations share; one per BMC.
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: Credentials,
    pub(crate) choice: Choice,
    /// The service root, until the handle rests.
    pub(crate) root: std::sync::Mutex<Option<Resource>>,
    /// How the service root offers collections with their members; known once it was seen.
    pub(crate) expand: OnceCell<Option<&'static str>>,
    /// What was read a moment ago.
    pub(crate) recent: Recent,
    /// `$expand` was offered and does not work.
    pub(crate) no_expand: AtomicBool,
    pub(crate) session: Mutex<Session>,
    pub(crate) keeper: Arc<dyn SessionKeeper>,
    transport: Arc<dyn Transport>,
    options: Options,
    observer: Arc<dyn Observer>,
    fence: Arc<dyn Fence>,
    /// How much is asked at once; shared with other handles of the same BMC.
    pub(crate) limits: Limits,
    jitter: Jitter,
    /// The BMC answered 406 to `Accept-Encoding: identity`.
    any_encoding: AtomicBool,
}

/// A request as an operation states it.
pub(crate) struct Call<'a> {
    pub(crate) operation: Operation,
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    if_match: Option<&'a str>,
    deadline: Duration,
    /// For how long from now the sender must still own the server; `None` asks nobody.
    owned_for: Option<Duration>,
    /// Whether it is meant to change the server.
    changes: bool,
    /// The only resource a mutation touches; none touches all.
    touches: Option<&'a str>,
}

impl<'a> Call<'a> {
    pub(crate) fn read(operation: Operation, path: &'a str, deadline: Duration) -> Self {
        Call {
            operation,
            method: Method::GET,
            path,
            body: None,
            if_match: None,
            deadline,
            owned_for: Some(Duration::ZERO),
            changes: false,
            touches: None,
        }
    }

    pub(crate) fn mutation(operation: Operation, method: Method, path: &'a str, deadline: Duration) -> Self {
        Call { method, owned_for: Some(deadline), changes: true, ..Call::read(operation, path, deadline) }
    }

    pub(crate) fn body(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Says that no other resource than this one changes.
    pub(crate) fn touching(mut self, path: &'a str) -> Self {
        self.touches = Some(path);
        self
    }

    /// For a login, which changes no server: sent by whoever may read.
    pub(crate) fn harmless(mut self) -> Self {
        (self.owned_for, self.changes) = (Some(Duration::ZERO), false);
        self
    }

    /// For a logout, which only ends what is the sender's own: the fence is not asked.
    pub(crate) fn unfenced(mut self) -> Self {
        (self.owned_for, self.changes) = (None, false);
        self
    }

    fn mutates(&self) -> bool {
        self.method != Method::GET
    }
}

/// An answer with any status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    method: Method,
    path: String,
    proof: Option<Proof>,
}

impl Answer {
    /// An answer to a read that nobody sent; for fuzzing.
    pub(crate) fn of(status: StatusCode, body: &[u8]) -> Self {
        let (headers, body, path) = (HeaderMap::new(), Bytes::copy_from_slice(body), String::new());
        Answer { status, headers, body, method: Method::GET, path, proof: None }
    }

    pub(crate) fn error(&self) -> ErrorBody {
        ErrorBody::parse(&self.body)
    }

    pub(crate) fn is(&self, statuses: &[u16]) -> bool {
        statuses.contains(&self.status.as_u16())
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }

    /// The `Location`, when it is a path on this BMC.
    pub(crate) fn location(&self) -> Option<String> {
        json::path_of(self.headers.get(LOCATION)?.to_str().ok()?)
    }
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "called by the builder alone, which names each of them")]
    pub(crate) fn new(
        endpoint: Endpoint,
        credentials: Credentials,
        transport: Arc<dyn Transport>,
        choice: Choice,
        options: Options,
        observer: Arc<dyn Observer>,
        fence: Arc<dyn Fence>,
        keeper: Arc<dyn SessionKeeper>,
    ) -> Self {
        let seed = options.jitter_seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        Core {
            endpoint,
            credentials,
            choice,
            root: std::sync::Mutex::default(),
            expand: OnceCell::new(),
            recent: Recent::default(),
            no_expand: AtomicBool::new(false),
            session: Mutex::default(),
            keeper,
            transport,
            options,
            observer,
            fence,
            limits: Limits::default(),
            jitter: Jitter::new(seed),
            any_encoding: AtomicBool::new(false),
        }
    }

    /// The profile in force now.
    pub(crate) fn profile(&self) -> Arc<Profile> {
        self.choice.profile()
    }

    /// Lets go of what can be had again: see [`crate::Bmc::rest`].
    pub(crate) fn rest(&self) {
        self.recent.forget(None);
        self.root().take();
        self.transport.rest();
    }

    pub(crate) fn root(&self) -> std::sync::MutexGuard<'_, Option<Resource>> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What comes before an act: what was read a moment ago if it calls for the act, else a read. That there is
    /// nothing to do is believed on the wire only.
    pub(crate) async fn before(
        &self,
        operation: Operation,
        path: &str,
        calls: impl Fn(&Resource) -> bool,
    ) -> Result<Resource, RedfishError> {
        match self.recent.get(path).filter(calls) {
            Some(resource) => Ok(resource),
            None => self.read(operation, path).await,
        }
    }

    /// What was read a moment ago, else a read.
    pub(crate) async fn lately(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        match self.recent.get(path) {
            Some(resource) => Ok(resource),
            None => self.read(operation, path).await,
        }
    }

    /// Reads a resource, patiently.
    pub(crate) async fn read(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        self.read_with(operation, path, true).await
    }

    /// Reads a resource that needs no credentials, and sends none.
    pub(crate) async fn read_open(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        self.read_with(operation, path, false).await
    }

    async fn read_with(
        &self,
        operation: Operation,
        path: &str,
        proven: bool,
    ) -> Result<Resource, RedfishError> {
        let call = Call::read(operation, path, self.options.read_timeout);
        let started = Instant::now();
        let mut attempt = 1;
        loop {
            let sent = if proven {
                self.perform(&call, attempt).await
            } else {
                self.transmit(&call, None, attempt).await
            };
            let error = match sent.and_then(|answer| self.resource(operation, &answer)) {
                Ok(resource) => {
                    self.recent.remember(path, &resource);
                    return Ok(resource);
                }
                Err(error) => error,
            };
            let backoff = self.jitter.delay(self.options.backoff_base, self.options.backoff_cap, attempt - 1);
            let wait = error.retry_after().unwrap_or_default().max(backoff);
            let spent = started.elapsed() + wait;
            // A read that failed for a login is a login's failure, with its own rules.
            let own = error.operation == operation;
            if !own
                || matches!(error.kind, ErrorKind::CircuitOpen(_))
                || !error.is_transient()
                || attempt >= self.options.read_attempts
                || spent > self.options.read_budget
            {
                return Err(error);
            }
            tracing::debug!(
                operation = operation.as_str(),
                path,
                attempt,
                code = error.code(),
                "read repeated"
            );
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// One read without patience, whatever the status; for polling.
    pub(crate) async fn read_once(&self, operation: Operation, path: &str) -> Result<Answer, RedfishError> {
        self.perform(&Call::read(operation, path, self.options.read_timeout), 1).await
    }

    /// Understands an answer as a resource.
    pub(crate) fn resource(&self, operation: Operation, answer: &Answer) -> Result<Resource, RedfishError> {
        if !answer.status.is_success() {
            return Err(self.refusal(operation, answer, &[]));
        }
        let unusable = |detail: String, lasting| {
            let kind = ErrorKind::BadAnswer { detail, lasting };
            Err(RedfishError::new(operation, kind).at(&answer.method, &answer.path))
        };
        match json::object(&answer.body) {
            Ok(fields) if fields.contains_key("error") && !fields.contains_key("@odata.id") => {
                let said = ErrorBody::from_fields(&fields).sentence(&self.secrets_of(answer, &[]));
                unusable(format!("an error with status {}: {said}", answer.status.as_u16()), false)
            }
            Ok(fields) => Ok(Resource::new(&answer.path, &answer.headers, fields)),
            Err(what) => unusable(format!("{what} instead of a resource"), what.contains("too many")),
        }
    }

    /// The error an answer outside 2xx stands for. `secrets` are texts of the request that must not be shown.
    pub(crate) fn refusal(&self, operation: Operation, answer: &Answer, secrets: &[&str]) -> RedfishError {
        let secrets = self.secrets_of(answer, secrets);
        let body = answer.error();
        let mut kind = classify(answer.status, &body, answer.retry_after(), &secrets);
        let profile = self.profile();
        let busy: Vec<&str> = profile.busy_ids.iter().map(String::as_str).collect();
        if body.has_key(&busy) {
            kind = ErrorKind::Busy {
                status: answer.status.as_u16(),
                message_id: body.id(&secrets),
                message: body.sentence(&secrets),
                retry_after: answer.retry_after(),
            };
        }
        if answer.status.is_redirection() {
            kind = self.led_away(&answer.headers);
        }
        let mutated = answer.method != Method::GET;
        let unclear =
            matches!(kind, ErrorKind::Server { .. }) || answer.status == StatusCode::REQUEST_TIMEOUT;
        let mut error = RedfishError::new(operation, kind).at(&answer.method, &answer.path);
        error.maybe_applied = mutated && unclear;
        error
    }

    /// A redirect that is not followed: it leads to another host, or round in circles.
    fn led_away(&self, headers: &HeaderMap) -> ErrorKind {
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        let to = match Url::parse(location).ok().filter(|url| !self.endpoint.is_origin_of(url)) {
            Some(url) => format!("another host ({})", json::clip(url.host_str().unwrap_or("?"), 100)),
            None => "another page of its own".to_owned(),
        };
        let detail = format!("a redirect to {to}, which is not followed");
        ErrorKind::BadAnswer { detail, lasting: true }
    }

    /// What must not be shown of an answer: the password, what the request proved itself with, and the texts given.
    pub(crate) fn secrets_of<'a>(&'a self, answer: &'a Answer, given: &[&'a str]) -> Vec<&'a str> {
        let mut secrets = given.to_vec();
        secrets.push(self.credentials.password.expose_secret());
        match &answer.proof {
            Some(Proof::Token(handle)) => secrets.push(handle.token.expose_secret()),
            Some(Proof::Basic(value)) => {
                secrets.extend(value.to_str().iter().flat_map(|value| value.split(' ').nth(1)))
            }
            None => {}
        }
        secrets
    }

    /// Sends a call with credentials, once more with new ones after a 401 of a session token.
    pub(crate) async fn perform(&self, call: &Call<'_>, attempt: u32) -> Result<Answer, RedfishError> {
        let proof = self.proof().await?;
        let answer = self.transmit(call, Some(&proof), attempt).await?;
        if answer.status != StatusCode::UNAUTHORIZED || !self.proof_rejected(&proof).await {
            return Ok(answer);
        }
        let renewed = self.proof().await?;
        let answer = self.transmit(call, Some(&renewed), attempt).await?;
        if answer.status == StatusCode::UNAUTHORIZED && matches!(renewed, Proof::Basic(_)) {
            self.proof_rejected(&renewed).await;
        }
        if let Proof::Token(abandoned) = &proof
            && let Err(error) = self.delete_session_as(abandoned, &renewed).await
        {
            // Some say 401 while the session lives on, and it counts against the BMC's limit.
            tracing::debug!(path = abandoned.uri, code = error.code(), "session not deleted");
        }
        Ok(answer)
    }

    /// PATCHes a resource that was read before, under its ETag.
    pub(crate) async fn patch(
        &self,
        operation: Operation,
        resource: &Resource,
        body: &Value,
        deadline: Duration,
        touches: Option<&str>,
    ) -> Result<Answer, RedfishError> {
        let mut ladder = Tags::new(self.profile().if_match, resource.etag.clone());
        loop {
            let tag = ladder.current();
            let mut call = Call::mutation(operation, Method::PATCH, &resource.path, deadline).body(body);
            call.if_match = tag.as_deref();
            call.touches = touches;
            let answer = self.perform(&call, 1).await?;
            if !answer.is(&[412, 428]) {
                if answer.status.is_success() && ladder.was_refused_until_star() {
                    self.choice.learn(|learned| learned.etag_star = true);
                }
                return Ok(answer);
            }
            let fresh = self.read(operation, &resource.path).await?;
            if !ladder.advance(fresh.etag, answer.status) {
                return Ok(answer);
            }
        }
    }

    /// One request on the wire, with the few repetitions that are certain to be harmless.
    pub(crate) async fn transmit(
        &self,
        call: &Call<'_>,
        proof: Option<&Proof>,
        attempt: u32,
    ) -> Result<Answer, RedfishError> {
        let fail = |kind| RedfishError::new(call.operation, kind).at(&call.method, call.path);
        if let Some(resting) = self.limits.circuit_open_now() {
            return Err(fail(ErrorKind::CircuitOpen(resting)));
        }
        let _permit = self.limits.permit(call.mutates()).await.map_err(|_| fail(closed()))?;
        let mut path = call.path.to_owned();
        let mut hops = 0;
        loop {
            if call.owned_for.is_some_and(|owned_for| !self.fence.allows(owned_for)) {
                return Err(fail(ErrorKind::Fenced));
            }
            let identity = !self.any_encoding.load(Ordering::Relaxed);
            let request = self.request(call, &path, proof, identity).map_err(fail)?;
            if call.changes {
                self.recent.forget(call.touches);
            }
            let started = Instant::now();
            let passed = self.limits.pass(self.transport.send(request, call.deadline)).await;
            let sent = passed.map_err(|resting| fail(ErrorKind::CircuitOpen(resting)))?;
            let result = match &sent {
                Ok(response) => ExchangeResult::Status(response.status.as_u16()),
                Err(error) => ExchangeResult::Failed(error.kind),
            };
            let (operation, method, duration) = (call.operation, &call.method, started.elapsed());
            self.observer.exchange(Exchange { operation, method, path: &path, result, duration, attempt });
            let response = sent.map_err(|error| {
                let maybe_applied = call.mutates() && error.maybe_sent;
                let kind = match self.limits.resting() {
                    // That was one failure too many: it makes no sense to try again before the rest is over.
                    Some(resting) => ErrorKind::CircuitOpen(resting),
                    None => from_transport(error),
                };
                RedfishError { maybe_applied, ..fail(kind) }
            })?;
            if response.status == StatusCode::NOT_ACCEPTABLE && identity && !call.mutates() {
                self.any_encoding.store(true, Ordering::Relaxed);
                continue;
            }
            if let Some(next) = self.redirect(call, &path, response.status, &response.headers)
                && hops < MAX_HOPS
            {
                (path, hops) = (next, hops + 1);
                continue;
            }
            let (method, proof) = (call.method.clone(), proof.cloned());
            let (status, headers, body) = (response.status, response.headers, response.body);
            return Ok(Answer { status, headers, body, method, path, proof });
        }
    }

    fn request(
        &self,
        call: &Call<'_>,
        path: &str,
        proof: Option<&Proof>,
        identity: bool,
    ) -> Result<Request, ErrorKind> {
        let unusable =
            |what: &str| ErrorKind::Config { detail: format!("{what} does not fit into a header") };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ODATA_VERSION, HeaderValue::from_static("4.0"));
        if identity {
            // Compression turns ETags weak on some BMCs.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(tag) = call.if_match {
            headers.insert(IF_MATCH, HeaderValue::try_from(tag).map_err(|_| unusable("the ETag"))?);
        }
        match proof {
            Some(Proof::Token(handle)) => {
                let token = handle.token.expose_secret();
                let mut value = HeaderValue::try_from(token).map_err(|_| unusable("the session token"))?;
                value.set_sensitive(true);
                headers.insert(X_AUTH_TOKEN, value);
            }
            Some(Proof::Basic(value)) => {
                headers.insert(AUTHORIZATION, value.clone());
            }
            None => {}
        }
        let body = call.body.map(|body| Bytes::from(body.to_string()));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(Request { method: call.method.clone(), path: path.to_owned(), headers, body })
    }

    /// Where an answer sends a request on: only within this origin, and only without changing its meaning.
    fn redirect(
        &self,
        call: &Call<'_>,
        path: &str,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<String> {
        let location = headers.get(LOCATION).filter(|_| status.is_redirection())?.to_str().ok()?;
        if !location.starts_with('/') && !self.endpoint.is_origin_of(&Url::parse(location).ok()?) {
            return None;
        }
        let next = json::path_of(location)?;
        let slash_only = !call.mutates() && next.trim_end_matches('/') == path.trim_end_matches('/');
        let keeps_method = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        (next != path && (keeps_method || slash_only)).then_some(next)
    }
}

fn closed() -> ErrorKind {
    // The semaphores live as long as the core and are never closed; the type still asks for an answer.
    ErrorKind::Config { detail: "the client was shut down".to_owned() }
}
