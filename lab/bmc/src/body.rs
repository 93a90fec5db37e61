//! Bodies of answers on a socket: whole, or as a fault has them travel.

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

use super::response_faults::Delivery;

/// The filler of a body that is too long, in pieces of this size.
const FILLER: &[u8] = &[b' '; 16 * 1024];

/// A body under way.
pub(super) enum Sending {
    /// In one piece.
    Whole(Option<Bytes>),
    /// In one piece of unannounced length.
    Chunked(Option<Bytes>),
    /// So much of it, then the end of the connection.
    Cut { first: Option<Bytes>, flushed: bool, reset: Arc<AtomicBool> },
    /// One byte at a time.
    Trickle { rest: Bytes, pause: Duration, sleep: Pin<Box<Sleep>> },
    /// So many bytes after the first ones.
    Padded { first: Option<Bytes>, left: u64 },
    /// Nothing, at once the end of the connection.
    Broken,
}

impl Sending {
    /// `reset` is set when the connection is to be reset in the middle of the body.
    pub(super) fn new(bytes: Bytes, delivery: Option<Delivery>, reset: &Arc<AtomicBool>) -> Self {
        let some = |bytes: Bytes| Some(bytes).filter(|bytes| !bytes.is_empty());
        match delivery {
            None => Self::Whole(some(bytes)),
            Some(Delivery::Chunked) => Self::Chunked(some(bytes)),
            Some(Delivery::Cut(kept)) => {
                let first = some(bytes.slice(..kept.min(bytes.len())));
                Self::Cut { first, flushed: false, reset: Arc::clone(reset) }
            }
            Some(Delivery::Trickle(pause)) => {
                Self::Trickle { rest: bytes, pause, sleep: Box::pin(tokio::time::sleep(pause)) }
            }
            Some(Delivery::Padded(length)) => {
                let left = length.saturating_sub(bytes.len() as u64);
                Self::Padded { first: some(bytes), left }
            }
        }
    }
}

impl Body for Sending {
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
                    // One more turn, in which what was given is written.
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
