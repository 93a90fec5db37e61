//! One logical request of an operation, and the HTTP requests it takes.
//!
//! ```text
//!   read:      transmit, again after a transient failure (number, total time and Retry-After bounded)
//!   perform:   authenticate -> transmit -> 401? -> authenticate again -> transmit, once; the rejected session is deleted
//!   patch:     transmit with ETag -> 412/428? -> read again -> next of [etag, strong etag, *, none]
//!   transmit:  permits -> fence -> send -> 307/308 on the same origin; a read is repeated once after 406
//! ```
//!
//! A mutation is repeated only after a response that proves it was not carried out (307, 308, 401, 412, 428).
//! A transport failure of a mutation is returned to the caller. Trying another body after a refusal is left to
//! the operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, IF_MATCH, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, sleep};
use url::Url;

use crate::credentials::{BmcCredentials, RequestAuth, Session};
use crate::endpoint::Endpoint;
use crate::error::{ErrorKind, Operation, RedfishError, classify, from_transport};
use crate::etag::IfMatchFallback;
use crate::json::{self, Resource};
use crate::limits::RequestLimits;
use crate::message::ErrorBody;
use crate::observe::{Exchange, ExchangeResult, Fence, Observer, SessionKeeper};
use crate::options::ClientOptions;
use crate::profile::{ActiveProfile, Profile};
use crate::resource_cache::ResourceCache;
use crate::retry::{Jitter, retry_after};
use crate::transport::{Request, Transport};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const ODATA_VERSION: HeaderName = HeaderName::from_static("odata-version");
/// The time for which a read of the system proves which machine has the address: leases and restarts of BMCs take minutes.
const CHECK_HOLDS: Duration = Duration::from_secs(300);
/// The number of redirects that one request follows.
const MAX_HOPS: usize = 2;

/// State shared by all operations of one handle.
pub(crate) struct Core {
    pub(crate) endpoint: Endpoint,
    pub(crate) credentials: BmcCredentials,
    pub(crate) active_profile: ActiveProfile,
    /// The service root, until idle resources are released.
    pub(crate) root: parking_lot::Mutex<Option<Resource>>,
    /// The `$expand` query the service root offers; set once the root was read.
    pub(crate) expand: OnceCell<Option<&'static str>>,
    /// Resources read within the last seconds.
    pub(crate) cache: ResourceCache,
    /// `$expand` was offered and failed.
    pub(crate) no_expand: AtomicBool,
    pub(crate) session: Mutex<Session>,
    pub(crate) keeper: Arc<dyn SessionKeeper>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) options: ClientOptions,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) fence: Arc<dyn Fence>,
    /// Limits of requests; shared with other handles of the same BMC.
    pub(crate) limits: RequestLimits,
    jitter: Jitter,
    /// The time at which the BMC last showed the machine that was discovered.
    checked_at: parking_lot::Mutex<Option<Instant>>,
    /// The BMC returned 406 for `Accept-Encoding: identity`.
    pub(crate) any_encoding: AtomicBool,
}

/// One request of an operation, before authentication.
pub(crate) struct Call<'a> {
    pub(crate) operation: Operation,
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    if_match: Option<&'a str>,
    deadline: Duration,
    /// The time from now for which the sender must still own the server; `None` does not ask the fence.
    owned_for: Option<Duration>,
    /// Whether the request changes a resource of the server.
    changes: bool,
    /// The only resource a mutation changes; `None` means that any resource may change.
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

    /// Declares that the mutation changes no resource other than `path`.
    pub(crate) fn touching(mut self, path: &'a str) -> Self {
        self.touches = Some(path);
        self
    }

    /// Marks a login: it changes no server, so the fence treats it as a read.
    pub(crate) fn for_login(mut self) -> Self {
        (self.owned_for, self.changes) = (Some(Duration::ZERO), false);
        self
    }

    /// Marks a logout: it ends only the sender's session, so the fence is not asked.
    pub(crate) fn unfenced(mut self) -> Self {
        (self.owned_for, self.changes) = (None, false);
        self
    }

    fn mutates(&self) -> bool {
        self.method != Method::GET
    }
}

/// Response of the BMC with any status, with the request it belongs to.
pub(crate) struct BmcResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) auth: Option<RequestAuth>,
}

