//! A stream that notices when a response was sent and when its client stops reading.
//!
//! ```text
//!   write: accepted by the kernel ──────────────> progress, the clock starts anew
//!          not accepted for the stall limit ────> the connection breaks
//!   flush: everything accepted ─────────────────> a finished response ends its request
//!   shutdown after a body that was not read ────> the end is sent, then what arrives is discarded until the client ends, for
//!                                                 LINGER at most
//! ```
//!
//! A kernel that has unread bytes of a client when a connection is closed tells the client so, and the client's kernel then drops the
//! response. A client that sends a long body receives the refusal only if its bytes are read meanwhile (RFC 9112, section 9.6).
//!
//! Invariant: bytes and slices pass unchanged, so that the stream below recognises those that stand for parts of files.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may go on sending a body after its refusal was sent.
const LINGER: Duration = Duration::from_secs(2);
/// The most bytes of such a body that are read.
const LINGER_BYTES: usize = 16 << 20;

use super::admission::Connection;

/// The stream of an admitted connection.
pub(in crate::app) struct AdmittedStream<S> {
    stream: S,
    connection: Arc<Connection>,
    /// Ends when the client has taken no byte for too long.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Since the end was sent: the end of [`LINGER`], and how many bytes may still be read.
    lingering: Option<(Pin<Box<Sleep>>, usize)>,
}

impl<S> AdmittedStream<S> {
    /// Wraps the stream of a connection, encrypted or not.
    pub(in crate::app) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, stalled: None, lingering: None }
    }

    /// Ends the time of a client without progress, or measures it.
    fn progress<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let limit = self.connection.stall_limit();
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if stalled.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.stalled = None;
        let why = format!("the client took no byte of the response for {} s", limit.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncRead + Unpin> AdmittedStream<S> {
    /// Discards what arrives, until the client ends or [`LINGER`] is over. Its errors are of no use any more.
    fn poll_discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (until, left) =
            self.lingering.get_or_insert_with(|| (Box::pin(tokio::time::sleep(LINGER)), LINGER_BYTES));
        let mut scratch = [0; 8192];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {
                    *left = left.saturating_sub(buffer.filled().len());
                    if buffer.filled().is_empty() || *left == 0 {
                        return Poll::Ready(());
                    }
                }
            }
        }
        until.as_mut().poll(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for AdmittedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.progress(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.progress(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        if matches!(polled, Poll::Ready(Ok(()))) {
            this.connection.flushed();
        }
        this.progress(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            let polled = Pin::new(&mut this.stream).poll_shutdown(context);
            ready!(this.progress(context, polled))?;
        }
        if this.connection.has_unread() {
            ready!(this.poll_discard(context));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AdmittedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}
