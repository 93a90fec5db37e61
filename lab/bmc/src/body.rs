//! Bodies of responses on a socket: whole, or altered in transfer by a fault.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

/// The transfer of the body of a response: an extension of the response, absent when the body is sent whole.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyTransfer {
    /// Chunked, without a length.
    Chunked,
    /// The connection is reset after this many bytes.
    Cut(usize),
    /// One byte at a time, with this pause between two bytes.
    Trickle(Duration),
    /// The body padded with spaces to this length.
    Padded(u64),
}

/// Filler of a body that is too long, sent in pieces of this size.
const FILLER: &[u8] = &[b' '; 16 * 1024];

/// A response body as it is sent.
pub(super) enum FaultyBody {
    /// The whole body with its length.
    Whole(Option<Bytes>),
    /// The whole body without a length.
    Chunked(Option<Bytes>),
    /// The beginning of the body, then a reset of the connection.
    Cut { first: Option<Bytes>, flushed: bool, reset: Arc<AtomicBool> },
    /// One byte at a time, with a pause between two bytes.
    Trickle { rest: Bytes, pause: Duration, sleep: Pin<Box<Sleep>> },
    /// The body, then `left` bytes of filler.
    Padded { first: Option<Bytes>, left: u64 },
    /// No byte: the connection is cut at once.
    Broken,
}

impl FaultyBody {
    /// Creates the body of a response. The body sets `reset` when the connection must be reset in the middle of it.
    pub(super) fn new(bytes: Bytes, transfer: Option<BodyTransfer>, reset: &Arc<AtomicBool>) -> Self {
        let some = |bytes: Bytes| Some(bytes).filter(|bytes| !bytes.is_empty());
        match transfer {
            None => Self::Whole(some(bytes)),
            Some(BodyTransfer::Chunked) => Self::Chunked(some(bytes)),
            Some(BodyTransfer::Cut(kept)) => {
                let first = some(bytes.slice(..kept.min(bytes.len())));
                Self::Cut { first, flushed: false, reset: Arc::clone(reset) }
            }
            Some(BodyTransfer::Trickle(pause)) => {
                Self::Trickle { rest: bytes, pause, sleep: Box::pin(tokio::time::sleep(pause)) }
            }
            Some(BodyTransfer::Padded(length)) => {
                let left = length.saturating_sub(bytes.len() as u64);
                Self::Padded { first: some(bytes), left }
            }
        }
    }
}

impl Body for FaultyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let some = |bytes: Bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        let broken = || Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset))));
        match &mut *self {
            Self::Whole(bytes) | Self::Chunked(bytes) => bytes.take().map_or(Poll::Ready(None), some),
            Self::Cut { first, flushed, reset } => {
                if let Some(bytes) = first.take() {
                    return some(bytes);
                }
                if !*flushed {
                    // One more poll, in which the connection writes the bytes returned before.
                    *flushed = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                reset.store(true, Ordering::Relaxed);
                broken()
            }
            Self::Trickle { rest, pause, sleep } => {
                if rest.is_empty() {
                    return Poll::Ready(None);
                }
                std::task::ready!(sleep.as_mut().poll(context));
                sleep.as_mut().reset(tokio::time::Instant::now() + *pause);
                some(rest.split_to(1))
            }
            Self::Padded { first, left } => {
                if let Some(bytes) = first.take() {
                    return some(bytes);
                }
                let size = usize::try_from(*left).unwrap_or(FILLER.len()).min(FILLER.len());
                *left -= size as u64;
                if size == 0 { Poll::Ready(None) } else { some(Bytes::from_static(&FILLER[..size])) }
            }
            Self::Broken => broken(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            _ => SizeHint::default(),
        }
    }
}
