//! A TCP connection that sends ranges of files without copying them, under an HTTP server that does not know about it.
//!
//! ```text
//!  response body                hyper                            SendfileStream                socket
//!  placeholder(file, 0, 2 Mi) -> queues the slice, uncopied    ->   the slice is a placeholder: -> sendfile(file, 0, 2 Mi)
//!        |                    counts what was written         <-   as much as was sent         <-
//!        |                                                        ^
//!        `--- the range itself: file, offset, length --- pending -'     one queue for each connection
//! ```
//!
//! A body returns *placeholders*: slices of one region of memory that is never written and never read. The file ranges
//! wait in a queue of the connection. The server keeps the slices until it writes them; the connection then recognises
//! them by their address and sends the next range of the queue. All other bytes pass unchanged.
//!
//! Invariants:
//!
//! - No placeholder is ever sent as content. Before every write, the slices of the server must hold exactly the
//!   placeholders of the pending ranges: each of them, in order, each with its remaining length, and no other. If a
//!   server copied one, dropped one, cut one short or kept one for another connection, the slices differ, and the
//!   connection breaks before the next byte. The server has to offer all it holds at once, which the same check
//!   verifies.
//! - A file that ends before its promised end breaks the connection. Nothing is padded, and no task waits.
//! - The thread of the connection never blocks on the disk. A range is sent when the page cache has it, as far as
//!   samples show; otherwise a blocking thread reads it first. The cache is checked again whenever the client kept the
//!   range waiting.
//! - Memory and threads: none for what is cached; 64 KiB on one blocking thread for a connection that waits for its
//!   disk.
//!
//! The kernel sends the pages of the cache themselves: only files that are never changed in place may be sent like
//! this. On systems without Linux's `sendfile` there is no [`FileSender`], and bodies are read and written.

mod kernel;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use self::kernel::{Kernel, System};

/// The longest placeholder. Each `sendfile` wakes the client at its end: with ranges of 256 KiB that costs half as much
/// again as the sending itself.
const LONGEST: usize = 2 << 20;
/// The most pending placeholders. An HTTP/1 server holds fewer before it writes.
const OPEN: usize = 32;
const TEXT: [u8; 64] = *b"[this stands for a part of a file and must never have been sent]";
/// The region that placeholders are slices of. It is made at the first use, because the program need not carry it.
static REGION: LazyLock<Vec<u8>> = LazyLock::new(|| TEXT.repeat(LONGEST / TEXT.len()));

/// The reason why a connection was broken.
#[derive(Debug, thiserror::Error)]
enum WireError {
    #[error(
        "send a file range: the server does not write the placeholders it received; nothing of them was sent"
    )]
    NotOffered,
    #[error("send a file range: the file ends at {at}, {left} bytes before the promised end")]
    Ended { at: u64, left: usize },
}

/// A file range that was promised and is not sent yet.
#[derive(Debug)]
struct PendingFileRange {
    file: Arc<File>,
    /// The offset of the next byte to send.
    offset: u64,
    /// Bytes already sent.
    sent: usize,
    /// Bytes still to send.
    left: usize,
}

/// Accepts file ranges for one connection. It is an extension of each of the connection's requests.
#[derive(Clone, Debug, Default)]
pub struct FileSender(Arc<Mutex<VecDeque<PendingFileRange>>>);

impl FileSender {
    /// Returns a placeholder for the bytes of `file` that begin at `offset`: `length` of them, or as many as one
    /// placeholder can hold. It belongs into the body of the response to the request that this sender came with,
    /// unchanged and at once. Returns `None` when too many are pending, which no server reaches by itself: the caller
    /// then reads the file.
    pub fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).unwrap_or(LONGEST).min(LONGEST);
        let mut pending = self.0.lock();
        if pending.len() == OPEN {
            return None;
        }
        if length > 0 {
            pending.push_back(PendingFileRange { file: Arc::clone(file), offset, sent: 0, left: length });
        }
        Some(Bytes::from_static(&REGION[..length]))
    }

    /// Checks that the slices of the server hold the pending placeholders and no others; returns where the first one
    /// is.
    fn check(&self, offered: &[IoSlice<'_>]) -> Result<Option<usize>, WireError> {
        let pending = self.0.lock();
        let mut expected = pending.iter();
        let mut first = None;
        for (index, slice) in offered.iter().enumerate() {
            let Some(place) = offset_in_region(slice) else { continue };
            let next = expected.next().ok_or(WireError::NotOffered)?;
            if (place, slice.len()) != (next.sent, next.left) {
                return Err(WireError::NotOffered);
            }
            first = first.or(Some(index));
        }
        match expected.next() {
            None => Ok(first),
            Some(_) => Err(WireError::NotOffered),
        }
    }
}

