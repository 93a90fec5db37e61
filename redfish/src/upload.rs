//! The body of an upload: a head, an image that is read from a stream, and a tail, with an exact length.
//!
//! ```text
//!   head (form fields)  |  image, read in pieces of 64 KiB  |  tail (end of the form)      Content-Length = all three
//!        before each piece: does the sender still own the server? if not, the body ends with an error
//!        after each piece:  UploadProgress counts what the connection took
//! ```
//!
//! Invariants: at most one piece of the image is in memory; a body that ends early breaks the connection, so that the BMC
//! never sees a complete request; [`UploadProgress::is_complete`] is false as long as one byte was not handed to the
//! connection, and then the BMC cannot have the whole image.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

/// Size of the pieces in which an image is read and sent.
const PIECE: usize = 64 * 1024;
/// Maximum size of an upload that a transport without streams keeps in memory.
const MAX_COLLECTED: u64 = 64 * 1024 * 1024;

/// The progress of an upload: the bytes that were handed to the connection; clones share the count.
#[derive(Clone, Debug, Default)]
pub struct UploadProgress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    total: AtomicU64,
    fenced: AtomicBool,
    unreadable: AtomicBool,
}

impl UploadProgress {
    /// Bytes handed to the connection so far, with the form around the image.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Bytes of the whole body; 0 before the upload begins.
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Whether every byte was handed to the connection: the BMC may have the whole image.
    pub fn is_complete(&self) -> bool {
        self.total() > 0 && self.sent() >= self.total()
    }

    /// Whether the upload was broken off because the sender no longer owned the server.
    pub(crate) fn is_fenced(&self) -> bool {
        self.0.fenced.load(Ordering::Relaxed)
    }

    /// Whether the upload was broken off because the image could not be read to its announced end.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.0.unreadable.load(Ordering::Relaxed)
    }
}

/// Says before each piece whether the sender still owns the server.
pub(crate) type PieceFence = Box<dyn Fn() -> bool + Send + Sync>;

/// The body of an upload.
pub struct UploadBody {
    head: Bytes,
    image: Box<dyn AsyncRead + Send + Sync + Unpin>,
    image_left: u64,
    tail: Bytes,
    left: u64,
    progress: UploadProgress,
    fence: Option<PieceFence>,
}

/// The head may contain a session token and is not shown.
impl fmt::Debug for UploadBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UploadBody").field("left", &self.left).finish_non_exhaustive()
    }
}

impl UploadBody {
    /// Creates a body of which the image has exactly `length` bytes; a longer stream is cut, a shorter one is an error.
    pub(crate) fn new(
        head: impl Into<Bytes>,
        image: Box<dyn AsyncRead + Send + Sync + Unpin>,
        length: u64,
        tail: impl Into<Bytes>,
        progress: UploadProgress,
        fence: Option<PieceFence>,
    ) -> Self {
        let (head, tail) = (head.into(), tail.into());
        let left = head.len() as u64 + length + tail.len() as u64;
        progress.0.total.store(left, Ordering::Relaxed);
        progress.0.sent.store(0, Ordering::Relaxed);
        UploadBody { head, image, image_left: length, tail, left, progress, fence }
    }

    /// The bytes that are still to be sent: before the first one, the `Content-Length`.
    pub fn length(&self) -> u64 {
        self.left
    }

    /// Reads the whole body into memory, for a transport that cannot send a stream.
    ///
    /// # Errors
    ///
    /// When the body is larger than 64 MiB, the image cannot be read, or the sender no longer owns the server.
    pub async fn collect(mut self) -> io::Result<Bytes> {
        if self.left > MAX_COLLECTED {
            let detail = format!("{} bytes are too many for a transport without streams", self.left);
            return Err(io::Error::other(detail));
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = self.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes.freeze())
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        std::future::poll_fn(|context| self.poll_piece(context)).await
    }

    /// The next piece, counted as sent; `None` at the end of the body.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.fence.as_ref().is_some_and(|allows| !allows()) {
            self.progress.0.fenced.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(io::Error::other("this controller no longer owns the server"))));
        }
        let piece = if !self.head.is_empty() {
            std::mem::take(&mut self.head)
        } else if self.image_left > 0 {
            match ready!(self.poll_image(context)) {
                Ok(piece) => piece,
                Err(error) => {
                    self.progress.0.unreadable.store(true, Ordering::Relaxed);
                    return Poll::Ready(Some(Err(error)));
                }
            }
        } else {
            std::mem::take(&mut self.tail)
        };
        self.left -= piece.len() as u64;
        self.progress.0.sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(piece)))
    }

    fn poll_image(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let wanted = usize::try_from(self.image_left).unwrap_or(PIECE).min(PIECE);
        let mut bytes = BytesMut::zeroed(wanted);
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.image).poll_read(context, &mut buffer))?;
        let read = buffer.filled().len();
        if read == 0 {
            let detail = format!("the image ended {} bytes early", self.image_left);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, detail)));
        }
        bytes.truncate(read);
        self.image_left -= read as u64;
        Poll::Ready(Ok(bytes.freeze()))
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let piece = ready!(self.poll_piece(context));
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(image: Vec<u8>, length: u64, fence: Option<PieceFence>) -> (UploadBody, UploadProgress) {
        let progress = UploadProgress::default();
        let image = Box::new(io::Cursor::new(image));
        (UploadBody::new("head-", image, length, "-tail", progress.clone(), fence), progress)
    }

    #[tokio::test]
    async fn head_image_and_tail_follow_each_other_and_are_counted() {
        let (upload, progress) = body(vec![b'x'; 3], 3, None);
        assert_eq!(
            (upload.length(), upload.size_hint().exact(), progress.is_complete()),
            (13, Some(13), false)
        );
        assert_eq!(&upload.collect().await.unwrap()[..], b"head-xxx-tail");
        assert!(progress.is_complete());
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_never_makes_a_complete_body() {
        let (upload, progress) = body(vec![b'x'; 3], 4, None);
        let error = upload.collect().await.unwrap_err();
        assert!(error.to_string().contains("1 bytes early"), "{error}");
        assert!(progress.is_unreadable() && !progress.is_complete());
    }

    #[tokio::test]
    async fn a_sender_that_lost_the_server_stops_before_the_last_byte() {
        let left = AtomicU64::new(3);
        let fence: PieceFence = Box::new(move || left.fetch_sub(1, Ordering::Relaxed) > 1);
        let (upload, progress) = body(vec![b'x'; 3], 3, Some(fence));
        upload.collect().await.unwrap_err();
        assert!(progress.is_fenced() && !progress.is_complete());
    }

    #[tokio::test]
    async fn an_upload_keeps_one_piece_in_memory() {
        let (mut upload, _) = body(vec![b'x'; 3 * PIECE], 3 * PIECE as u64, None);
        while let Some(piece) = upload.next().await {
            assert!(piece.unwrap().len() <= PIECE);
        }
    }
}