impl BmcResponse {
    /// Builds a response to a read that was not sent; for fuzzing.
    pub(crate) fn of(status: StatusCode, body: &[u8]) -> Self {
        let (headers, body, path) = (HeaderMap::new(), Bytes::copy_from_slice(body), String::new());
        BmcResponse { status, headers, body, method: Method::GET, path, auth: None }
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

    /// The `Location` header, when it is a path on this BMC.
    pub(crate) fn location(&self) -> Option<String> {
        json::path_of(self.headers.get(LOCATION)?.to_str().ok()?)
    }
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "only the builder calls it, with a name for each argument")]
    pub(crate) fn new(
        endpoint: Endpoint,
        credentials: BmcCredentials,
        transport: Arc<dyn Transport>,
        active_profile: ActiveProfile,
        options: ClientOptions,
        observer: Arc<dyn Observer>,
        fence: Arc<dyn Fence>,
        keeper: Arc<dyn SessionKeeper>,
    ) -> Self {
        let seed = options.jitter_seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        Core {
            endpoint,
            credentials,
            active_profile,
            root: parking_lot::Mutex::default(),
            expand: OnceCell::new(),
            cache: ResourceCache::default(),
            no_expand: AtomicBool::new(false),
            session: Mutex::default(),
            keeper,
            transport,
            options,
            observer,
            fence,
            limits: RequestLimits::default(),
            jitter: Jitter::new(seed),
            checked_at: parking_lot::Mutex::default(),
            any_encoding: AtomicBool::new(false),
        }
    }

    /// The profile in force now.
    pub(crate) fn profile(&self) -> Arc<Profile> {
        self.active_profile.profile()
    }

    /// Notes that a read has shown the machine that was discovered.
    pub(crate) fn note_checked(&self) {
        *self.checked_at.lock() = Some(Instant::now());
    }

    /// Whether the BMC has shown the discovered machine within [`CHECK_HOLDS`].
    pub(crate) fn is_checked(&self) -> bool {
        self.checked_at.lock().is_some_and(|at| at.elapsed() < CHECK_HOLDS)
    }

    /// Releases what can be read or opened again: see [`crate::Bmc::release_idle`].
    pub(crate) fn release_idle(&self) {
        self.cache.remove(None);
        self.root.lock().take();
        self.transport.release_idle();
    }

    /// Reads a resource before a mutation. A cached resource is used only if `needs_change` holds for it; the
    /// conclusion that there is nothing to do is always drawn from a read on the wire.
    pub(crate) async fn read_for_update(
        &self,
        operation: Operation,
        path: &str,
        needs_change: impl Fn(&Resource) -> bool,
    ) -> Result<Resource, RedfishError> {
        match self.cache.get(path).filter(needs_change) {
            Some(resource) => Ok(resource),
            None => self.read(operation, path).await,
        }
    }

    /// Returns the cached resource, or reads it.
    pub(crate) async fn cached(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        match self.cache.get(path) {
            Some(resource) => Ok(resource),
            None => self.read(operation, path).await,
        }
    }

    /// Reads a resource, with authentication and retries.
    pub(crate) async fn read(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        self.read_with(operation, path, true).await
    }

    /// Reads a resource without sending credentials, with retries.
    pub(crate) async fn read_open(&self, operation: Operation, path: &str) -> Result<Resource, RedfishError> {
        self.read_with(operation, path, false).await
    }

    async fn read_with(
        &self,
        operation: Operation,
        path: &str,
        authenticated: bool,
    ) -> Result<Resource, RedfishError> {
        let call = Call::read(operation, path, self.options.read_timeout);
        let started = Instant::now();
        let mut attempt = 1;
        loop {
            let sent = if authenticated {
                self.perform(&call, attempt).await
            } else {
                self.transmit(&call, None, attempt).await
            };
            let error = match sent.and_then(|response| self.resource(operation, &response)) {
                Ok(resource) => {
                    self.cache.insert(path, &resource);
                    return Ok(resource);
                }
                Err(error) => error,
            };
            let backoff = self.jitter.delay(self.options.backoff_base, self.options.backoff_cap, attempt - 1);
            let wait = error.retry_after().unwrap_or_default().max(backoff);
            let spent = started.elapsed() + wait;
            // The login of this read may have failed instead; a failed login is not retried here.
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
                "read failed, retrying"
            );
            sleep(wait).await;
            attempt += 1;
        }
    }

    /// Sends one read without retries and returns the response with any status; for polling.
    pub(crate) async fn read_once(
        &self,
        operation: Operation,
        path: &str,
    ) -> Result<BmcResponse, RedfishError> {
        self.perform(&Call::read(operation, path, self.options.read_timeout), 1).await
    }

    /// Parses a response as a resource.
    pub(crate) fn resource(
        &self,
        operation: Operation,
        response: &BmcResponse,
    ) -> Result<Resource, RedfishError> {
        if !response.status.is_success() {
            return Err(self.refusal(operation, response, &[]));
        }
        let unusable = |detail: String, lasting| {
            let kind = ErrorKind::BadAnswer { detail, lasting };
            Err(RedfishError::new(operation, kind).at(&response.method, &response.path))
        };
        match json::object(&response.body) {
            Ok(fields) if fields.contains_key("error") && !fields.contains_key("@odata.id") => {
                let message = ErrorBody::from_fields(&fields).message_text(&self.secrets_of(response, &[]));
                unusable(format!("an error with status {}: {message}", response.status.as_u16()), false)
            }
            Ok(fields) => Ok(Resource::new(&response.path, &response.headers, fields)),
            Err(what) => unusable(format!("{what} instead of a resource"), what.contains("too many")),
        }
    }

    /// Returns the error for a response outside 2xx. `secrets` are texts of the request that must not be shown.
    pub(crate) fn refusal(
        &self,
        operation: Operation,
        response: &BmcResponse,
        secrets: &[&str],
    ) -> RedfishError {
        let secrets = self.secrets_of(response, secrets);
        let body = response.error();
        let mut kind = classify(response.status, &body, response.retry_after(), &secrets);
        let profile = self.profile();
        let busy: Vec<&str> = profile.busy_ids.iter().map(String::as_str).collect();
        if body.has_key(&busy) {
            kind = ErrorKind::Busy {
                status: response.status.as_u16(),
                message_id: body.id(&secrets),
                message: body.message_text(&secrets),
                retry_after: response.retry_after(),
            };
        }
        if response.status.is_redirection() {
            kind = self.rejected_redirect(&response.headers);
        }
        let mutated = response.method != Method::GET;
        let unclear =
            matches!(kind, ErrorKind::Server { .. }) || response.status == StatusCode::REQUEST_TIMEOUT;
        let mut error = RedfishError::new(operation, kind).at(&response.method, &response.path);
        error.maybe_applied = mutated && unclear;
        error
    }

    /// Describes a redirect that is not followed: it leads to another host, or in a loop.
    fn rejected_redirect(&self, headers: &HeaderMap) -> ErrorKind {
        let location = headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        let to = match Url::parse(location).ok().filter(|url| !self.endpoint.is_origin_of(url)) {
            Some(url) => format!("another host ({})", json::clip(url.host_str().unwrap_or("?"), 100)),
            None => "another page of this BMC".to_owned(),
        };
        let detail = format!("a redirect to {to}, which is not followed");
        ErrorKind::BadAnswer { detail, lasting: true }
    }

    /// Texts that must not be shown from a response: the password, the credential of the request, and `given`.
    pub(crate) fn secrets_of<'a>(&'a self, response: &'a BmcResponse, given: &[&'a str]) -> Vec<&'a str> {
        let mut secrets = given.to_vec();
        secrets.push(self.credentials.password.expose_secret());
        match &response.auth {
            Some(RequestAuth::Token(handle)) => secrets.push(handle.token.expose_secret()),
            Some(RequestAuth::Basic(value)) => {
                secrets.extend(value.to_str().iter().flat_map(|value| value.split(' ').nth(1)))
            }
            None => {}
        }
        secrets
    }

    /// Sends a call with credentials; after a 401 for a session token, sends it once more with a new token.
    pub(crate) async fn perform(&self, call: &Call<'_>, attempt: u32) -> Result<BmcResponse, RedfishError> {
        let auth = self.request_auth().await?;
        let response = self.transmit(call, Some(&auth), attempt).await?;
        if response.status != StatusCode::UNAUTHORIZED || !self.auth_rejected(&auth, &response.headers).await
        {
            return Ok(response);
        }
        let renewed = self.request_auth().await?;
        let response = self.transmit(call, Some(&renewed), attempt).await?;
        if response.status == StatusCode::UNAUTHORIZED && matches!(renewed, RequestAuth::Basic(_)) {
            self.auth_rejected(&renewed, &response.headers).await;
        }
        if let RequestAuth::Token(rejected) = &auth
            && let Err(error) = self.delete_session_as(rejected, &renewed).await
        {
            // Some BMCs return 401 while the session still exists; it would count against their session limit.
            tracing::debug!(path = rejected.uri, code = error.code(), "session not deleted");
        }
        Ok(response)
    }

    /// Sends a PATCH of a resource that was read before, with its ETag in `If-Match`.
    pub(crate) async fn patch(
        &self,
        operation: Operation,
        resource: &Resource,
        body: &Value,
        deadline: Duration,
        touches: Option<&str>,
    ) -> Result<BmcResponse, RedfishError> {
        let mut fallback = IfMatchFallback::new(self.profile().if_match, resource.etag.clone());
        loop {
            let tag = fallback.current();
            let mut call = Call::mutation(operation, Method::PATCH, &resource.path, deadline).body(body);
            call.if_match = tag.as_deref();
            call.touches = touches;
            let response = self.perform(&call, 1).await?;
            if !response.is(&[412, 428]) {
                if response.status.is_success() && fallback.was_refused_until_star() {
                    self.active_profile.learn(|learned| learned.etag_star = true);
                }
                return Ok(response);
            }
            let fresh = self.read(operation, &resource.path).await?;
            if !fallback.advance(fresh.etag, response.status) {
                return Ok(response);
            }
        }
    }

    /// Sends one request, and repeats it only where the first one certainly had no effect.
    pub(crate) async fn transmit(
        &self,
        call: &Call<'_>,
        auth: Option<&RequestAuth>,
        attempt: u32,
    ) -> Result<BmcResponse, RedfishError> {
        let fail = |kind| RedfishError::new(call.operation, kind).at(&call.method, call.path);
        if let Some(open) = self.limits.circuit_open_now() {
            return Err(fail(ErrorKind::CircuitOpen(open)));
        }
        let _permit = self.limits.permit(call.mutates()).await.map_err(|_| fail(closed()))?;
        let mut path = call.path.to_owned();
        let mut hops = 0;
        loop {
            if call.owned_for.is_some_and(|owned_for| !self.fence.allows(owned_for)) {
                return Err(fail(ErrorKind::Fenced));
            }
            let identity = !self.any_encoding.load(Ordering::Relaxed);
            let request = self.request(call, &path, auth, identity).map_err(fail)?;
            if call.changes {
                self.cache.remove(call.touches);
            }
            let started = Instant::now();
            let passed = self.limits.pass(self.transport.send(request, call.deadline)).await;
            let sent = passed.map_err(|open| fail(ErrorKind::CircuitOpen(open)))?;
            let result = match &sent {
                Ok(response) => ExchangeResult::Status(response.status.as_u16()),
                Err(error) => ExchangeResult::Failed(error.kind),
            };
            let (operation, method, duration) = (call.operation, &call.method, started.elapsed());
            self.observer.exchange(Exchange { operation, method, path: &path, result, duration, attempt });
            let response = sent.map_err(|error| {
                let maybe_applied = call.mutates() && error.maybe_sent;
                let kind = match self.limits.circuit_open() {
                    // This failure opened the circuit: a retry cannot succeed before the open time has passed.
                    Some(open) => ErrorKind::CircuitOpen(open),
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
            let (method, auth) = (call.method.clone(), auth.cloned());
            let (status, headers, body) = (response.status, response.headers, response.body);
            return Ok(BmcResponse { status, headers, body, method, path, auth });
        }
    }

    pub(crate) fn request(
        &self,
        call: &Call<'_>,
        path: &str,
        auth: Option<&RequestAuth>,
        identity: bool,
    ) -> Result<Request, ErrorKind> {
        let unusable =
            |what: &str| ErrorKind::Config { detail: format!("{what} does not fit into a header") };
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ODATA_VERSION, HeaderValue::from_static("4.0"));
        if identity {
            // With compression some BMCs send weak ETags.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if let Some(tag) = call.if_match {
            headers.insert(IF_MATCH, HeaderValue::try_from(tag).map_err(|_| unusable("the ETag"))?);
        }
        match auth {
            Some(RequestAuth::Token(handle)) => {
                let token = handle.token.expose_secret();
                let mut value = HeaderValue::try_from(token).map_err(|_| unusable("the session token"))?;
                value.set_sensitive(true);
                headers.insert(X_AUTH_TOKEN, value);
            }
            Some(RequestAuth::Basic(value)) => {
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

    /// Returns the path a redirect leads to, if it is on this origin and keeps method and body.
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
    // The semaphores live as long as the core and are never closed; the type still requires an error.
    ErrorKind::Config { detail: "the client was shut down".to_owned() }
}
