//! The HTTP response to one request for an image.
//!
//! ```text
//! GET, HEAD ── If-None-Match holds ─────────────> 304
//!          └── Range (see `range`) ── Full ─────> 200  Content-Length: len
//!                                  ├─ Partial ──> 206  Content-Length: part   Content-Range: bytes a-b/len
//!                                  └─ neither ──> 416  Content-Range: bytes */len
//! other ────────────────────────────────────────> 405  Allow: GET, HEAD
//!
//! the body of a disk image:   poll: | send chunk n   | send chunk n+1 | ...
//!                    blocking pool: | read chunk n+1 | read chunk n+2 |      one chunk ahead, never two
//! ```
//!
//! On a connection that supports sendfile, the body contains placeholders for parts of files, and the connection sends
//! these parts. Only the last chunk of the response is read: the read detects a file that was changed meanwhile, and then
//! the connection is broken before the client has a complete response with mixed content.
//!
//! Invariants: every response has an exact length, HEAD included, so no response is chunked and HTTP/1.0 works; at most
//! two chunks of 256 KiB are in memory for each request; a failed read breaks the connection, so that a client never takes
//! a part of an image for the whole image; the observer is notified of bytes when they are sent, not when they are
//! requested.
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
use tracing::Span;

use super::body::ImageBody;
use super::offload::in_place;
use super::range::{Selection, evaluate};

/// The size of a chunk: bytes read and sent at a time.
const CHUNK: u64 = 256 * 1024;
/// The smallest part of a file that is sent with sendfile.
const SENDFILE_MIN: u64 = 64 * 1024;

/// Observes every read of an image.
pub trait ReadObserver: Send + Sync {
    /// Called when `len` bytes at `offset` are passed to the connection.
    fn read(&self, offset: u64, len: u64);

    /// Whether the right to read has ended. Checked before every chunk; if true, the connection is broken.
    fn ended(&self) -> bool {
        false
    }

    /// The span of the log lines about the response. The connection sends the body after the request was handled, so the
    /// lines are outside of the span of the request.
    fn span(&self) -> Span {
        Span::none()
    }
}

/// Sends parts of files on the connection of a request without copying them through the process (sendfile).
pub trait SendFiles: Send + Sync {
    /// Returns a placeholder for `length` bytes of `file` at `offset`, or for the first of them. `None` when the bytes must
    /// be read.
    fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes>;
}

/// The request extension of a connection that supports sendfile.
#[derive(Clone)]
pub struct FileSending(Arc<dyn SendFiles>);

impl FileSending {
    /// An extension for a connection whose file sender is `sender`.
    pub fn new(sender: impl SendFiles + 'static) -> Self {
        Self(Arc::new(sender))
    }
}

/// Builds the response to a request for `body`.
pub fn respond(body: &ImageBody, request: &Parts, observer: Arc<dyn ReadObserver>) -> Response {
    let headers = &request.headers;
    let serving = Serving { body, observer, file_sending: request.extensions.get() };
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

/// A response without a body and with `Content-Length: 0`.
pub(super) fn empty(status: StatusCode, headers: &[(HeaderName, HeaderValue)]) -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    response.headers_mut().extend(headers.iter().cloned());
    response
}

/// The inputs of a response.
struct Serving<'a> {
    body: &'a ImageBody,
    observer: Arc<dyn ReadObserver>,
    file_sending: Option<&'a FileSending>,
}

/// A response with `len` bytes at `offset`; without a body for HEAD.
fn content(serving: Serving<'_>, is_get: bool, offset: u64, len: u64) -> Response {
    let Serving { body, observer, file_sending } = serving;
    let mut response = Response::new(if is_get {
        axum::body::Body::new(ExactBody {
            body: body.clone(),
            observer,
            file_sending: file_sending.cloned(),
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
    // The values are digits, dates and hexadecimal, which are always valid header values.
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(name, value);
    }
}

/// The value of a header that was sent exactly once. A header that was sent twice or is not visible ASCII counts as
/// malformed.
fn sole<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// The value of `If-Range`, or `None` when it equals our `Last-Modified` date. The bytes of a URL never change, so the date
/// is as strong a validator as the tag, and a BMC that sends dates must not receive the whole image each time.
fn if_range<'h>(headers: &'h HeaderMap, body: &ImageBody) -> Option<&'h str> {
    if !headers.contains_key(IF_RANGE) {
        return None;
    }
    let condition = sole(headers, &IF_RANGE).unwrap_or_default();
    (body.last_modified() != Some(condition.trim())).then_some(condition)
}

/// Whether `If-None-Match` names the entity tag of the body (weak comparison, section 13.1.2).
fn matches_known_tag(headers: &HeaderMap, etag: &str) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value
            .split(',')
            .map(str::trim)
            .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
    })
}

/// A part of an image as an HTTP body of exact size.
struct ExactBody {
    body: ImageBody,
    observer: Arc<dyn ReadObserver>,
    file_sending: Option<FileSending>,
    /// The offset of the next byte to send.
    offset: u64,
    /// The number of bytes still to send.
    remaining: u64,
    /// The read of the next chunk, if it was started.
    ahead: Option<JoinHandle<io::Result<Bytes>>>,
}

impl ExactBody {
    /// Starts a read of the chunk at `offset` on a thread that may block.
    fn start_read(&self, offset: u64, remaining: u64) -> JoinHandle<io::Result<Bytes>> {
        let body = self.body.clone();
        tokio::task::spawn_blocking(move || read_chunk(&body, offset, remaining))
    }

    /// The file range of the next bytes, if sendfile is supported and the range is not in the last chunk.
    fn sendfile_range(&self) -> Option<(&FileSending, FileRange)> {
        let file_sending = self.file_sending.as_ref()?;
        let early = self.remaining.saturating_sub(CHUNK);
        let range = self.body.file_at(self.offset)?;
        let range = FileRange { len: range.len.min(early), ..range };
        (range.len >= SENDFILE_MIN).then_some((file_sending, range))
    }

    /// The placeholder for the next bytes.
    fn placeholder(&self) -> Option<Bytes> {
        let (file_sending, range) = self.sendfile_range().filter(|_| self.ahead.is_none())?;
        file_sending.0.placeholder(&range.file, range.offset, range.len)
    }

    /// Notifies the observer of `chunk` and advances past it.
    fn send(&mut self, chunk: Bytes) -> Frame<Bytes> {
        let len = chunk.len() as u64;
        self.observer.read(self.offset, len);
        self.offset += len;
        self.remaining = self.remaining.saturating_sub(len);
        Frame::data(chunk)
    }

    /// Ends the body before its length, so that the server breaks the connection.
    fn fail(&mut self, error: io::Error) -> io::Error {
        self.observer.span().in_scope(|| {
            tracing::warn!(offset = self.offset, image = %self.body.digest(), error = %error, "media response stopped early, connection broken");
        });
        self.remaining = 0;
        error
    }
}

fn read_chunk(body: &ImageBody, offset: u64, remaining: u64) -> io::Result<Bytes> {
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
        let read = if let Some(placeholder) = this.placeholder() {
            return Poll::Ready(Some(Ok(this.send(placeholder))));
        } else if at_once {
            read_chunk(&this.body, this.offset, this.remaining)
        } else {
            let mut reading = match this.ahead.take() {
                Some(reading) => reading,
                None => this.start_read(this.offset, this.remaining),
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
        let frame = this.send(chunk);
        if this.remaining > 0 && !at_once && this.sendfile_range().is_none() {
            this.ahead = Some(this.start_read(this.offset, this.remaining));
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
