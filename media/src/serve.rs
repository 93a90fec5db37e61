//! Answers one HTTP request for an image.
//!
//! ```text
//! GET, HEAD ── If-None-Match holds ─────────────> 304
//!          └── Range (see `range`) ── Full ─────> 200  Content-Length: len
//!                                  ├─ Partial ──> 206  Content-Length: part   Content-Range: bytes a-b/len
//!                                  └─ neither ──> 416  Content-Range: bytes */len
//! other ────────────────────────────────────────> 405  Allow: GET, HEAD
//!
//! the body of a disk image:   poll: | hand over chunk n | hand over chunk n+1 | ...
//!                    blocking pool: | read chunk n+1    | read chunk n+2      |      one chunk ahead, never two
//! ```
//!
//! Over a connection that sends files by itself, what lies in a file is promised instead of read, all but the last chunk of
//! the answer: reading that one also finds whether the file was changed meanwhile, so that nobody takes a mixture for whole.
//!
//! Invariants: every answer has an exact length, on HEAD too, so nothing is ever chunked and HTTP/1.0 works; at most
//! two chunks of 256 KiB are in memory per request; a failed read breaks the connection, so that a client never takes
//! a short image for a whole one; the observer hears of bytes when they are handed over, not when they are asked for.
//!
//! RFC 9110 sections 8.8, 13, 14, 15.

use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::response::Response;
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    IF_RANGE, LAST_MODIFIED, RANGE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::{Frame, SizeHint};
use iso9660::{FileRange, ReadAt};
use tokio::task::JoinHandle;

use super::body::Body;
use super::offload::in_place;
use super::range::{Selection, evaluate};

/// How many bytes are read and handed over at once.
const CHUNK: u64 = 256 * 1024;
/// From how many bytes on a part of a file is sent by the connection.
const DIRECT: u64 = 64 * 1024;

/// Hears what was really read from an image.
pub trait ReadObserver: Send + Sync {
    /// `len` bytes at `offset` were handed to the connection.
    fn read(&self, offset: u64, len: u64);

    /// Whether the right to read has ended; asked before every chunk, and the connection is broken when it has.
    fn ended(&self) -> bool {
        false
    }
}

/// Promises parts of files to the connection that a request came by, which sends them by itself.
pub trait SendFiles: Send + Sync {
    /// What stands for `length` bytes of `file` from `offset` on, or for the first of them; `None` when they must be read.
    fn promise(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes>;
}

/// Travels with a request whose connection sends files by itself, as an extension.
#[derive(Clone)]
pub struct FileSending(Arc<dyn SendFiles>);

impl FileSending {
    /// These promises.
    pub fn new(promises: impl SendFiles + 'static) -> Self {
        Self(Arc::new(promises))
    }
}

/// Answers a request from `body`.
pub fn respond(body: &Body, request: &Parts, observer: Arc<dyn ReadObserver>) -> Response {
    let headers = &request.headers;
    let serving = Serving { body, observer, promises: request.extensions.get() };
    let is_get = match request.method {
        Method::GET => true,
        Method::HEAD => false,
        _ => return empty(StatusCode::METHOD_NOT_ALLOWED, &[(ALLOW, HeaderValue::from_static("GET, HEAD"))]),
    };
    let mut response = if matches_known_tag(headers, body.etag()) {
        let mut response = Response::new(axum::body::Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        match evaluate(is_get, sole(headers, &RANGE), if_range(headers, body), body.etag(), body.len()) {
            Selection::Full => content(serving, is_get, 0, body.len()),
            Selection::Partial { start, end_inclusive } => {
                let mut response = content(serving, is_get, start, end_inclusive - start + 1);
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                insert(
                    &mut response,
                    CONTENT_RANGE,
                    &format!("bytes {start}-{end_inclusive}/{}", body.len()),
                );
                response
            }
            Selection::Unsatisfiable => {
                let mut response = empty(StatusCode::RANGE_NOT_SATISFIABLE, &[]);
                insert(&mut response, CONTENT_RANGE, &format!("bytes */{}", body.len()));
                response
            }
        }
    };
    insert(&mut response, ETAG, body.etag());
    if let Some(date) = body.last_modified() {
        insert(&mut response, LAST_MODIFIED, date);
    }
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=60"));
    response
}

/// A response without a body and with the length that says so.
pub(super) fn empty(status: StatusCode, headers: &[(HeaderName, HeaderValue)]) -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    response.headers_mut().extend(headers.iter().cloned());
    response
}

/// What an answer is made from.
struct Serving<'a> {
    body: &'a Body,
    observer: Arc<dyn ReadObserver>,
    promises: Option<&'a FileSending>,
}

