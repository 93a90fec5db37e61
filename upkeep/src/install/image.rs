//! A verified firmware file as a stream: pieces are read on the blocking threads, one at a time. A file in memory is read without
//! them, so that a simulation needs no thread.
//!
//! ```text
//!   all pieces but the last ─► LastPiece::reached ─► the record is durable ─► LastPiece::allow ─► the last piece
//!                                    └─ dropped ─► an error: the BMC never has the whole image
//! ```
//!
//! Invariant: the last piece is not given out before [`LastPiece::allow`]. Until then a BMC cannot have the whole image.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use firmware::VerifiedFirmware;

const PIECE: usize = 64 * 1024;

/// The bytes of a file, from its beginning.
pub(super) struct FirmwareStream {
    file: VerifiedFirmware,
    offset: u64,
    piece: Vec<u8>,
    taken: usize,
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
    /// Notifies the owner of the [`LastPiece`] that the last piece is the next one.
    reached: Option<oneshot::Sender<()>>,
    allowed: Allowed,
}

/// Whether the last piece may be given out.
enum Allowed {
    Yes,
    Waits(oneshot::Receiver<()>),
}

/// The last piece of a stream, which its owner holds back.
pub(super) struct LastPiece {
    /// `None` once the stream has ended without it.
    reached: Option<oneshot::Receiver<()>>,
    allow: oneshot::Sender<()>,
}

impl LastPiece {
    /// Waits until the last piece is the next one; for ever, if the stream ends before.
    pub(super) async fn reached(&mut self) {
        if let Some(reached) = &mut self.reached
            && reached.await.is_ok()
        {
            return;
        }
        self.reached = None;
        std::future::pending().await
    }

    /// Lets the last piece follow.
    pub(super) fn allow(self) {
        // A stream that is gone sends nothing.
        let _gone = self.allow.send(());
    }
}

impl FirmwareStream {
    /// The stream of a file, and what holds back its last piece.
    pub(super) fn new(file: VerifiedFirmware) -> (Self, LastPiece) {
        let (at_end, reached) = oneshot::channel();
        let (allow, allowed) = oneshot::channel();
        let allowed = Allowed::Waits(allowed);
        let stream = Self {
            file,
            offset: 0,
            piece: Vec::new(),
            taken: 0,
            reading: None,
            reached: Some(at_end),
            allowed,
        };
        (stream, LastPiece { reached: Some(reached), allow })
    }

    /// Ready when the last piece may be given out.
    fn poll_allowed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Allowed::Waits(waits) = &mut self.allowed else { return Poll::Ready(Ok(())) };
        if let Some(reached) = self.reached.take() {
            // An owner that is gone has dropped the other half too, which is the error.
            let _gone = reached.send(());
        }
        let allowed = ready!(Pin::new(waits).poll(cx));
        if allowed.is_err() {
            return Poll::Ready(Err(io::Error::other("the end of the image was not recorded")));
        }
        self.allowed = Allowed::Yes;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for FirmwareStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(bytes) = self.file.in_memory() {
            let from = usize::try_from(self.offset).unwrap_or(bytes.len());
            let left = bytes.get(from..).unwrap_or_default();
            let count = out.remaining().min(left.len()).min(PIECE);
            if count == left.len() {
                ready!(self.poll_allowed(cx))?;
            }
            let Some(bytes) = self.file.in_memory() else { return Poll::Ready(Ok(())) };
            out.put_slice(&bytes[from..from + count]);
            self.offset += count as u64;
            return Poll::Ready(Ok(()));
        }
        if self.taken == self.piece.len() {
            if self.reading.is_none() {
                let (file, offset) = (self.file.clone(), self.offset);
                self.reading = Some(tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; PIECE];
                    let read = file.read_at(&mut piece, offset)?;
                    piece.truncate(read);
                    Ok(piece)
                }));
            }
            let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(())) };
            let piece = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other)?;
            self.reading = None;
            self.piece = piece?;
            self.taken = 0;
            self.offset += self.piece.len() as u64;
        }
        let count = out.remaining().min(self.piece.len() - self.taken);
        let from = self.taken;
        if from + count == self.piece.len() && self.offset >= self.file.file().size {
            ready!(self.poll_allowed(cx))?;
        }
        out.put_slice(&self.piece[from..from + count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use sha2::{Digest, Sha256};
    use tokio::io::AsyncReadExt;

    use super::*;
    use firmware::{Component, FirmwareFile, Sha256Digest};

    fn stream(size: usize) -> (FirmwareStream, LastPiece) {
        let image: Arc<[u8]> = vec![7; size].into();
        let of = ("Example".parse().unwrap(), BTreeSet::from(["One".parse().unwrap()]), Component::Bios);
        let sha256 = Sha256Digest::new(Sha256::digest(&image).into());
        let file = FirmwareFile::new(of, "1.0", ("x.bin".parse().unwrap(), sha256, size as u64)).unwrap();
        FirmwareStream::new(VerifiedFirmware::check_bytes(image, file).unwrap())
    }

    #[tokio::test]
    async fn the_last_piece_follows_only_after_its_permission() {
        for size in [PIECE * 2 + 5, PIECE, 1] {
            let (mut stream, mut last) = stream(size);
            let mut bytes = Vec::new();
            let reads = stream.read_to_end(&mut bytes);
            tokio::select! {
                biased;
                read = reads => panic!("{size}: {read:?} before the permission"),
                () = last.reached() => {}
            }
            assert!(bytes.len() < size, "{size}");
            last.allow();
            stream.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes.len(), size);
        }
    }

    #[tokio::test]
    async fn an_image_whose_end_is_not_recorded_never_ends() {
        let (mut stream, last) = stream(PIECE + 1);
        drop(last);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap_err();
        assert!(bytes.len() <= PIECE);
    }
}
