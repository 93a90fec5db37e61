//! The bytes of a planned image: as segments, at any offset, or as a stream.
//!
//! ```text
//! segments():       | bytes | zeros | bytes | bytes | source | zeros | source | zeros | bytes |   no gap, no overlap
//! read_exact_at:            '---- any range ----'                                     binary search, then copies
//! write_to:         all segments, collected in one buffer: 100,000 small files take a few hundred writes
//! ```
//!
//! Invariants: `read_exact_at` and `write_to` deliver the same bytes. A source whose length has changed since planning
//! is an error before any of its bytes are delivered. Memory use is one buffer, for any size of image; a durable write has
//! at most sixteen MiB that were not sent to the disk.

use std::fs::File;
use std::io::{self, Seek as _, Write};
use std::num::NonZeroU64;

use crate::SECTOR_SIZE;
use crate::error::ContentError;
use crate::kernel_copy::KernelCopy;
use crate::source::{FileRange, ReadAt, past_end};
use crate::tree::Content;

use super::{Body, ImagePlan, Part, Piece};

/// The number of bytes that are collected before a write.
const BUFFER: usize = 256 * 1024;
/// The free space in the buffer below which a source is not read into it: many small reads cost more than a short
/// write.
const SMALL: usize = 32 * 1024;
/// The length from which the kernel copies a file.
const DIRECT: u64 = 128 * 1024;
/// The number of written bytes that are sent to the disk together while the rest of an image is written.
const SENT_AT_ONCE: u64 = 8 * 1024 * 1024;
/// The end of the system area in bytes.
const SYSTEM_AREA: u64 = 16 * SECTOR_SIZE;

/// A range of an image whose bytes have one origin.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Segment<'a> {
    /// The offset in the image.
    pub offset: u64,
    /// The number of bytes, never 0.
    pub len: u64,
    /// The part of the image that the segment belongs to.
    pub part: Part,
    /// The origin of the bytes.
    pub data: SegmentData<'a>,
}

/// The origin of the bytes of a segment.
#[derive(Clone, Copy)]
pub enum SegmentData<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// Zeros.
    Zeros,
    /// All bytes of a source.
    Source(&'a dyn ReadAt),
}

impl std::fmt::Debug for SegmentData<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            SegmentData::Bytes(_) => "Bytes",
            SegmentData::Zeros => "Zeros",
            SegmentData::Source(_) => "Source",
        })
    }
}

impl Segment<'_> {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

