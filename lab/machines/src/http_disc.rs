//! A virtual CD: an image on an HTTP server, read block by block as a BMC does it.
//!
//! ```text
//! open       HEAD url -> Content-Length, ETag       (no use? GET bytes=0-0 -> Content-Range)
//! read 40 KiB at 100,000
//!            blocks 1 and 2 of 64 KiB:  in the cache? else GET bytes=65536-131071 -> 206, Content-Range checked
//! ```
//!
//! Invariants: an answer is believed only if its status, range, length and ETag fit; memory is `cache_blocks` blocks
//! whatever is read; every request has a deadline and ends when the power goes off. Transient failures (no connection,
//! 5xx, a body cut short) are tried again as a drive retries a sector.
//!
//! The reads are synchronous because the ISO reader is: use a disc on a blocking thread (`spawn_blocking`), never on a
//! thread that drives async tasks. DESIGN section 7 (Serving).

use std::{
    collections::VecDeque,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use iso9660::ReadAt;
use reqwest::{
    Method, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, RANGE},
};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    http::{HttpError, bounded_body},
};

/// Bytes of a cached block.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// How a disc reads.
#[derive(Clone, Copy, Debug)]
pub struct DiscOptions {
    /// Blocks kept; at least one.
    pub cache_blocks: usize,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How often a block is asked for.
    pub backoff: Backoff,
}

impl Default for DiscOptions {
    fn default() -> Self {
        Self {
            cache_blocks: 16,
            request_timeout: Duration::from_secs(30),
            backoff: Backoff {
                attempts: 8,
                first: Duration::from_millis(100),
                longest: Duration::from_secs(5),
            },
        }
    }
}

/// What a disc has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscCounters {
    /// Requests sent.
    pub requests: u64,
    /// Bytes received.
    pub bytes: u64,
}

/// Why a disc cannot be read.
#[derive(Debug, Error)]
pub enum DiscError {
    /// The power went off.
    #[error("{operation}: the power went off")]
    PowerLost {
        /// What was being done.
        operation: String,
    },
    /// No answer in time.
    #[error("{operation}: no answer within {} s", timeout.as_secs())]
    Timeout {
        /// What was being done.
        operation: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The exchange failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The server answered something a drive cannot use.
    #[error("{operation}: {rule}")]
    Answer {
        /// What was being done.
        operation: String,
        /// What is wrong with the answer.
        rule: String,
        /// Whether asking again may help.
        transient: bool,
    },
}

impl DiscError {
    fn is_transient(&self) -> bool {
        match self {
            Self::PowerLost { .. } => false,
            Self::Timeout { .. } | Self::Http(HttpError::Exchange { .. }) => true,
            Self::Http(_) => false,
            Self::Response { transient, .. } => *transient,
        }
    }
}

/// An inserted medium.
#[derive(Debug)]
pub struct HttpDisc {
    drive: Drive,
    runtime: Handle,
    length: u64,
    cache: Mutex<Cache>,
}

impl HttpDisc {
    /// Spins the disc up: learns its length.
    ///
    /// # Errors
    /// When the server does not answer as a medium must.
    pub async fn open(
        client: reqwest::Client,
        url: &str,
        options: DiscOptions,
        cancel: CancellationToken,
    ) -> Result<Self, DiscError> {
        let mut drive = Drive {
            client,
            url: url.to_owned(),
            name: url.rsplit('/').next().unwrap_or_default().to_owned(),
            etag: None,
            options,
            cancel,
            requests: AtomicU64::new(0),
            received: AtomicU64::new(0),
        };
        let length = drive.learn_length().await?;
        let cache = Mutex::new(Cache { blocks: VecDeque::new(), capacity: options.cache_blocks.max(1) });
        Ok(Self { drive, runtime: Handle::current(), length, cache })
    }

    /// What was read over the network so far.
    #[must_use]
    pub fn counters(&self) -> DiscCounters {
        DiscCounters {
            requests: self.drive.requests.load(Ordering::Relaxed),
            bytes: self.drive.received.load(Ordering::Relaxed),
        }
    }

    fn block(&self, index: u64) -> io::Result<Bytes> {
        // A poisoned cache is still a cache: its blocks are immutable.
        if let Some(block) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(index) {
            return Ok(block);
        }
        let first = index * BLOCK_BYTES;
        let last = (first + BLOCK_BYTES).min(self.length) - 1;
        let block =
            self.runtime.block_on(self.drive.read(first, last, self.length)).map_err(io::Error::other)?;
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).put(index, block.clone());
        Ok(block)
    }
}

impl ReadAt for HttpDisc {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.length);
        if end.is_none() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the read passes the end of the disc"));
        }
        let mut position = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let block = self.block(position / BLOCK_BYTES)?;
            let within = (position % BLOCK_BYTES) as usize;
            let take = rest.len().min(block.len() - within);
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&block[within..within + take]);
            position += take as u64;
            rest = later;
        }
        Ok(())
    }
}

/// Blocks in the order of their last use, newest first.
#[derive(Debug)]
struct Cache {
    blocks: VecDeque<(u64, Bytes)>,
    capacity: usize,
}

