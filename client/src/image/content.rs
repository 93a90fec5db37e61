//! The content of an image file on its way into a registry, on threads that may block.
//!
//! ```text
//!   raw, qcow2   file ── content ── zstd ──┬── pieces ──> the request
//!                            │             └── unpacked again ──┐
//!                            └── SHA-256 ──────────── equal? ───┴── SHA-256
//!   gzip, zstd   file ──┬── SHA-256 of the file
//!                       └── unpacked ── SHA-256 of the content; the file is pushed as it is
//! ```
//!
//! Invariants: content is refused before it is stored if it is no image of a disk; what was packed here is stored only if it unpacks to
//! the content that was read; memory holds a few pieces of 128 KiB.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bytes::{Buf, Bytes};
use disk_file::{Form, MAX_DISK, Qcow2, checked, pack, unpacked};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::Sender;

/// The pieces that wait for a slower side.
pub(super) const PIECES: usize = 16;
const BUFFER: usize = 256 << 10;

/// A blob and the disk in it.
#[derive(Debug)]
pub(super) struct Blob {
    /// The digest of the blob: `sha256:` and hex.
    pub(super) digest: String,
    /// The bytes of the blob.
    pub(super) bytes: u64,
    /// The SHA-256 of the content, in hex.
    pub(super) disk_sha256: String,
    /// The bytes of the content.
    pub(super) disk_bytes: u64,
    /// The size of the sectors in bytes, if the partition table determines it.
    pub(super) sector: Option<u64>,
}

/// An image file whose form is known.
pub(super) struct ImageFile {
    pub(super) form: Form,
    /// The bytes of the content, or of the file if it is packed.
    pub(super) total: u64,
    content: Content,
}

enum Content {
    File(File),
    Qcow2(Box<Qcow2<File>>),
}

impl ImageFile {
    /// Opens a file and reads its header.
    pub(super) fn open(mut file: File) -> io::Result<Self> {
        let total = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let mut beginning = Vec::new();
        Read::by_ref(&mut file).take(Form::BEGINNING as u64).read_to_end(&mut beginning)?;
        file.rewind()?;
        let form = Form::of(&beginning).map_err(|why| invalid(&why.to_string()))?;
        if form == Form::Qcow2 {
            let disk = Qcow2::open(file)?;
            let total = disk.disk_bytes();
            return Ok(Self { form, total, content: Content::Qcow2(Box::new(disk)) });
        }
        Ok(Self { form, total, content: Content::File(file) })
    }

    /// Packs the content of a raw or qcow2 image into pieces. `done` counts the bytes of the content.
    pub(super) fn pack(self, pieces: Sender<Bytes>, done: &AtomicU64) -> io::Result<Blob> {
        let total = self.total;
        let content: Box<dyn Read> = match self.content {
            Content::File(file) => Box::new(file),
            Content::Qcow2(disk) => disk,
        };
        let (sector, content) = bounded(checked(content)?);
        let (copy, copies) = sync_channel(PIECES);
        let mut tee = Tee { pieces, copy, sha256: Sha256::new(), bytes: 0 };
        let (packed, again) = thread::scope(|scope| {
            let again = scope.spawn(|| hashed(unpacked(Pieces { copies, piece: Bytes::new() })?));
            let packed = pack(content, &mut tee, &mut |bytes| done.store(bytes, Ordering::Relaxed));
            let Tee { sha256, bytes, pieces, copy } = tee;
            // The end of both.
            drop((pieces, copy));
            let packed = packed.map(|packed| (packed, hex::encode(sha256.finalize()), bytes));
            (packed, again.join().unwrap_or_else(|_| Err(io::Error::other("a thread ended early"))))
        });
        let (packed, digest, bytes) = packed?;
        let (again, _) = again?;
        if again != packed.sha256 {
            return Err(io::Error::other(
                "what was packed does not unpack to what was read, so it was not stored; pack the image with `zstd` and add that",
            ));
        }
        if packed.bytes != total {
            return Err(io::Error::other(
                "the file changed while it was read; stop the program that writes it",
            ));
        }
        Ok(Blob {
            digest: format!("sha256:{digest}"),
            bytes,
            disk_sha256: packed.sha256,
            disk_bytes: packed.bytes,
            sector,
        })
    }

    /// Reads a packed image to its end. `done` counts the bytes of the file.
    pub(super) fn examine(self, done: &AtomicU64) -> io::Result<Blob> {
        let Content::File(file) = self.content else { return Err(invalid("it is not packed")) };
        let mut counted = Counted { inner: file, sha256: Sha256::new(), done };
        let (sector, disk_sha256, disk_bytes) = {
            let (sector, content) = bounded(checked(unpacked(&mut counted)?)?);
            let (sha256, bytes) = hashed(content)?;
            (sector, sha256, bytes)
        };
        // Members and frames end with the file, or their reader has failed.
        io::copy(&mut counted, &mut io::sink())?;
        let digest = format!("sha256:{}", hex::encode(counted.sha256.finalize()));
        Ok(Blob { digest, bytes: done.load(Ordering::Relaxed), disk_sha256, disk_bytes, sector })
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

/// Content that ends with an error when it is larger than a disk.
fn bounded((sector, content): (Option<u64>, impl Read)) -> (Option<u64>, Bounded<impl Read>) {
    (sector, Bounded { inner: content, left: MAX_DISK })
}

struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            invalid(&format!("its content is larger than {MAX_DISK} bytes, the largest disk that is read"))
        })?;
        Ok(read)
    }
}

/// The SHA-256 and the length of content.
fn hashed(mut content: impl Read) -> io::Result<(String, u64)> {
    let (mut sha256, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER]);
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(sha256.finalize()), bytes)),
            Ok(read) => {
                sha256.update(&buffer[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A reader that hashes and counts.
struct Counted<'a> {
    inner: File,
    sha256: Sha256,
    done: &'a AtomicU64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        self.done.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Sends packed bytes to the request and to the thread that unpacks them again.
struct Tee {
    pieces: Sender<Bytes>,
    copy: SyncSender<Bytes>,
    sha256: Sha256,
    bytes: u64,
}

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.sha256.update(bytes);
        self.bytes += bytes.len() as u64;
        let ended = |what: &'static str| io::Error::new(io::ErrorKind::BrokenPipe, what);
        // A thread that failed to unpack has ended; its error is found by the comparison.
        self.copy.send(piece.clone()).map_err(|_| ended("the packed bytes cannot be unpacked"))?;
        self.pieces.blocking_send(piece).map_err(|_| ended("the push ended early"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The packed bytes, as a reader.
struct Pieces {
    copies: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            // The sender is gone: the end.
            let Ok(next) = self.copies.recv() else { return Ok(0) };
            self.piece = next;
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
