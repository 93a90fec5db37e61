//! Pushes a file to the registry of a controller, from the disk to the socket.
//!
//! ```text
//!   HEAD blobs/DIGEST ── 200 ──> nothing to do
//!        └── 404 ──> POST blobs/uploads/ ── 202, Location ──> PUT Location?digest=DIGEST, the file ── 201 ──> stored and verified
//! ```
//!
//! Invariants: the token is sent to the origin of `--url` only; the deadline grows with the file; the registry stores nothing whose bytes have
//! another digest.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;
use url::Url;

use super::super::output::Output;
use super::super::progress::Progress;
use super::{CliError, Client, REQUEST_TIMEOUT, bounded, causes};

/// The pause between two reports of the sent bytes.
const REPORTS: Duration = Duration::from_millis(250);
/// The bytes that are read from the file at once.
const PIECE: usize = 256 << 10;
/// The slowest upload that is waited for.
const MIN_BYTES_PER_SECOND: u64 = 128 << 10;

impl Client {
    /// Pushes a file as a blob, unless the repository has it; returns whether bytes were sent.
    pub(in crate::cli) async fn push_blob(
        &self,
        repository: &str,
        file: &Path,
        (digest, size): (&str, u64),
        output: &mut Output<'_>,
    ) -> Result<bool, CliError> {
        let there = self.send_raw(self.v2(Method::HEAD, &format!("{repository}/blobs/{digest}"))).await?;
        if there.status().is_success() {
            return Ok(false);
        }
        let begun = self.v2(Method::POST, &format!("{repository}/blobs/uploads/")).header(CONTENT_LENGTH, 0);
        let begun = self.accepted(self.send_raw(begun).await?, StatusCode::ACCEPTED).await?;
        let location = begun.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let mut place = self.upload_place(location)?;
        place.query_pairs_mut().append_pair("digest", digest);
        let read = |source| CliError::Input { path: file.to_owned(), source };
        let body = tokio::fs::File::open(file).await.map_err(read)?;
        let sent = Arc::new(AtomicU64::new(0));
        let deadline = REQUEST_TIMEOUT * 4 + Duration::from_secs(size / MIN_BYTES_PER_SECOND);
        let put = self.authorized(self.http.request(Method::PUT, place));
        let put = put.header(CONTENT_TYPE, "application/octet-stream").header(CONTENT_LENGTH, size);
        let body = Body::wrap_stream(counted(body, Arc::clone(&sent)));
        let mut progress = Progress::new(format!("pushing {}", file.display()), Some(size));
        let mut response = pin!(self.send_raw(put.timeout(deadline).body(body)));
        let response = loop {
            tokio::select! {
                biased;
                response = &mut response => break response,
                () = sleep(REPORTS) => progress.report(sent.load(Ordering::Relaxed), output.err),
            }
        };
        progress.end(output.err);
        let response = response?;
        self.accepted(response, StatusCode::CREATED).await?;
        Ok(true)
    }

    /// A request below `/v2/`.
    fn v2(&self, method: Method, path: &str) -> RequestBuilder {
        let mut url = self.base.clone();
        // A URL with a host always has segments; `base` checks the host.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v2").extend(path.split('/'));
        }
        self.authorized(self.http.request(method, url))
    }

    pub(super) fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization.clone()),
            None => request,
        }
    }

    /// The place of an upload session, on the controller itself.
    fn upload_place(&self, location: Option<&str>) -> Result<Url, CliError> {
        let unexpected = |reason: &str| CliError::UnexpectedResponse {
            url: self.base.to_string(),
            reason: reason.to_owned(),
        };
        let location = location.ok_or_else(|| unexpected("the upload has no Location"))?;
        let place =
            self.base.join(location).map_err(|_| unexpected("the Location of the upload is no URL"))?;
        if place.origin() != self.base.origin() {
            return Err(unexpected(
                "the Location of the upload is on another server; set CONTROLLER_PUBLIC_URL to --url",
            ));
        }
        Ok(place)
    }

    async fn send_raw(&self, request: RequestBuilder) -> Result<Response, CliError> {
        request.send().await.map_err(|error| CliError::Unreachable {
            url: self.base.to_string(),
            reason: causes(&error.without_url()),
            mutating: true,
        })
    }

    async fn accepted(&self, response: Response, wanted: StatusCode) -> Result<Response, CliError> {
        let status = response.status();
        if status == wanted {
            return Ok(response);
        }
        let body = bounded(response).await.ok().flatten().unwrap_or_default();
        // The registry has the error format of the OCI distribution specification.
        let text = String::from_utf8_lossy(&body).into_owned();
        let document: Option<Value> = serde_json::from_slice(&body).ok();
        let first = document.as_ref().and_then(|body| body.pointer("/errors/0/message")?.as_str());
        let body =
            Value::String(first.map_or(text, |message| format!("the registry refused the push: {message}")));
        Err(CliError::Refused { status: status.as_u16(), body })
    }
}

/// The bytes of a file, counted when the connection takes them.
fn counted(
    file: File,
    sent: Arc<AtomicU64>,
) -> impl futures_util::Stream<Item = io::Result<bytes::Bytes>> + Send {
    futures_util::stream::try_unfold((file, sent), |(mut file, sent)| async move {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        sent.fetch_add(read as u64, Ordering::Relaxed);
        Ok((read > 0).then(|| (piece.freeze(), (file, sent))))
    })
}