/// The offset of a slice in the region, if it is part of it.
fn offset_in_region(slice: &[u8]) -> Option<usize> {
    let region: &[u8] = &REGION;
    let place = slice.as_ptr().addr().checked_sub(region.as_ptr().addr())?;
    (place < region.len() && !slice.is_empty()).then_some(place)
}

/// A TCP connection that sends file ranges itself.
#[derive(Debug)]
pub struct SendfileStream {
    stream: TcpStream,
    pending: FileSender,
    kernel: &'static dyn Kernel,
    /// The read of the next range into the page cache.
    fetching: Option<JoinHandle<()>>,
    /// Whether the next range was found in the page cache, and the client has not kept it waiting since.
    is_cached: bool,
}

impl SendfileStream {
    /// Wraps a connection.
    pub fn new(stream: TcpStream) -> Self {
        Self::over(stream, &System)
    }

    fn over(stream: TcpStream, kernel: &'static dyn Kernel) -> Self {
        SendfileStream { stream, pending: FileSender::default(), kernel, fetching: None, is_cached: false }
    }

    /// The sender of this connection; `None` where the system cannot send file ranges.
    pub fn file_sender(&self) -> Option<FileSender> {
        cfg!(target_os = "linux").then(|| self.pending.clone())
    }

    /// Sends as much of the next range as the socket accepts.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            if let Some(fetching) = &mut self.fetching {
                let fetched = ready!(Pin::new(fetching).poll(context));
                self.fetching = None;
                fetched.map_err(io::Error::other)?;
                self.is_cached = true;
            }
            if self.stream.poll_write_ready(context)?.is_pending() {
                // Until the client takes more, the range may leave the cache.
                self.is_cached = false;
                return Poll::Pending;
            }
            let mut pending = self.pending.0.lock();
            let Some(next) = pending.front_mut() else {
                return Poll::Ready(Err(io::Error::other(WireError::NotOffered)));
            };
            let (offset, left) = (next.offset, next.left);
            if !self.is_cached && !self.kernel.is_cached(&next.file, offset, left) {
                let (kernel, file) = (self.kernel, Arc::clone(&next.file));
                self.fetching = Some(tokio::task::spawn_blocking(move || kernel.fetch(&file, offset, left)));
                continue;
            }
            self.is_cached = true;
            let sending = || self.kernel.send(&self.stream, &next.file, offset, left);
            match self.stream.try_io(Interest::WRITABLE, sending) {
                Ok(0) => {
                    let ended = WireError::Ended { at: offset, left };
                    tracing::error!(error = %ended, "a connection is broken");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, ended)));
                }
                Ok(sent) => {
                    next.offset += sent as u64;
                    next.sent += sent;
                    next.left -= sent;
                    if next.left == 0 {
                        pending.pop_front();
                        self.is_cached = false;
                    }
                    return Poll::Ready(Ok(sent));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Poll::Ready(Err(error)),
                },
            }
        }
    }
}

impl AsyncWrite for SendfileStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        offered: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let ordinary = match this.pending.check(offered) {
            Ok(None) => offered,
            Ok(Some(first)) => &offered[..first],
            Err(error) => {
                tracing::error!(%error, "a connection is broken");
                return Poll::Ready(Err(io::Error::other(error)));
            }
        };
        if ordinary.len() < offered.len() && ordinary.iter().all(|slice| slice.is_empty()) {
            this.poll_send(context)
        } else {
            Pin::new(&mut this.stream).poll_write_vectored(context, ordinary)
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for SendfileStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
