//! A blob as a response body, read in pieces while the client receives it.
//!
//! Over a connection that sends files itself (see `wire`) a piece is a placeholder and nothing is read here. Otherwise:
//!
//! ```text
//!            +--> in the page cache: read here, without blocking -------------+
//!  next piece|                                                                +--> buffer --> connection
//!            +--> not cached: a blocking thread reads it and reads ahead -----+      |
//!                                                                                    v dropped when sent
//!                                                            pool of buffers, a few of them kept
//! ```
//!
//! Cached content needs no change of threads. Buffers are reused: allocating one of this size costs the kernel more
//! than filling it. The pool keeps only returned buffers; the number in use depends on the connections, each of which
//! uses two at most.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use parking_lot::Mutex;

use crate::store::BlobFile;
use crate::wire::FileSender;

/// Fits the processor's cache together with the kernel's copy.
const PIECE: usize = 256 << 10;
/// Buffers kept for the next reader: 4 MiB.
const KEPT: usize = 16;

/// Blobs of at least this size are sent by the connection. For smaller ones reading is cheaper.
const DIRECT: u64 = 128 << 10;

/// Unused buffers.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Box<[u8]>>>);

/// A buffer that returns to its pool when dropped.
struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// A buffer for `wanted` bytes. A small one is allocated for the purpose, so that small blobs do not hold large
    /// buffers.
    fn take(self: &Arc<Self>, wanted: usize) -> Buffer {
        let large = wanted > PIECE / 2;
        let kept = large.then(|| self.0.lock().pop()).flatten();
        let size = if large { PIECE } else { wanted };
        let bytes = kept.unwrap_or_else(|| vec![0; size].into_boxed_slice());
        Buffer { bytes, filled: 0, home: Arc::clone(self) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() != PIECE {
            return;
        }
        let mut kept = self.home.0.lock();
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// `count` bytes of the blob, beginning at `first`. A file that ends early breaks the connection: the client must not
/// take a part for the whole.
pub(super) fn stream(
    blob: BlobFile,
    first: u64,
    count: u64,
    buffers: Arc<Buffers>,
    sender: Option<FileSender>,
) -> Body {
    let ways = Arc::new((buffers, sender.filter(|_| count >= DIRECT)));
    Body::from_stream(stream::unfold((blob, first, count), move |(blob, offset, left)| {
        let ways = Arc::clone(&ways);
        async move {
            if left == 0 {
                return None;
            }
            let (buffers, sender) = &*ways;
            let direct = sender.as_ref().and_then(|sender| sender.placeholder(blob.file(), offset, left));
            let piece = match direct {
                Some(piece) => Ok(piece),
                None => next(&blob, offset, left, buffers).await,
            };
            match piece {
                Ok(piece) => {
                    let length = piece.len() as u64;
                    Some((Ok(piece), (blob, offset + length, left - length)))
                }
                Err(error) => {
                    tracing::error!(digest = %blob.digest(), error = %error, "a blob could not be read to its end");
                    Some((Err(error), (blob, offset, 0)))
                }
            }
        }
    }))
}

async fn next(blob: &BlobFile, offset: u64, left: u64, buffers: &Arc<Buffers>) -> io::Result<Bytes> {
    let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
    let mut buffer = buffers.take(wanted);
    buffer.filled = blob.read_cached(&mut buffer.bytes[..wanted], offset);
    if buffer.filled > 0 {
        return Ok(Bytes::from_owner(buffer));
    }
    let blob = blob.clone();
    let read = tokio::task::spawn_blocking(move || {
        blob.read_exact_at(&mut buffer.bytes[..wanted], offset)?;
        blob.read_ahead(offset + wanted as u64);
        buffer.filled = wanted;
        Ok(Bytes::from_owner(buffer))
    });
    read.await?
}
