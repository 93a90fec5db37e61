//! A virtual CD: an image on an HTTP server, read in blocks by range requests, as a BMC reads it.
//!
//! ```text
//! open       HEAD url -> Content-Length, ETag       (without a length: GET bytes=0-0 -> Content-Range)
//! read 40 KiB at 100,000
//!            blocks 1 and 2 of 64 KiB:  in the cache? else GET bytes=65536-131071 -> 206, Content-Range checked
//! ```
//!
//! Invariants: a response is used only if its status, range, length and ETag match. The cache holds at most
//! `cache_blocks` blocks. Every request has a deadline and ends when the power goes off. Transient failures (no
//! connection, 5xx, a truncated body) are retried, as a drive retries a sector.
//!
//! Reads are synchronous because the ISO reader is synchronous: use a disc on a blocking thread (`spawn_blocking`), never
//! on a thread that runs async tasks. Serving side: docs/architecture.md.

use std::{
    collections::VecDeque,
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use iso9660::ReadAt;
use parking_lot::Mutex;
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

/// Size of a cached block in bytes.
pub const BLOCK_BYTES: u64 = 64 * 1024;

/// Limits for reading a disc.
#[derive(Clone, Copy, Debug)]
pub struct DiscOptions {
    /// Maximum number of cached blocks; at least one is kept.
    pub cache_blocks: usize,
    /// Timeout of one request.
    pub request_timeout: Duration,
    /// Attempts and delays for one request.
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

/// Requests and bytes of a disc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiscCounters {
    /// Number of requests sent.
    pub requests: u64,
    /// Number of bytes received.
    pub bytes: u64,
}

/// A disc cannot be read.
#[derive(Debug, Error)]
pub enum DiscError {
    /// The power went off.
    #[error("{operation}: the power went off")]
    PowerLost {
        /// The operation that failed.
        operation: String,
    },
    /// No response within the timeout.
    #[error("{operation}: no response within {} s", timeout.as_secs())]
    Timeout {
        /// The operation that failed.
        operation: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The request failed.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The server sent a response that a drive cannot use.
    #[error("{operation}: {rule}")]
    Response {
        /// The operation that failed.
        operation: String,
        /// The rule that the response breaks.
        rule: String,
        /// Whether a retry may succeed.
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

/// An inserted disc.
#[derive(Debug)]
pub struct HttpDisc {
    drive: Drive,
    runtime: Handle,
    length: u64,
    cache: Mutex<Cache>,
}

impl HttpDisc {
    /// Opens the disc and reads its length.
    ///
    /// # Errors
    /// Returns an error if the server does not serve the image with a length and ranges.
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
        let length = drive.read_length().await?;
        let cache = Mutex::new(Cache { blocks: VecDeque::new(), capacity: options.cache_blocks.max(1) });
        Ok(Self { drive, runtime: Handle::current(), length, cache })
    }

    /// The requests sent and bytes received up to now.
    #[must_use]
    pub fn counters(&self) -> DiscCounters {
        DiscCounters {
            requests: self.drive.requests.load(Ordering::Relaxed),
            bytes: self.drive.received.load(Ordering::Relaxed),
        }
    }

    /// Reads the block around an offset from the server, around the cache.
    ///
    /// # Errors
    /// Returns an error if the server does not send it.
    pub async fn touch(&self, offset: u64) -> Result<(), DiscError> {
        let first = offset / BLOCK_BYTES * BLOCK_BYTES;
        let last = (first + BLOCK_BYTES).min(self.length).saturating_sub(1);
        self.drive.read(first, last, self.length).await.map(drop)
    }

    fn block(&self, index: u64) -> io::Result<Bytes> {
        if let Some(block) = self.cache.lock().get(index) {
            return Ok(block);
        }
        let first = index * BLOCK_BYTES;
        let last = (first + BLOCK_BYTES).min(self.length) - 1;
        let block =
            self.runtime.block_on(self.drive.read(first, last, self.length)).map_err(io::Error::other)?;
        self.cache.lock().put(index, block.clone());
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
            let (filled, unfilled) = rest.split_at_mut(take);
            filled.copy_from_slice(&block[within..within + take]);
            position += take as u64;
            rest = unfilled;
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
        let position = self.blocks.iter().position(|(cached, _)| *cached == index)?;
        let block = self.blocks.remove(position)?;
        let bytes = block.1.clone();
        self.blocks.push_front(block);
        Some(bytes)
    }

    fn put(&mut self, index: u64, bytes: Bytes) {
        self.blocks.truncate(self.capacity - 1);
        self.blocks.push_front((index, bytes));
    }
}

/// The HTTP client of a disc.
#[derive(Debug)]
struct Drive {
    client: reqwest::Client,
    url: String,
    /// The last path segment. The rest of a media URL is a secret and is never shown.
    name: String,
    etag: Option<String>,
    options: DiscOptions,
    cancel: CancellationToken,
    requests: AtomicU64,
    received: AtomicU64,
}

impl Drive {
    async fn read_length(&mut self) -> Result<u64, DiscError> {
        let operation = format!("reading the length of {}", self.name);
        let (status, headers) = self.retry(&operation, || self.headers(Method::HEAD, None)).await?;
        let mut length = None;
        self.etag = header(&headers, &ETAG);
        if status == StatusCode::OK {
            length = header(&headers, &CONTENT_LENGTH).and_then(|text| text.parse().ok());
        }
        if length.is_none() {
            let (status, headers) =
                self.retry(&operation, || self.headers(Method::GET, Some("bytes=0-0"))).await?;
            self.etag = header(&headers, &ETAG);
            if status != StatusCode::PARTIAL_CONTENT {
                return Err(bad_response(&operation, format!("the server responded with {status}"), false));
            }
            let total =
                header(&headers, &CONTENT_RANGE).and_then(|text| text.rsplit('/').next()?.parse().ok());
            length = total;
        }
        length
            .filter(|length| *length > 0)
            .ok_or_else(|| bad_response(&operation, "the server sent no length".to_owned(), false))
    }

    async fn read(&self, first: u64, last: u64, total: u64) -> Result<Bytes, DiscError> {
        let operation = format!("reading bytes {first}-{last} of {}", self.name);
        self.retry(&operation, || self.range(&operation, first, last, total)).await
    }

    async fn range(&self, operation: &str, first: u64, last: u64, total: u64) -> Result<Bytes, DiscError> {
        let response = self.send(Method::GET, Some(&format!("bytes={first}-{last}")), operation).await?;
        let status = response.status();
        if status != StatusCode::PARTIAL_CONTENT {
            let transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(bad_response(operation, format!("the server responded with {status}"), transient));
        }
        let covered = header(response.headers(), &CONTENT_RANGE).unwrap_or_default();
        if covered != format!("bytes {first}-{last}/{total}") {
            return Err(bad_response(
                operation,
                format!("the server sent the range {covered:?} instead"),
                false,
            ));
        }
        let etag = header(response.headers(), &ETAG);
        if self.etag.is_some() && etag != self.etag {
            return Err(bad_response(operation, "the image changed while it was inserted".to_owned(), false));
        }
        let expected = (last - first + 1) as usize;
        let body = bounded_body(response, expected, operation).await?;
        self.received.fetch_add(body.len() as u64, Ordering::Relaxed);
        if body.len() != expected {
            return Err(bad_response(operation, format!("the body ended after {} bytes", body.len()), true));
        }
        Ok(Bytes::from(body))
    }

    async fn headers(
        &self,
        method: Method,
        range: Option<&str>,
    ) -> Result<(StatusCode, HeaderMap), DiscError> {
        let operation = format!("reading the length of {}", self.name);
        let response = self.send(method, range, &operation).await?;
        let status = response.status();
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            return Err(bad_response(&operation, format!("the server responded with {status}"), true));
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
            // The error text of reqwest contains the URL, which is a secret.
            let source = source.without_url();
            DiscError::Http(HttpError::Exchange { operation: operation.to_owned(), source })
        })
    }

    /// Retries until the request succeeds, fails permanently, has no attempts left, or the power goes off.
    async fn retry<T, F: Future<Output = Result<T, DiscError>>>(
        &self,
        operation: &str,
        request: impl Fn() -> F,
    ) -> Result<T, DiscError> {
        let timeout = self.options.request_timeout;
        let mut attempt = 1;
        loop {
            let result = tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(DiscError::PowerLost { operation: operation.to_owned() }),
                result = tokio::time::timeout(timeout, request()) => result
                    .unwrap_or_else(|_| Err(DiscError::Timeout { operation: operation.to_owned(), timeout })),
            };
            let failure = match result {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            match self.options.backoff.delay_after(attempt) {
                Some(delay) if failure.is_transient() => {
                    // If the power goes off during the delay, the select above returns the error.
                    tokio::select! {
                        () = self.cancel.cancelled() => {}
                        () = tokio::time::sleep(delay) => {}
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

fn bad_response(operation: &str, rule: String, transient: bool) -> DiscError {
    DiscError::Response { operation: operation.to_owned(), rule, transient }
}

#[cfg(test)]
mod tests;
