//! A verified firmware file as a stream: pieces are read on the blocking threads, one at a time. A file in memory is read without
//! them, so that a simulation needs no thread.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
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
}

impl FirmwareStream {
    pub(super) fn new(file: VerifiedFirmware) -> Self {
        Self { file, offset: 0, piece: Vec::new(), taken: 0, reading: None }
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
            out.put_slice(&left[..count]);
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
        out.put_slice(&self.piece[from..from + count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}
