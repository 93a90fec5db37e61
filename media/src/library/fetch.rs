//! Fetches an image over HTTP and resumes after a broken connection.
//!
//! ```text
//! GET                            200 ──chunks──> thread that writes ──────────────> finish
//! GET If-None-Match: known       304 ──────────> the image that the library has already
//!        connection breaks after n bytes, the response had a strong entity tag:
//! GET Range: bytes=n- If-Range   206 from n ───> continue      200 ──> start over
//! ```
//!
//! Invariants: the fifth attempt in a row without progress ends the import; the read timeout bounds every silence of the
//! server, the deadline bounds the whole import; at most eight chunks wait for the disk; at most three redirects are
//! followed, and none from https to http; every address, of a redirect too, is checked by [`AddressPolicy`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Response};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::Url;

use super::super::outgoing::{AddressPolicy, AddressRefused};
use super::error::FetchFailure;
use super::partial_image::PartialImage;
use super::source::shown;
use super::{ImportError, ImportedImage, ProgressReporter};

/// The maximum number of attempts in a row without progress.
const ATTEMPTS_WITHOUT_PROGRESS_MAX: u32 = 5;
const REDIRECTS_MAX: usize = 3;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before the second attempt.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(6 * 3600);
/// The maximum number of chunks that wait for the disk.
const QUEUE: usize = 8;

/// The result of a fetch.
pub(super) enum Fetched {
    /// The source has not changed since the previous import.
    NotModified,
    /// A new image, and its entity tag for the next import.
    Image(ImportedImage, Option<HeaderValue>),
}

/// The HTTP client of the library.
pub(super) fn client(tls: rustls::ClientConfig, addresses: &AddressPolicy) -> reqwest::Result<Client> {
    let checked = addresses.clone();
    addresses
        .client()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::custom(move |attempt| redirect(attempt, &checked)))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_max_idle_per_host(1)
        .build()
}

fn redirect(attempt: Attempt<'_>, addresses: &AddressPolicy) -> reqwest::redirect::Action {
    if let Err(refused) = addresses.check_url(attempt.url()) {
        return attempt.error(refused);
    }
    let downgrade =
        attempt.url().scheme() == "http" && attempt.previous().iter().any(|url| url.scheme() == "https");
    if downgrade {
        attempt.error("redirected from https to http")
    } else if attempt.previous().len() > REDIRECTS_MAX {
        attempt.error("redirected more than three times")
    } else {
        attempt.follow()
    }
}

/// Fetches images over HTTP into the library.
pub(super) struct ImageFetcher {
    pub(super) client: Client,
    /// The addresses that may be connected to.
    pub(super) addresses: AddressPolicy,
    /// The directory of the library.
    pub(super) dir: PathBuf,
    /// The maximum size of an image in bytes.
    pub(super) limit: u64,
    /// The delay before the second attempt; it doubles with every attempt without progress.
    pub(super) pause: Duration,
}

impl ImageFetcher {
    /// Checks the address in a URL.
    pub(super) fn check(&self, url: &Url) -> Result<(), ImportError> {
        self.addresses.check_url(url).map_err(|source| ImportError::Address { url: shown(url), source })
    }

    /// Imports the image at `url` into the library, unless it still has the entity tag `known`.
    pub(super) async fn fetch(
        &self,
        url: &Url,
        known: Option<HeaderValue>,
        progress: &ProgressReporter,
    ) -> Result<Fetched, ImportError> {
        self.check(url)?;
        let sink = Sink::start(self.dir.clone(), self.limit);
        let transfer = Transfer { fetcher: self, url, known, progress, sink, at: 0, tag: None };
        match tokio::time::timeout(DEADLINE, transfer.run()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ImportError::Deadline { hours: DEADLINE.as_secs() / 3600 }),
        }
    }
}

struct Transfer<'a> {
    fetcher: &'a ImageFetcher,
    url: &'a Url,
    known: Option<HeaderValue>,
    progress: &'a ProgressReporter,
    sink: Sink,
    /// The number of bytes sent to the sink.
    at: u64,
    /// The entity tag of the response with these bytes.
    tag: Option<HeaderValue>,
}

/// The end of an attempt.
enum AttemptEnd {
    /// The writer has all bytes, or it stopped early and returns the error.
    Complete,
    NotModified,
    /// The attempt failed and another one may succeed.
    Broken(FetchFailure),
    /// The attempt failed and no other one can succeed.
    Refused(ImportError),
}