/// `len` bytes from `offset`, or only their description.
fn content(serving: Serving<'_>, is_get: bool, offset: u64, len: u64) -> Response {
    let Serving { body, observer, promises } = serving;
    let mut response = Response::new(if is_get {
        axum::body::Body::new(ExactBody {
            body: body.clone(),
            observer,
            promises: promises.cloned(),
            offset,
            remaining: len,
            ahead: None,
        })
    } else {
        axum::body::Body::empty()
    });
    response.headers_mut().insert(CONTENT_TYPE, body.content_type());
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(len));
    response
}

fn insert(response: &mut Response, name: HeaderName, text: &str) {
    // The texts are digits, dates and hexadecimal, which are always header values.
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}

/// The value of a header that was sent once. Sent twice or with other than visible ASCII it is as good as malformed.
fn sole<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// The condition on the range, unless it is our own date: the bytes under a URL never change, so that date is as
/// strong a validator as the tag, and a BMC that prefers dates must not be sent the whole image each time.
fn if_range<'h>(headers: &'h HeaderMap, body: &Body) -> Option<&'h str> {
    if !headers.contains_key(IF_RANGE) {
        return None;
    }
    let condition = sole(headers, &IF_RANGE).unwrap_or_default();
    (body.last_modified() != Some(condition.trim())).then_some(condition)
}

/// Whether the client says that it has these very bytes already (weak comparison, section 13.1.2).
fn matches_known_tag(headers: &HeaderMap, etag: &str) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value
            .split(',')
            .map(str::trim)
            .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
    })
}

/// A part of an image as an HTTP body of exactly known size.
struct ExactBody {
    body: Body,
    observer: Arc<dyn ReadObserver>,
    promises: Option<FileSending>,
    /// Of the next byte to hand over.
    offset: u64,
    /// Bytes still to hand over.
    remaining: u64,
    /// The read of the next chunk, when it has been started.
    ahead: Option<JoinHandle<io::Result<Bytes>>>,
}

impl ExactBody {
    /// Starts to read the chunk at `offset` where blocking is allowed.
    fn start(&self, offset: u64, remaining: u64) -> JoinHandle<io::Result<Bytes>> {
        let body = self.body.clone();
        tokio::task::spawn_blocking(move || read_chunk(&body, offset, remaining))
    }

    /// Where the next bytes lie, when the connection can send them and they are not the last.
    fn direct(&self) -> Option<(&FileSending, FileRange)> {
        let promises = self.promises.as_ref()?;
        let early = self.remaining.saturating_sub(CHUNK);
        let range = self.body.file_at(self.offset)?;
        let range = FileRange { len: range.len.min(early), ..range };
        (range.len >= DIRECT).then_some((promises, range))
    }

    /// What stands for the next bytes.
    fn promise(&self) -> Option<Bytes> {
        let (promises, range) = self.direct().filter(|_| self.ahead.is_none())?;
        promises.0.promise(&range.file, range.offset, range.len)
    }

    /// Tells of `chunk` and moves past it.
    fn hand_over(&mut self, chunk: Bytes) -> Frame<Bytes> {
        let len = chunk.len() as u64;
        self.observer.read(self.offset, len);
        self.offset += len;
        self.remaining = self.remaining.saturating_sub(len);
        Frame::data(chunk)
    }

    /// Ends the body before its length, which makes the server break the connection.
    fn fail(&mut self, error: io::Error) -> io::Error {
        tracing::warn!(offset = self.offset, image = %self.body.digest(), error = %error, "media read stopped, connection broken");
        self.remaining = 0;
        error
    }
}

fn read_chunk(body: &Body, offset: u64, remaining: u64) -> io::Result<Bytes> {
    let mut buffer = vec![0; usize::try_from(remaining.min(CHUNK)).unwrap_or(CHUNK as usize)];
    body.read_exact_at(offset, &mut buffer)?;
    Ok(buffer.into())
}

impl http_body::Body for ExactBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.remaining == 0 {
            return Poll::Ready(None);
        }
        if this.observer.ended() {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "the grant for this image has ended");
            return Poll::Ready(Some(Err(this.fail(error))));
        }
        let at_once = this.body.in_memory() || in_place();
        let read = if let Some(promised) = this.promise() {
            return Poll::Ready(Some(Ok(this.hand_over(promised))));
        } else if at_once {
            read_chunk(&this.body, this.offset, this.remaining)
        } else {
            let mut reading = match this.ahead.take() {
                Some(reading) => reading,
                None => this.start(this.offset, this.remaining),
            };
            match Pin::new(&mut reading).poll(context) {
                Poll::Pending => {
                    this.ahead = Some(reading);
                    return Poll::Pending;
                }
                Poll::Ready(read) => read.unwrap_or_else(|stopped| Err(io::Error::other(stopped))),
            }
        };
        let chunk = match read {
            Ok(chunk) => chunk,
            Err(error) => return Poll::Ready(Some(Err(this.fail(error)))),
        };
        let frame = this.hand_over(chunk);
        if this.remaining > 0 && !at_once && this.direct().is_none() {
            this.ahead = Some(this.start(this.offset, this.remaining));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