impl ImagePlan {
    /// Returns the segments of the image: in order, without gaps, from 0 to [`ImagePlan::len`].
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let gap = |offset: u64, end: u64| {
            let part = if end <= SYSTEM_AREA { Part::SystemArea } else { Part::Padding };
            (end > offset).then_some(Segment { offset, len: end - offset, part, data: SegmentData::Zeros })
        };
        let mut before = 0;
        let pieces = (0..).map_while(|index| self.piece(index)).flat_map(move |piece| {
            let gap = gap(before, piece.offset);
            before = piece.end();
            [gap, Some(piece)].into_iter().flatten()
        });
        let last = self.pieces().checked_sub(1).and_then(|last| self.piece(last));
        pieces.chain(gap(last.map_or(0, |last| last.end()), self.len))
    }

    /// Fills `buffer` with the bytes of the image at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the range ends after the image; otherwise an [`io::Error`] with a
    /// [`ContentError`].
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, buffer.len(), self.len));
        }
        let mut at = offset;
        let mut rest = buffer;
        let mut index = self.piece_after(offset);
        while !rest.is_empty() {
            let piece = self.piece(index);
            let inside = piece.filter(|piece| piece.offset <= at);
            let end = match (inside, piece) {
                (Some(piece), _) => piece.end(),
                (None, Some(next)) => next.offset,
                (None, None) => self.len,
            };
            let count = usize::try_from(end - at).map_or(rest.len(), |left| left.min(rest.len()));
            let (now, later) = rest.split_at_mut(count);
            match inside {
                Some(piece) => {
                    let skip = at - piece.offset;
                    match piece.data {
                        SegmentData::Bytes(bytes) => bytes.read_exact_at(skip, now)?,
                        SegmentData::Source(source) => self.read_source(source, &piece, skip, now)?,
                        SegmentData::Zeros => now.fill(0),
                    }
                    index += 1;
                }
                None => now.fill(0),
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes the whole image and returns its length.
    ///
    /// # Errors
    /// The error of `output`, or an [`io::Error`] with a [`ContentError`]. The output is then incomplete.
    pub fn write_to(&self, output: &mut (impl Write + ?Sized)) -> io::Result<u64> {
        self.write(output, None, |_| {})
    }

    /// Writes the whole image to a file. The bytes are those of [`ImagePlan::write_to`], but the kernel copies the
    /// larger files of scanned directories without passing them through this process.
    ///
    /// # Errors
    /// The errors of [`ImagePlan::write_to`].
    pub fn write_to_file(&self, output: &File) -> io::Result<u64> {
        self.write(&mut &*output, Some(output), |_| {})
    }

    /// Writes the whole image to a file as [`ImagePlan::write_to_file`] does, and returns when it is on the disk. Calls
    /// `observe` with the number of bytes written, each time after eight MiB or a few more.
    ///
    /// What is written is sent to the disk at once, without waiting for it: otherwise the kernel would keep most of the image
    /// in memory, and the disk would begin to work when the copying ends. Syncs in between would do the same, but each of them
    /// waits for the disk and for a commit of the file system's journal.
    ///
    /// # Errors
    /// The errors of [`ImagePlan::write_to_file`], and the error of the disk.
    pub fn write_durably(&self, output: &File, mut observe: impl FnMut(u64)) -> io::Result<u64> {
        let start = (&*output).stream_position()?;
        let mut sent = 0;
        let written = self.write(&mut &*output, Some(output), |written| {
            if let Some(len) = NonZeroU64::new(written - sent).filter(|len| len.get() >= SENT_AT_ONCE) {
                send_to_disk(output, start + sent, len);
                sent = written;
                observe(written);
            }
        })?;
        // Waits for what was sent, sends what remains, and returns the first error of either.
        output.sync_all()?;
        Ok(written)
    }

    /// Writes to `output`. If `direct` is the file behind `output`, files that need no buffer are written to it
    /// directly. Calls `passed` with the number of bytes that `output` has received, after each write.
    fn write(
        &self,
        output: &mut (impl Write + ?Sized),
        direct: Option<&File>,
        passed: impl FnMut(u64),
    ) -> io::Result<u64> {
        let mut gathered = Gathered { buffer: vec![0; BUFFER], filled: 0, written: 0, output, passed };
        let direct = direct.map(|output| (KernelCopy::to(output), output));
        for segment in self.segments() {
            if let (Some((copier, output)), Part::File(number), DIRECT..) =
                (&direct, segment.part, segment.len)
                && let Content::File(source) = self.content(u32::try_from(number).unwrap_or(u32::MAX))
            {
                gathered.flush()?;
                let copied = source.copy_to((copier, output), SENT_AT_ONCE, |more| gathered.count(more));
                copied.map_err(|source| {
                    let path = self.file_path(number).unwrap_or_default();
                    let length = usize::try_from(segment.len).unwrap_or(usize::MAX);
                    io::Error::from(ContentError::Read { path, offset: 0, length, source })
                })?;
                continue;
            }
            match segment.data {
                SegmentData::Bytes(bytes) => gathered.bytes(bytes)?,
                SegmentData::Zeros => gathered.fill(segment.len, |_, room| {
                    room.fill(0);
                    Ok(())
                })?,
                SegmentData::Source(source) => gathered
                    .fill(segment.len, |offset, room| self.read_source(source, &segment, offset, room))?,
            }
        }
        gathered.flush()?;
        Ok(self.len)
    }

    /// Returns the number of pieces: the pieces in front, the files, and the piece at the end.
    fn pieces(&self) -> usize {
        self.front.len() + self.files.len() + usize::from(self.back.is_some())
    }

    /// Returns the piece with an index. Pieces are in the order of their offsets and do not cover the gaps between
    /// them.
    fn piece(&self, index: usize) -> Option<Segment<'_>> {
        if let Some(piece) = self.front.get(index) {
            return Some(self.laid(piece));
        }
        let index = index - self.front.len();
        let Some(file) = self.files.get(index).copied() else {
            return self.back.as_ref().filter(|_| index == self.files.len()).map(|piece| self.laid(piece));
        };
        Some(Segment {
            offset: u64::from(self.sectors[file as usize]) * SECTOR_SIZE,
            len: self.nodes.files[file as usize].len,
            part: Part::File(file as usize),
            data: match self.content(file) {
                Content::Bytes(bytes) => SegmentData::Bytes(bytes),
                Content::Source(source) => SegmentData::Source(source),
                Content::File(source) => SegmentData::Source(source),
            },
        })
    }

    fn laid<'a>(&'a self, piece: &'a Piece) -> Segment<'a> {
        let (len, data) = match &piece.body {
            Body::Metadata(range) => (range.len() as u64, SegmentData::Bytes(&self.metadata[range.clone()])),
            Body::Source(source) => (source.len(), SegmentData::Source(source)),
        };
        Segment { offset: piece.offset, len, part: piece.part, data }
    }

    /// Returns the index of the first piece that ends after `offset`.
    fn piece_after(&self, offset: u64) -> usize {
        let (mut low, mut high) = (0, self.pieces());
        while low < high {
            let middle = low.midpoint(high);
            if self.piece(middle).is_some_and(|piece| piece.end() <= offset) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Reads from a source whose length must be unchanged since planning.
    fn read_source(
        &self,
        source: &dyn ReadAt,
        segment: &Segment<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let path = || match segment.part {
            Part::File(file) => self.file_path(file).unwrap_or_default(),
            _ => String::new(),
        };
        let (found, planned) = (source.len(), segment.len);
        if found != planned {
            return Err(ContentError::LengthChanged { path: path(), planned, found }.into());
        }
        source.read_exact_at(offset, buffer).map_err(|source| {
            ContentError::Read { path: path(), offset, length: buffer.len(), source }.into()
        })
    }
}

impl ReadAt for ImagePlan {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        ImagePlan::read_exact_at(self, offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        let piece = self.piece(self.piece_after(offset)).filter(|piece| piece.offset <= offset)?;
        let SegmentData::Source(source) = piece.data else { return None };
        if source.len() != piece.len {
            return None;
        }
        let range = source.file_at(offset - piece.offset)?;
        Some(FileRange { len: range.len.min(piece.end() - offset), ..range })
    }
}

/// Begins to send a range of a file to the disk and does not wait. Errors of the disk are returned by the next sync; where the
/// advice is unknown, the sync sends everything.
fn send_to_disk(file: &File, offset: u64, len: NonZeroU64) {
    // The kernel first starts to write the range; pages on their way to the disk stay in the cache.
    #[cfg(target_os = "linux")]
    let _only_advice = rustix::fs::fadvise(file, offset, Some(len), rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

/// An output that is written when the buffer is full.
struct Gathered<'a, P, W: ?Sized> {
    buffer: Vec<u8>,
    filled: usize,
    /// The number of bytes that the output has received.
    written: u64,
    output: &'a mut W,
    passed: P,
}

impl<P: FnMut(u64), W: Write + ?Sized> Gathered<'_, P, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > self.buffer.len() - self.filled {
            self.flush()?;
        }
        if bytes.len() >= self.buffer.len() {
            self.output.write_all(bytes)?;
            self.count(bytes.len() as u64);
            return Ok(());
        }
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
        Ok(())
    }

    /// Calls `read` until it has put `len` bytes into the buffer. Each call gets the free part of the buffer and the
    /// offset of its first byte.
    fn fill(&mut self, len: u64, mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> io::Result<()> {
        let mut offset = 0;
        while offset < len {
            let left = usize::try_from(len - offset).unwrap_or(usize::MAX);
            let room = self.buffer.len() - self.filled;
            if room < left.min(SMALL) {
                self.flush()?;
                continue;
            }
            let end = self.filled + left.min(room);
            read(offset, &mut self.buffer[self.filled..end])?;
            offset += (end - self.filled) as u64;
            self.filled = end;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.write_all(&self.buffer[..self.filled])?;
        self.count(self.filled as u64);
        self.filled = 0;
        Ok(())
    }

    /// Counts bytes that the output has received.
    fn count(&mut self, more: u64) {
        self.written += more;
        (self.passed)(self.written);
    }
}