impl Transfer<'_> {
    async fn run(mut self) -> Result<Fetched, ImportError> {
        let mut without_progress = 0;
        let mut attempts = 0;
        loop {
            let before = self.at;
            attempts += 1;
            match self.attempt().await {
                AttemptEnd::Complete => {
                    return self.sink.finish().await.map(|image| Fetched::Image(image, self.tag));
                }
                AttemptEnd::NotModified => return Ok(Fetched::NotModified),
                AttemptEnd::Refused(error) => return Err(error),
                AttemptEnd::Broken(failure) => {
                    without_progress = if self.at > before && is_strong(self.tag.as_ref()) {
                        0
                    } else {
                        without_progress + 1
                    };
                    if without_progress >= ATTEMPTS_WITHOUT_PROGRESS_MAX {
                        let source = Arc::new(failure);
                        return Err(ImportError::Fetch { url: shown(self.url), attempts, source });
                    }
                    tracing::info!(url = shown(self.url), offset = self.at, error = %failure, "image import interrupted, trying again");
                    tokio::time::sleep(
                        self.fetcher.pause * 2u32.pow(without_progress.min(ATTEMPTS_WITHOUT_PROGRESS_MAX)),
                    )
                    .await;
                }
            }
        }
    }

    async fn attempt(&mut self) -> AttemptEnd {
        let mut request = self.fetcher.client.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        let resumed = self.at > 0 && is_strong(self.tag.as_ref());
        if let Some(tag) = self.tag.clone().filter(|_| resumed) {
            request = request.header(RANGE, format!("bytes={}-", self.at)).header(IF_RANGE, tag);
        } else if let Some(known) = self.known.clone() {
            request = request.header(IF_NONE_MATCH, known);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                return match AddressRefused::cause_of(&error) {
                    Some(source) => {
                        AttemptEnd::Refused(ImportError::Address { url: shown(self.url), source })
                    }
                    None => AttemptEnd::Broken(FetchFailure::Transfer(error.without_url())),
                };
            }
        };
        match response.status() {
            StatusCode::OK => {
                if self.at > 0 && !self.sink.send(WriterMessage::Restart).await {
                    return AttemptEnd::Complete;
                }
                self.at = 0;
                self.tag = response.headers().get(ETAG).cloned();
                self.receive(response).await
            }
            StatusCode::PARTIAL_CONTENT if resumed && starts_at(response.headers(), self.at) => {
                self.receive(response).await
            }
            StatusCode::NOT_MODIFIED if self.known.is_some() => AttemptEnd::NotModified,
            // The transfer cannot be resumed: the next attempt requests the whole image.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if resumed => {
                self.tag = None;
                AttemptEnd::Broken(FetchFailure::Range)
            }
            status if status.is_server_error() || matches!(status.as_u16(), 408 | 429) => {
                AttemptEnd::Broken(FetchFailure::Status(status.as_u16()))
            }
            status => {
                AttemptEnd::Refused(ImportError::Status { url: shown(self.url), status: status.as_u16() })
            }
        }
    }

    async fn receive(&mut self, mut response: Response) -> AttemptEnd {
        let total = response.content_length().map(|rest| rest.saturating_add(self.at));
        if total.is_some_and(|total| total > self.fetcher.limit) {
            return AttemptEnd::Refused(ImportError::TooLarge { limit: self.fetcher.limit });
        }
        self.progress.report(self.at, total);
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let length = chunk.len() as u64;
                    if !self.sink.send(WriterMessage::Chunk(chunk)).await {
                        return AttemptEnd::Complete;
                    }
                    self.at += length;
                    self.progress.report(self.at, total);
                }
                Ok(None) => match total {
                    Some(announced) if announced != self.at => {
                        return AttemptEnd::Broken(FetchFailure::Short { got: self.at, announced });
                    }
                    _ => return AttemptEnd::Complete,
                },
                Err(error) => return AttemptEnd::Broken(FetchFailure::Transfer(error.without_url())),
            }
        }
    }
}

/// Whether an entity tag is strong (RFC 9110, 8.8.1), so that a transfer can be resumed.
fn is_strong(tag: Option<&HeaderValue>) -> bool {
    tag.is_some_and(|tag| tag.as_bytes().starts_with(b"\""))
}

/// Whether the range of the response begins at `offset`.
fn starts_at(headers: &HeaderMap, offset: u64) -> bool {
    headers
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("bytes "))
        .and_then(|text| text.split_once('-'))
        .is_some_and(|(first, _)| first.trim().parse() == Ok(offset))
}

enum WriterMessage {
    Chunk(Bytes),
    Restart,
    Finish,
}

/// The thread that hashes and writes the image.
struct Sink {
    messages: mpsc::Sender<WriterMessage>,
    writer: JoinHandle<Result<ImportedImage, ImportError>>,
}

impl Sink {
    fn start(dir: PathBuf, limit: u64) -> Self {
        let (messages, mut queue) = mpsc::channel(QUEUE);
        let writer = tokio::task::spawn_blocking(move || {
            let mut partial = None;
            while let Some(message) = queue.blocking_recv() {
                // The file is created with the first byte, so that an unmodified source creates no file.
                let file = match &mut partial {
                    Some(file) => file,
                    none => none.insert(PartialImage::create(&dir, limit)?),
                };
                match message {
                    WriterMessage::Chunk(bytes) => file.write(&bytes)?,
                    WriterMessage::Restart => file.restart()?,
                    WriterMessage::Finish => {
                        return partial.take().ok_or(ImportError::NotAnImage)?.finish(&dir);
                    }
                }
            }
            Err(ImportError::Interrupted)
        });
        Self { messages, writer }
    }

    /// Sends a message; false when the writer has stopped.
    async fn send(&self, message: WriterMessage) -> bool {
        self.messages.send(message).await.is_ok()
    }

    /// Waits until everything is written and returns the image.
    async fn finish(self) -> Result<ImportedImage, ImportError> {
        self.send(WriterMessage::Finish).await;
        drop(self.messages);
        self.writer.await.unwrap_or(Err(ImportError::Interrupted))
    }
}
