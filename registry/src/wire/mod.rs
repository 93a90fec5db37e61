//! A TCP connection that sends parts of files without copying them, under an HTTP server that knows nothing of it.
//!
//! ```text
//!  body of an answer            hyper                            Wire                          socket
//!  placeholder(file, 0, 2 Mi) -> queues the slice, uncopied    ->   the slice is a stand-in:  ->  sendfile(file, 0, 2 Mi)
//!        |                    counts what was taken         <-   as much as was taken      <-
//!        |                                                        ^
//!        `--- the part itself: file, offset, length --- owed -----'     one queue for each connection
//! ```
//!
//! A body hands over *stand-ins*: slices of one region of memory that is never written and never read. What they stand for
//! waits in a queue of the connection. The server keeps the slices as they are until it writes them, and then the
//! connection knows them by their address, and sends what comes next in the queue. Everything else passes untouched.
//!
//! Invariants:
//!
//! - No stand-in is ever sent as content. Before every write, what the server offers must hold exactly the stand-ins that
//!   are owed: each of them, in order, each with what is left of it, and no other. A server that copied one, dropped one,
//!   cut one short or kept one for another connection offers something else, and the connection breaks before the
//!   next byte. This needs nothing of the server but that it offers all it holds at once, which is checked with it.
//! - A file that ends before its promised end breaks the connection. Nothing is filled up, nobody waits.
//! - The thread of the connection never waits for the disk. A part is sent when the page cache has it, as far as samples
//!   tell; otherwise a blocking thread reads it first. Asked again whenever the client kept the part waiting.
//! - Memory and threads: none for what is cached; 64 KiB on one blocking thread for a connection that waits for its disk.
//!
//! What is on its way is the page of the cache itself: only files that nobody changes in place may be sent like this.
//! Where there is no `sendfile` as Linux has it, there is no [`FileSender`] either, and answers are read and written.

mod kernel;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use self::kernel::{Kernel, System};

/// The longest stand-in. Each `sendfile` wakes the client at its end: in parts of 256 KiB that cost half as much again as the
/// sending itself.
const LONGEST: usize = 2 << 20;
/// Stand-ins that may be on their way at once. An HTTP/1 server holds fewer before it writes.
const OPEN: usize = 32;
const TEXT: [u8; 64] = *b"[this stands for a part of a file and must never have been sent]";
/// What stand-ins are slices of.
static REGION: [[u8; TEXT.len()]; LONGEST / TEXT.len()] = [TEXT; LONGEST / TEXT.len()];

/// Why a connection was broken.
#[derive(Debug, thiserror::Error)]
enum WireError {
    #[error("send a part of a file: the server does not offer what was handed to it; nothing of it was sent")]
    NotOffered,
    #[error("send a part of a file: it ends at {at}, {left} bytes before the promised end")]
    Ended { at: u64, left: usize },
}

/// A part of a file that was promised and is not sent yet.
#[derive(Debug)]
struct PendingFileRange {
    file: Arc<File>,
    /// Of the next byte to send.
    offset: u64,
    /// Bytes already sent.
    sent: usize,
    /// Bytes still to send.
    left: usize,
}

/// Promises parts of files to one connection. Travels with each of its requests as an extension.
#[derive(Clone, Debug, Default)]
pub struct FileSender(Arc<Mutex<VecDeque<PendingFileRange>>>);

impl FileSender {
    /// Stands for the bytes of `file` from `offset` on: `length` of them, or as many as go at once. For the body of the
    /// answer to the request that this came with, to be handed over as it is and at once. `None` when too many are on
    /// their way, which is no state a server gets into by itself: read the file then.
    pub fn placeholder(&self, file: &Arc<File>, offset: u64, length: u64) -> Option<Bytes> {
        let length = usize::try_from(length).unwrap_or(LONGEST).min(LONGEST);
        let mut owed = self.lock();
        if owed.len() == OPEN {
            return None;
        }
        if length > 0 {
            owed.push_back(PendingFileRange { file: Arc::clone(file), offset, sent: 0, left: length });
        }
        Some(Bytes::from_static(&REGION.as_flattened()[..length]))
    }

    /// Whether what a server offers holds the stand-ins that are owed and no other; where the first one is.
    fn check(&self, offered: &[IoSlice<'_>]) -> Result<Option<usize>, WireError> {
        let owed = self.lock();
        let mut expected = owed.iter();
        let mut first = None;
        for (index, slice) in offered.iter().enumerate() {
            let Some(place) = place(slice) else { continue };
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

    fn lock(&self) -> MutexGuard<'_, VecDeque<PendingFileRange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where in the region a slice begins, if it is of it.
fn place(slice: &[u8]) -> Option<usize> {
    let region = REGION.as_flattened();
    let place = slice.as_ptr().addr().checked_sub(region.as_ptr().addr())?;
    (place < region.len() && !slice.is_empty()).then_some(place)
}

/// A TCP connection that sends parts of files by itself.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    owed: FileSender,
    kernel: &'static dyn Kernel,
    /// Reads what comes next into the page cache.
    fetching: Option<JoinHandle<()>>,
    /// Whether what comes next was found in the page cache, and the client did not keep it waiting since.
    at_hand: bool,
}

impl Wire {
    /// Takes over a connection.
    pub fn new(stream: TcpStream) -> Self {
        Self::over(stream, &System)
    }

    fn over(stream: TcpStream, kernel: &'static dyn Kernel) -> Self {
        Wire { stream, owed: FileSender::default(), kernel, fetching: None, at_hand: false }
    }

    /// What promises parts of files to this connection; `None` where the system cannot send them.
    pub fn file_sender(&self) -> Option<FileSender> {
        cfg!(target_os = "linux").then(|| self.owed.clone())
    }

    /// Sends of the part that comes next what the socket takes.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            if let Some(fetching) = &mut self.fetching {
                let fetched = ready!(Pin::new(fetching).poll(context));
                self.fetching = None;
                fetched.map_err(io::Error::other)?;
                self.at_hand = true;
            }
            if self.stream.poll_write_ready(context)?.is_pending() {
                // Until the client takes more, it may leave the cache.
                self.at_hand = false;
                return Poll::Pending;
            }
            let mut owed = self.owed.lock();
            let Some(next) = owed.front_mut() else {
                return Poll::Ready(Err(io::Error::other(WireError::NotOffered)));
            };
            let (offset, left) = (next.offset, next.left);
            if !self.at_hand && !self.kernel.at_hand(&next.file, offset, left) {
                let (kernel, file) = (self.kernel, Arc::clone(&next.file));
                self.fetching = Some(tokio::task::spawn_blocking(move || kernel.fetch(&file, offset, left)));
                continue;
            }
            self.at_hand = true;
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
                        owed.pop_front();
                        self.at_hand = false;
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

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        offered: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let ordinary = match this.owed.check(offered) {
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

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
