//! Pushes files, streams and manifests to the registry of a controller, and deletes manifests.
//!
//! ```text
//!   a file    HEAD blobs/DIGEST ── 200 ──> nothing to do
//!                  └── 404 ──> POST blobs/uploads/ ── 202, Location ──> PUT Location?digest=DIGEST, the file ── 201 ──> stored, verified
//!   a stream  POST blobs/uploads/ ── 202 ──> PATCH, pieces as they are made ── 202 ──> PUT ?digest=DIGEST ── 201 ──> stored, verified
//!                                                                              └── its maker failed ──> DELETE: nothing is stored
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

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::time::sleep;
use url::Url;

use super::super::output::Output;
use super::super::progress::Progress;
use super::{CliError, Client, REQUEST_TIMEOUT, bounded};
use model::distinct_causes;

/// The pause between two reports of the sent bytes.
const REPORTS: Duration = Duration::from_millis(250);
/// The bytes that are read from the file at once.
const PIECE: usize = 256 << 10;
/// The slowest upload that is waited for.
const MIN_BYTES_PER_SECOND: u64 = 128 << 10;

impl Client {
    /// Pushes a file as a blob, unless the repository has it; returns whether bytes were sent.
    ///
    /// # Errors
    /// When the file cannot be read, or the registry refuses.
    pub async fn push_blob(
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
        let mut place = self.begin_upload(repository).await?;
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

    /// Pushes a blob whose digest is known after its last byte. `made` ends when all pieces are made, with their digest and what else
    /// the caller wants; `show` is called a few times each second. `most` is the most bytes that the pieces may have.
    ///
    /// # Errors
    /// When the pieces fail, or the registry refuses.
    pub async fn push_stream<T>(
        &self,
        repository: &str,
        pieces: mpsc::Receiver<Bytes>,
        most: u64,
        made: impl Future<Output = Result<(String, T), CliError>>,
        mut show: impl FnMut(),
    ) -> Result<T, CliError> {
        let place = self.begin_upload(repository).await?;
        let deadline = REQUEST_TIMEOUT * 4 + Duration::from_secs(most / MIN_BYTES_PER_SECOND);
        let patch = self.authorized(self.http.request(Method::PATCH, place.clone()));
        let patch = patch.header(CONTENT_TYPE, "application/octet-stream").timeout(deadline);
        let body = futures_util::stream::unfold(pieces, |mut pieces| async move {
            Some((Ok::<_, io::Error>(pieces.recv().await?), pieces))
        });
        let mut response = pin!(self.send_raw(patch.body(Body::wrap_stream(body))));
        let response = loop {
            tokio::select! {
                biased;
                response = &mut response => break response,
                () = sleep(REPORTS) => show(),
            }
        };
        let sent = match response {
            Ok(response) => self.accepted(response, StatusCode::ACCEPTED).await,
            Err(error) => Err(error),
        };
        // The maker ends also after a failed request, because its pieces are taken by no request then.
        let ended = match sent {
            Ok(response) => made.await.map(|made| (response, made)),
            Err(error) => Err(error),
        };
        let (response, (digest, made)) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The registry ends a session that is left by itself, later.
                let cancel = self.authorized(self.http.request(Method::DELETE, place));
                let _left = self.send_raw(cancel).await;
                return Err(error);
            }
        };
        let mut place = match response.headers().get(LOCATION).and_then(|place| place.to_str().ok()) {
            Some(location) => self.upload_place(Some(location))?,
            None => place,
        };
        place.query_pairs_mut().append_pair("digest", &digest);
        let put = self.authorized(self.http.request(Method::PUT, place)).header(CONTENT_LENGTH, 0);
        // A sync of many bytes takes its time.
        self.accepted(self.send_raw(put.timeout(deadline)).await?, StatusCode::CREATED).await?;
        Ok(made)
    }

    /// Pushes a small blob.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn push_bytes(
        &self,
        repository: &str,
        digest: &str,
        bytes: &'static [u8],
    ) -> Result<(), CliError> {
        let mut place = self.begin_upload(repository).await?;
        place.query_pairs_mut().append_pair("digest", digest);
        let put = self.authorized(self.http.request(Method::PUT, place));
        let put = put.header(CONTENT_TYPE, "application/octet-stream").body(bytes);
        self.accepted(self.send_raw(put).await?, StatusCode::CREATED).await?;
        Ok(())
    }

    /// Stores a manifest under a tag. All blobs that it names must be there.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn push_manifest(
        &self,
        repository: &str,
        tag: &str,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<(), CliError> {
        let put = self.v2(Method::PUT, &format!("{repository}/manifests/{tag}"));
        let put = put.header(CONTENT_TYPE, media_type).body(bytes);
        self.accepted(self.send_raw(put).await?, StatusCode::CREATED).await?;
        Ok(())
    }

    /// Whether a repository has a manifest.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn has_manifest(&self, repository: &str, reference: &str) -> Result<bool, CliError> {
        let head = self.v2(Method::HEAD, &format!("{repository}/manifests/{reference}"));
        let response = self.send_raw(head).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        self.accepted_as("to look for it", response, StatusCode::OK).await.map(|_| true)
    }

    /// Deletes a tag, or a manifest by its digest with every tag that names it.
    ///
    /// # Errors
    /// When the registry refuses.
    pub async fn delete_manifest(&self, repository: &str, reference: &str) -> Result<(), CliError> {
        let delete = self.v2(Method::DELETE, &format!("{repository}/manifests/{reference}"));
        self.accepted_as("to delete it", self.send_raw(delete).await?, StatusCode::ACCEPTED).await?;
        Ok(())
    }

    /// The host of the controller and its port, as image references have it.
    pub fn registry_host(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Begins an upload session and returns its place.
    async fn begin_upload(&self, repository: &str) -> Result<Url, CliError> {
        let begun = self.v2(Method::POST, &format!("{repository}/blobs/uploads/")).header(CONTENT_LENGTH, 0);
        let begun = self.accepted(self.send_raw(begun).await?, StatusCode::ACCEPTED).await?;
        self.upload_place(begun.headers().get(LOCATION).and_then(|place| place.to_str().ok()))
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
            reason: distinct_causes(&error.without_url()),
            mutating: true,
        })
    }

    async fn accepted(&self, response: Response, wanted: StatusCode) -> Result<Response, CliError> {
        self.accepted_as("the push", response, wanted).await
    }

    /// The response, if it has the wanted status. `what` is what the registry refuses otherwise.
    async fn accepted_as(
        &self,
        what: &str,
        response: Response,
        wanted: StatusCode,
    ) -> Result<Response, CliError> {
        let status = response.status();
        if status == wanted {
            return Ok(response);
        }
        let body = bounded(response).await.ok().flatten().unwrap_or_default();
        // The registry has the error format of the OCI distribution specification.
        let text = String::from_utf8_lossy(&body).into_owned();
        let document: Option<Value> = serde_json::from_slice(&body).ok();
        let first = document.as_ref().and_then(|body| body.pointer("/errors/0/message")?.as_str());
        let body = match first {
            Some(message) => {
                let message = format!("the registry refused {what}: {message}");
                json!({ "error": "registry", "message": message })
            }
            None => Value::String(text),
        };
        Err(CliError::Refused { status: status.as_u16(), body })
    }
}

/// The bytes of a file, counted when the connection takes them.
fn counted(file: File, sent: Arc<AtomicU64>) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send {
    futures_util::stream::try_unfold((file, sent), |(mut file, sent)| async move {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        let read = file.read_buf(&mut piece).await?;
        sent.fetch_add(read as u64, Ordering::Relaxed);
        Ok((read > 0).then(|| (piece.freeze(), (file, sent))))
    })
}
