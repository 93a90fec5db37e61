//! The caller of a worker route: a token of a worker, over TLS or on this machine, and the name of its process. It is checked
//! before a byte of the body is read.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::super::Api;
use super::super::error::{ApiError, too_many};
use super::super::error_code::ErrorCode;
use super::super::extract::peer;
use super::read;
use super::roster::Entry;
use access::auth::{Standing, is_worker_token, prove};
use engine::RemoteQueues;
use model::Time;
use secrets::token_hash;
use store::StoredWorkerToken;
use worker::messages::WORKER_HEADER;

/// How exact the last use of a token is.
const USE_RESOLUTION: Duration = Duration::from_secs(600);
/// The longest name of a process.
const MAX_PROCESS: usize = 96;

/// A worker with a valid token.
pub(super) struct Caller {
    pub(super) token: StoredWorkerToken,
    pub(super) process: String,
}

/// A worker that has said hello to this controller.
pub(super) struct KnownWorker {
    pub(super) caller: Caller,
    pub(super) entry: Arc<Entry>,
    /// Counts the request until it has ended, with its response.
    pub(super) place: OwnedSemaphorePermit,
}

/// A message that may be long, such as a report. Its place is kept until it has been handled.
pub(super) struct Long<T> {
    pub(super) message: T,
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let client = peer(parts);
        let over_tls = parts.extensions.get::<registry::OverTls>().is_some();
        let on_this_machine = is_loopback(client) && is_direct(&parts.headers);
        if !over_tls && !on_this_machine {
            let message = "workers are served over HTTPS only, because BMC passwords are in the responses; use the https address \
                           of this controller (CONTROLLER_HTTPS_ADDR)";
            return Err(ApiError::new(ErrorCode::HttpsRequired, message));
        }
        let now = api.now();
        let authorization = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let text = authorization.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
        let token = match is_worker_token(text) {
            true => api.store().worker_token(&token_hash(text)).await?,
            false => None,
        };
        let refused = |message: String| {
            ApiError::new(ErrorCode::Unauthorized, message)
                .header(header::WWW_AUTHENTICATE, r#"Bearer realm="shoal-worker""#)
        };
        let Some(token) = token else {
            // Only here: a worker with its token is not refused because of failures of another caller behind its address.
            let failures = &api.workers.failures;
            failures.check(client, now.timestamp()).map_err(|limited| too_many(limited.retry_after))?;
            failures.record_failure(client, now.timestamp());
            return Err(refused(
                "this is no token of a worker, or it was revoked: an administrator makes one with `shoal worker token create \
                 NAME --queue QUEUE`"
                    .to_owned(),
            ));
        };
        if token.expires_at.is_some_and(|end| end <= now) {
            return Err(refused(format!(
                "the token {} of the worker has expired: an administrator makes another one with `shoal worker token create`",
                token.name
            )));
        }
        prove(Standing::Known);
        let process =
            parts.headers.get(WORKER_HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if process.is_empty() || process.len() > MAX_PROCESS || !process.bytes().all(plain) {
            let message = format!(
                "the header {WORKER_HEADER} names the process of the worker: 1 to {MAX_PROCESS} letters, digits and characters of -._"
            );
            return Err(ApiError::new(ErrorCode::ValidationError, message));
        }
        let process = process.to_owned();
        used(api, &token, now);
        Ok(Self { token, process })
    }
}

impl FromRequestParts<Api> for KnownWorker {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, api).await?;
        let entry = api.workers.seen(&caller.token.id, &caller.process).ok_or_else(|| {
            let message = "this controller does not know the worker since its start, or has new authorities of BMCs for it; the worker says hello, then repeats the request";
            ApiError::new(ErrorCode::ConflictWorkerHello, message)
        })?;
        let place = entry.request()?;
        Ok(Self { caller, entry, place })
    }
}

impl KnownWorker {
    /// Reads a message that may be long. The processes of a token read few of them at the same time.
    pub(super) async fn long<T: DeserializeOwned>(&self, request: Request) -> Result<Long<T>, ApiError> {
        let place = self.entry.long_message().await;
        Ok(Long { message: read(request, engine::MAX_MESSAGE).await?, place })
    }

    /// The commands of the worker, for the queues that it serves and its token still allows.
    pub(super) fn queues(&self, api: &Api) -> Result<RemoteQueues, ApiError> {
        let queues = self.entry.queues.intersection(&self.caller.token.queues).cloned().collect();
        let name = format!("{}/{}", self.caller.token.name, self.caller.process);
        Ok(api.engine.remote_queues(&name, &queues)?)
    }
}

fn is_loopback(client: IpAddr) -> bool {
    client.to_canonical().is_loopback()
}

/// Whether no proxy passed the request on. The connection of a proxy comes from this machine, and the client does not.
fn is_direct(headers: &HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "via"].iter().all(|name| !headers.contains_key(*name))
}

/// Records the use of a token. Not awaited: a request must not wait for the disk because its token was used.
fn used(api: &Api, token: &StoredWorkerToken, now: Time) {
    if token.last_used_at.is_some_and(|last| now.since(last) < USE_RESOLUTION) {
        return;
    }
    let (store, id) = (api.store().clone(), token.id.clone());
    tokio::spawn(async move {
        if let Err(error) = store.worker_token_used(&id, now).await {
            let error = model::error_chain(&error);
            tracing::warn!(%error, "the last use of the token of a worker could not be stored");
        }
    });
}
