//! Sends one upload: once, with credentials, under the fence, within a deadline that grows with the size.
//!
//! ```text
//!   credentials -> mutation permit -> fence -> transport.upload -> response
//!        401, 307, 308      not followed and not repeated: the stream is used up
//!        no response        every byte handed over? maybe applied : certainly not
//! ```

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, IF_MATCH};
use http::{HeaderValue, Method, StatusCode};
use tokio::io::AsyncRead;
use tokio::time::Instant;

use crate::credentials::RequestAuth;
use crate::error::{ErrorKind, Operation, RedfishError, from_transport};
use crate::exchange::{BmcResponse, Call, Core};
use crate::observe::{Exchange, ExchangeResult};
use crate::transport::TransportError;
use crate::upload::{PieceFence, UploadBody, UploadProgress};

const OPERATION: Operation = Operation::Update;
/// The time for which the sender must own the server whenever it sends a piece.
const OWNED_FOR_PIECE: Duration = Duration::from_secs(30);
/// The part of the deadline that does not depend on the size.
const BASE_DEADLINE: Duration = Duration::from_secs(60);
/// The slowest upload that is waited for, in bytes per second; BMCs write what they receive to flash.
const SLOWEST: u64 = 10_000;

/// The deadline of an upload of this size in bytes: a minute, and a second for each 10 kB.
pub fn upload_deadline(bytes: u64) -> Duration {
    BASE_DEADLINE + Duration::from_secs(bytes / SLOWEST)
}

/// One upload.
pub(crate) struct Upload {
    pub(crate) target: String,
    pub(crate) head: Bytes,
    pub(crate) tail: Bytes,
    pub(crate) content_type: String,
    pub(crate) if_match: Option<String>,
    pub(crate) cookie: Option<HeaderValue>,
    pub(crate) image: Box<dyn AsyncRead + Send + Sync + Unpin>,
    pub(crate) length: u64,
}

impl Core {
    /// Sends the upload. An error without `maybe_applied` is certain: the BMC has no complete image. A 401 is an error here when a
    /// new login may succeed, and a response when the BMC refused the credentials.
    pub(crate) async fn upload(
        &self,
        upload: Upload,
        auth: &RequestAuth,
        progress: &UploadProgress,
    ) -> Result<BmcResponse, RedfishError> {
        let fail = |kind| RedfishError::new(OPERATION, kind).at(&Method::POST, &upload.target);
        let config = |what: &str| ErrorKind::Config { detail: format!("{what} does not fit into a header") };
        if let Some(open) = self.limits.circuit_open_now() {
            return Err(fail(ErrorKind::CircuitOpen(open)));
        }
        let shut = |_| fail(ErrorKind::Config { detail: "the client was shut down".to_owned() });
        let _permit = self.limits.upload_permit().await.map_err(shut)?;
        if !self.fence.allows(OWNED_FOR_PIECE) {
            return Err(fail(ErrorKind::Fenced));
        }
        let deadline = upload_deadline(upload.length);
        let call = Call::mutation(OPERATION, Method::POST, &upload.target, deadline);
        let identity = !self.any_encoding.load(std::sync::atomic::Ordering::Relaxed);
        let mut request = self.request(&call, &upload.target, Some(auth), identity).map_err(fail)?;
        let kind =
            HeaderValue::try_from(&upload.content_type).map_err(|_| fail(config("the content type")))?;
        request.headers.insert(CONTENT_TYPE, kind);
        if let Some(tag) = &upload.if_match {
            let tag = HeaderValue::try_from(tag).map_err(|_| fail(config("the ETag")))?;
            request.headers.insert(IF_MATCH, tag);
        }
        if let Some(cookie) = upload.cookie {
            request.headers.insert(COOKIE, cookie);
        }
        let fence = self.fence.clone();
        let fence: PieceFence = Box::new(move || fence.allows(OWNED_FOR_PIECE));
        let body = UploadBody::new(
            upload.head,
            upload.image,
            upload.length,
            upload.tail,
            progress.clone(),
            Some(fence),
        );
        self.cache.remove(None);
        let started = Instant::now();
        let passed = self.limits.pass(self.transport.upload(request, body, deadline)).await;
        let sent = passed.map_err(|open| fail(ErrorKind::CircuitOpen(open)))?;
        let result = match &sent {
            Ok(response) => ExchangeResult::Status(response.status.as_u16()),
            Err(error) => ExchangeResult::Failed(error.kind),
        };
        let (method, path) = (&Method::POST, upload.target.as_str());
        let duration = started.elapsed();
        self.observer.exchange(Exchange { operation: OPERATION, method, path, result, duration, attempt: 1 });
        let response = sent.map_err(|error| RedfishError {
            maybe_applied: error.maybe_sent && progress.is_complete(),
            ..fail(broken_off(error, progress))
        })?;
        if response.status == StatusCode::UNAUTHORIZED && self.auth_rejected(auth, &response.headers).await {
            // The credential ended between the last read and the upload; a new one may succeed. An image is not sent again here.
            let message = "the BMC asked for a new login before it took the upload".to_owned();
            let kind = ErrorKind::Busy { status: 401, message_id: None, message, retry_after: None };
            return Err(fail(kind));
        }
        let (status, headers, body) = (response.status, response.headers, response.body);
        let (method, path) = (Method::POST, upload.target);
        Ok(BmcResponse { status, headers, body, method, path, auth: Some(auth.clone()) })
    }

    /// The error for an upload that was not accepted. A 5xx after the last byte leaves open whether it was: some BMCs return
    /// 503 although they took the image.
    pub(crate) fn upload_refused(
        &self,
        response: &BmcResponse,
        complete: bool,
        secrets: &[&str],
    ) -> RedfishError {
        let mut error = self.refusal(OPERATION, response, secrets);
        let unclear = response.status.is_server_error() || response.status == StatusCode::REQUEST_TIMEOUT;
        error.maybe_applied = unclear && complete;
        error
    }
}

/// The kind of a failure without response: the reader or the fence may have ended the body.
fn broken_off(error: TransportError, progress: &UploadProgress) -> ErrorKind {
    if progress.is_fenced() {
        return ErrorKind::Fenced;
    }
    if progress.is_unreadable() {
        let detail = format!("the image cannot be read to its announced length ({})", error.detail);
        return ErrorKind::Config { detail };
    }
    from_transport(error)
}

/// The cookie with the session token, for BMCs that demand it with an upload.
pub(crate) fn session_cookie(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("sessionKey={token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_of_an_upload_grows_with_its_size() {
        let seconds = |bytes| upload_deadline(bytes).as_secs();
        assert_eq!([0, 9_999, 10_000].map(seconds), [60, 60, 61], "a minute, and a second for each 10 kB");
        assert_eq!(seconds(64 << 20), 60 + 6_710, "64 MB have almost two hours");
        assert!(seconds(128 << 20) - seconds(64 << 20) > 6_700, "twice the size has twice the time");
        // No size overflows.
        assert!(upload_deadline(u64::MAX) > Duration::from_secs(u64::MAX / 20_000));
    }
}
