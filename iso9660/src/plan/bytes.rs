//! The bytes of a planned image: as segments, at any offset, or as a stream.
//!
//! ```text
//! segments():       | zeros | bytes | bytes | source | zeros | source | zeros |      no gap, no overlap, in order
//! read_exact_at:            '---- any range ----'                                     binary search, then copies
//! write_to:         all of them, through one buffer
//! ```
//!
//! Invariants: `read_exact_at` and `write_to` deliver the same bytes; a source that is not as long as it was when planned
//! is an error before any of its bytes are delivered; memory used is one buffer, whatever the size of the image.

use std::io::{self, Write};
use std::sync::Arc;

use crate::error::SourceError;
use crate::source::{ReadAt, past_end};
use crate::tree::Content;

use super::{Body, Part, Piece, Plan};

/// How much of a source is read at once while streaming.
const BUFFER: u64 = 256 * 1024;
/// What zero fill is written from.
static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];

/// A range of an image whose bytes have one origin.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Where it begins in the image.
    pub offset: u64,
    /// How many bytes it has, never 0.
    pub len: u64,
    /// What it is.
    pub part: Part,
    /// Where its bytes come from.
    pub data: SegmentData<'a>,
}

/// The origin of a segment's bytes.
#[derive(Clone, Copy)]
pub enum SegmentData<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Zeros.
    Zeros,
    /// All bytes of a source, from its first.
    Source(&'a Arc<dyn ReadAt>),
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

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.len
    }
}

impl Plan {
    /// The segments of the image: in order, without gaps, from 0 to [`Plan::len`].
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let gap = |offset: u64, end: u64| {
            let part = if offset == 0 { Part::SystemArea } else { Part::Padding };
            (end > offset).then_some(Segment { offset, len: end - offset, part, data: SegmentData::Zeros })
        };
        let ends = std::iter::once(0).chain(self.pieces.iter().map(Piece::end));
        let pieces = self.pieces.iter().zip(ends).flat_map(move |(piece, before)| {
            let segment = Segment {
                offset: piece.offset,
                len: piece.len,
                part: piece.part,
                data: self.data(&piece.body),
            };
            [gap(before, piece.offset), Some(segment)].into_iter().flatten()
        });
        pieces.chain(gap(self.pieces.last().map_or(0, Piece::end), self.len))
    }

    /// Fills `buffer` with the bytes of the image at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] past the end; otherwise an [`io::Error`] around a [`SourceError`].
    pub fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, buffer.len(), self.len));
        }
        let mut at = offset;
        let mut rest = buffer;
        let mut index = self.pieces.partition_point(|piece| piece.end() <= offset);
        while !rest.is_empty() {
            let piece = self.pieces.get(index);
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
                    self.read_piece(piece, at - piece.offset, now)?;
                    index += 1;
                }
                None => now.fill(0),
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    /// Writes the whole image and answers its length.
    ///
    /// # Errors
    /// What `output` says, or an [`io::Error`] around a [`SourceError`]; then the output is incomplete.
    pub fn write_to(&self, output: &mut (impl Write + ?Sized)) -> io::Result<u64> {
        let mut buffer = Vec::new();
        for segment in self.segments() {
            match (segment.data, segment.part) {
                (SegmentData::Bytes(bytes), _) => output.write_all(bytes)?,
                (SegmentData::Zeros, _) => write_zeros(output, segment.len)?,
                (SegmentData::Source(source), part) => {
                    self.copy_source(source, part, segment.len, &mut buffer, output)?
                }
            }
        }
        Ok(self.len)
    }

    fn data<'a>(&'a self, body: &'a Body) -> SegmentData<'a> {
        match body {
            Body::Metadata(range) => SegmentData::Bytes(&self.metadata[range.clone()]),
            Body::File(file) => match self.content(*file) {
                Content::Bytes(bytes) => SegmentData::Bytes(bytes),
                Content::Source(source) => SegmentData::Source(source),
            },
            Body::Source(source) => SegmentData::Source(source),
        }
    }

    fn read_piece(&self, piece: &Piece, skip: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self.data(&piece.body) {
            SegmentData::Bytes(bytes) => bytes.read_exact_at(skip, buffer),
            SegmentData::Source(source) => self.read_source(source, piece.part, piece.len, skip, buffer),
            SegmentData::Zeros => {
                buffer.fill(0);
                Ok(())
            }
        }
    }

    fn copy_source(
        &self,
        source: &Arc<dyn ReadAt>,
        part: Part,
        len: u64,
        buffer: &mut Vec<u8>,
        output: &mut (impl Write + ?Sized),
    ) -> io::Result<()> {
        let mut offset = 0;
        while offset < len {
            let count = (len - offset).min(BUFFER);
            buffer.resize(usize::try_from(count).unwrap_or(0), 0);
            self.read_source(source, part, len, offset, buffer)?;
            output.write_all(buffer)?;
            offset += count;
        }
        Ok(())
    }

    /// Reads from a source that must still be as long as it was when planned.
    fn read_source(
        &self,
        source: &Arc<dyn ReadAt>,
        part: Part,
        planned: u64,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let path = || match part {
            Part::File(file) => self.nodes.file_path(file),
            _ => String::new(),
        };
        let found = source.len();
        if found != planned {
            return Err(SourceError::LengthChanged { path: path(), planned, found }.into());
        }
        source
            .read_exact_at(offset, buffer)
            .map_err(|source| SourceError::Read { path: path(), offset, length: buffer.len(), source }.into())
    }
}

impl ReadAt for Plan {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        Plan::read_exact_at(self, offset, buffer)
    }
}

fn write_zeros(output: &mut (impl Write + ?Sized), mut count: u64) -> io::Result<()> {
    while count > 0 {
        let now = usize::try_from(count).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        output.write_all(&ZEROS[..now])?;
        count -= now as u64;
    }
    Ok(())
}
