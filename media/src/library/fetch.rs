//! Fetches an image over HTTP, and goes on where a broken connection stopped.
//!
//! ```text
//! GET                            200 ──chunks──> thread that writes ──────────────> finish
//! GET If-None-Match: known       304 ──────────> what is in the library already
//!        connection breaks after n bytes, the answer had a strong tag:
//! GET Range: bytes=n- If-Range   206 from n ───> go on         200 ──> start over
//! ```
//!
//! Invariants: an attempt that brings nothing new counts, and the fifth such ends the import; no silence is longer than
//! the read timeout, no import longer than the deadline; at most eight chunks wait for the disk; at most three
//! redirects are followed, and none from https to http.

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

use super::error::FetchFailure;
use super::partial_image::Incoming;
use super::source::shown;
use super::{ImportError, ImportedImage, Progress};

/// Attempts in a row that may bring nothing new.
const FRUITLESS_MAX: u32 = 5;
const REDIRECTS_MAX: usize = 3;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after the first failure.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(6 * 3600);
/// Chunks that may wait for the disk.
const QUEUE: usize = 8;

/// What a fetch came to.
pub(super) enum Fetched {
    /// The source is as it was.
    NotModified,
    /// A new image, and the tag to ask with next time.
    Image(ImportedImage, Option<HeaderValue>),
}

/// The HTTP client of the library.
pub(super) fn client(tls: rustls::ClientConfig) -> reqwest::Result<Client> {
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::custom(redirect))
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .pool_max_idle_per_host(1)
        .build()
}

fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
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

/// How images are fetched.
pub(super) struct Web {
    pub(super) client: Client,
    /// Where they go.
    pub(super) dir: PathBuf,
    /// The longest one taken.
    pub(super) limit: u64,
    /// The pause after a first failure; it doubles with each that follows.
    pub(super) pause: Duration,
}

impl Web {
    /// Brings the image at `url` into the library, unless it still has the tag `known`.
    pub(super) async fn fetch(
        &self,
        url: &Url,
        known: Option<HeaderValue>,
        progress: &Progress,
    ) -> Result<Fetched, ImportError> {
        let sink = Sink::start(self.dir.clone(), self.limit);
        let transfer = Transfer { web: self, url, known, progress, sink, at: 0, tag: None };
        match tokio::time::timeout(DEADLINE, transfer.run()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(ImportError::Deadline { hours: DEADLINE.as_secs() / 3600 }),
        }
    }
}

struct Transfer<'a> {
    web: &'a Web,
    url: &'a Url,
    known: Option<HeaderValue>,
    progress: &'a Progress,
    sink: Sink,
    /// Bytes given to the sink.
    at: u64,
    /// The tag of the answer these bytes came from.
    tag: Option<HeaderValue>,
}

/// Why an attempt ended.
enum End {
    /// Everything is with the writer, or the writer stopped early and knows why.
    Complete,
    NotModified,
    /// Another attempt may do better.
    Broken(FetchFailure),
    /// None can.
    Refused(ImportError),
}