impl Cache {
    fn get(&mut self, index: u64) -> Option<Bytes> {
        let place = self.blocks.iter().position(|(cached, _)| *cached == index)?;
        let block = self.blocks.remove(place)?;
        let bytes = block.1.clone();
        self.blocks.push_front(block);
        Some(bytes)
    }

    fn put(&mut self, index: u64, bytes: Bytes) {
        self.blocks.truncate(self.capacity - 1);
        self.blocks.push_front((index, bytes));
    }
}

/// The part that talks HTTP.
#[derive(Debug)]
struct Drive {
    client: reqwest::Client,
    url: String,
    /// The last path segment: a media URL carries a right, only this may be shown.
    name: String,
    etag: Option<String>,
    options: DiscOptions,
    cancel: CancellationToken,
    requests: AtomicU64,
    received: AtomicU64,
}

impl Drive {
    async fn learn_length(&mut self) -> Result<u64, DiscError> {
        let operation = format!("asking for the length of {}", self.name);
        let answer = self.try_again(&operation, || self.headers(Method::HEAD, None)).await?;
        let mut length = None;
        self.etag = header(&answer.1, &ETAG);
        if answer.0 == StatusCode::OK {
            length = header(&answer.1, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
        }
        if length.is_none() {
            let (status, headers) =
                self.try_again(&operation, || self.headers(Method::GET, Some("bytes=0-0"))).await?;
            self.etag = header(&headers, &ETAG);
            if status != StatusCode::PARTIAL_CONTENT {
                return Err(refuse(&operation, format!("the server answered {status}"), false));
            }
            let total =
                header(&headers, &CONTENT_RANGE).and_then(|text| text.rsplit('/').next()?.parse().ok());
            length = total;
        }
        length
            .filter(|length| *length > 0)
            .ok_or_else(|| refuse(&operation, "the server names no length".to_owned(), false))
    }

    async fn read(&self, first: u64, last: u64, total: u64) -> Result<Bytes, DiscError> {
        let operation = format!("reading bytes {first}-{last} of {}", self.name);
        self.try_again(&operation, || self.range(&operation, first, last, total)).await
    }

    async fn range(&self, operation: &str, first: u64, last: u64, total: u64) -> Result<Bytes, DiscError> {
        let response = self.send(Method::GET, Some(&format!("bytes={first}-{last}")), operation).await?;
        let status = response.status();
        if status != StatusCode::PARTIAL_CONTENT {
            let transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(refuse(operation, format!("the server answered {status}"), transient));
        }
        let covered = header(response.headers(), &CONTENT_RANGE).unwrap_or_default();
        if covered != format!("bytes {first}-{last}/{total}") {
            return Err(refuse(operation, format!("the server sent {covered:?} instead"), false));
        }
        let etag = header(response.headers(), &ETAG);
        if self.etag.is_some() && etag != self.etag {
            return Err(refuse(operation, "the image changed while it was mounted".to_owned(), false));
        }
        let expected = (last - first + 1) as usize;
        let body = bounded_body(response, expected, operation).await?;
        self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
        if body.len() != expected {
            return Err(refuse(operation, format!("the body ended after {} bytes", body.len()), true));
        }
        Ok(Bytes::from(body))
    }

    async fn headers(
        &self,
        method: Method,
        range: Option<&str>,
    ) -> Result<(StatusCode, HeaderMap), DiscError> {
        let operation = format!("asking for the length of {}", self.name);
        let response = self.send(method, range, &operation).await?;
        let status = response.status();
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            return Err(refuse(&operation, format!("the server answered {status}"), true));
        }
        Ok((status, response.headers().clone()))
    }

    async fn send(
        &self,
        method: Method,
        range: Option<&str>,
        operation: &str,
    ) -> Result<reqwest::Response, DiscError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut request = self.client.request(method, &self.url);
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        request.send().await.map_err(|source| {
            // reqwest puts the URL into its message, and the URL is a right.
            let source = source.without_url();
            DiscError::Http(HttpError::Exchange { operation: operation.to_owned(), source })
        })
    }

    /// Tries until it works, the failure is final, the attempts are used up or the power goes off.
    async fn try_again<T, F: Future<Output = Result<T, DiscError>>>(
        &self,
        operation: &str,
        once: impl Fn() -> F,
    ) -> Result<T, DiscError> {
        let timeout = self.options.request_timeout;
        let mut attempt = 1;
        loop {
            let tried = tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(DiscError::PowerLost { operation: operation.to_owned() }),
                tried = tokio::time::timeout(timeout, once()) => tried
                    .unwrap_or_else(|_| Err(DiscError::Timeout { operation: operation.to_owned(), timeout })),
            };
            let failure = match tried {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            match self.options.backoff.delay_after(attempt) {
                Some(pause) if failure.is_transient() => {
                    // A pause that the power interrupts ends in the select above.
                    tokio::select! {
                        () = self.cancel.cancelled() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                _ => return Err(failure),
            }
            attempt += 1;
        }
    }
}

fn header(headers: &HeaderMap, name: &reqwest::header::HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn refuse(operation: &str, rule: String, transient: bool) -> DiscError {
    DiscError::Response { operation: operation.to_owned(), rule, transient }
}

#[cfg(test)]
mod tests;