impl Transfer<'_> {
    async fn run(mut self) -> Result<Fetched, ImportError> {
        let mut fruitless = 0;
        let mut attempts = 0;
        loop {
            let before = self.at;
            attempts += 1;
            match self.attempt().await {
                End::Complete => {
                    return self.sink.finish().await.map(|image| Fetched::Image(image, self.tag));
                }
                End::NotModified => return Ok(Fetched::NotModified),
                End::Refused(error) => return Err(error),
                End::Broken(failure) => {
                    fruitless =
                        if self.at > before && is_strong(self.tag.as_ref()) { 0 } else { fruitless + 1 };
                    if fruitless >= FRUITLESS_MAX {
                        let source = Arc::new(failure);
                        return Err(ImportError::Fetch { url: shown(self.url), attempts, source });
                    }
                    tracing::info!(url = shown(self.url), offset = self.at, error = %failure, "image import interrupted, going on");
                    tokio::time::sleep(self.web.pause * 2u32.pow(fruitless.min(FRUITLESS_MAX))).await;
                }
            }
        }
    }

    async fn attempt(&mut self) -> End {
        let mut request = self.web.client.get(self.url.clone()).header(ACCEPT_ENCODING, "identity");
        let resumed = self.at > 0 && is_strong(self.tag.as_ref());
        if let Some(tag) = self.tag.clone().filter(|_| resumed) {
            request = request.header(RANGE, format!("bytes={}-", self.at)).header(IF_RANGE, tag);
        } else if let Some(known) = self.known.clone() {
            request = request.header(IF_NONE_MATCH, known);
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return End::Broken(FetchFailure::Transfer(error.without_url())),
        };
        match response.status() {
            StatusCode::OK => {
                if self.at > 0 && !self.sink.send(Message::Restart).await {
                    return End::Complete;
                }
                self.at = 0;
                self.tag = response.headers().get(ETAG).cloned();
                self.receive(response).await
            }
            StatusCode::PARTIAL_CONTENT if resumed && starts_at(response.headers(), self.at) => {
                self.receive(response).await
            }
            StatusCode::NOT_MODIFIED if self.known.is_some() => End::NotModified,
            // What was offered before cannot be continued: the next attempt asks for everything.
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE if resumed => {
                self.tag = None;
                End::Broken(FetchFailure::Range)
            }
            status if status.is_server_error() || matches!(status.as_u16(), 408 | 429) => {
                End::Broken(FetchFailure::Status(status.as_u16()))
            }
            status => End::Refused(ImportError::Status { url: shown(self.url), status: status.as_u16() }),
        }
    }

    async fn receive(&mut self, mut response: Response) -> End {
        let total = response.content_length().map(|rest| rest.saturating_add(self.at));
        if total.is_some_and(|total| total > self.web.limit) {
            return End::Refused(ImportError::TooLarge { limit: self.web.limit });
        }
        self.progress.report(self.at, total);
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    let length = chunk.len() as u64;
                    if !self.sink.send(Message::Chunk(chunk)).await {
                        return End::Complete;
                    }
                    self.at += length;
                    self.progress.report(self.at, total);
                }
                Ok(None) => match total {
                    Some(announced) if announced != self.at => {
                        return End::Broken(FetchFailure::Short { got: self.at, announced });
                    }
                    _ => return End::Complete,
                },
                Err(error) => return End::Broken(FetchFailure::Transfer(error.without_url())),
            }
        }
    }
}

/// Whether a tag promises the same bytes (RFC 9110, 8.8.1), so that a transfer can go on in the middle.
fn is_strong(tag: Option<&HeaderValue>) -> bool {
    tag.is_some_and(|tag| tag.as_bytes().starts_with(b"\""))
}

/// Whether the part that was sent begins at `offset`.
fn starts_at(headers: &HeaderMap, offset: u64) -> bool {
    headers
        .get(CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("bytes "))
        .and_then(|text| text.split_once('-'))
        .is_some_and(|(first, _)| first.trim().parse() == Ok(offset))
}

enum Message {
    Chunk(Bytes),
    Restart,
    Finish,
}

/// The thread that hashes and writes.
struct Sink {
    messages: mpsc::Sender<Message>,
    writer: JoinHandle<Result<ImportedImage, ImportError>>,
}

impl Sink {
    fn start(dir: PathBuf, limit: u64) -> Self {
        let (messages, mut queue) = mpsc::channel(QUEUE);
        let writer = tokio::task::spawn_blocking(move || {
            let mut incoming = None;
            while let Some(message) = queue.blocking_recv() {
                // Made with the first byte: an unmodified source leaves no file behind, not even for a moment.
                let file = match &mut incoming {
                    Some(file) => file,
                    none => none.insert(Incoming::create(&dir, limit)?),
                };
                match message {
                    Message::Chunk(bytes) => file.write(&bytes)?,
                    Message::Restart => file.restart()?,
                    Message::Finish => return incoming.take().ok_or(ImportError::NotAnImage)?.finish(&dir),
                }
            }
            Err(ImportError::Interrupted)
        });
        Self { messages, writer }
    }

    /// Whether the writer still takes messages.
    async fn send(&self, message: Message) -> bool {
        self.messages.send(message).await.is_ok()
    }

    /// The result, once everything sent is written.
    async fn finish(self) -> Result<ImportedImage, ImportError> {
        self.send(Message::Finish).await;
        drop(self.messages);
        self.writer.await.unwrap_or(Err(ImportError::Interrupted))
    }
}
