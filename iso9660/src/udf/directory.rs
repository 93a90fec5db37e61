//! Directories: a stream of File Identifier Descriptors (4/14.4).
//!
//! ```text
//!  0  tag (257)    18  characteristics: 02 directory, 04 deleted, 08 parent, 10 metadata
//! 19  length of the name (8)    20  file entry, long_ad    36  length of the implementation's bytes (16)
//! 38  implementation use, then the name, then zeros up to a multiple of 4; an identifier may cross blocks and extents
//! ```

use super::partition::Layout;
use super::{Address, tag, text, u16_at};
use crate::error::ReadError;
use crate::escape::escape_name;
use crate::runs::Runs;
use crate::source::ReadAt;

/// The tag of a File Identifier Descriptor.
const FILE_IDENTIFIER: u16 = 257;
const HEADER: usize = 38;
const DELETED: u8 = 0x04;
const PARENT: u8 = 0x08;
const METADATA: u8 = 0x10;
/// The number of bytes of a directory that are read at once.
const PIECE: u64 = 32 << 10;

/// Returns the length of the identifier at the start of `bytes`, if its fixed part is there.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let name = bytes.get(19).map(|length| usize::from(*length))?;
    let own = u16_at(bytes, 36).map(usize::from)?;
    (u16_at(bytes, 0) == Some(FILE_IDENTIFIER)).then(|| (HEADER + own + name).next_multiple_of(4))
}

/// A named child of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Identifier {
    /// The name as text, see [`crate::escape`].
    pub(crate) name: String,
    /// The address of the file entry.
    pub(crate) address: Address,
    /// The offset of the identifier in the image.
    pub(crate) offset: u64,
}

/// Reads the identifiers of a directory.
pub(crate) struct Identifiers<'a> {
    source: &'a dyn ReadAt,
    runs: Runs,
    /// The position in the directory of the first byte after `buffer`.
    next: u64,
    buffer: Vec<u8>,
    /// The position in `buffer` of the next identifier.
    at: usize,
}

impl<'a> Identifiers<'a> {
    /// Starts reading the directory that consists of `runs`.
    pub(crate) fn new(source: &'a dyn ReadAt, runs: Runs) -> Identifiers<'a> {
        Identifiers { source, runs, next: 0, buffer: Vec::new(), at: 0 }
    }

    /// Returns the next identifier, without the parent and deleted ones.
    pub(crate) fn next(&mut self) -> Result<Option<Identifier>, ReadError> {
        loop {
            let left = self.buffer.len() - self.at;
            if left == 0 && self.next == self.runs.len() {
                return Ok(None);
            }
            self.fill(HEADER)?;
            let header = &self.buffer[self.at..];
            let characteristics = header[18];
            let from = HEADER + u16_at(header, 36).map_or(0, usize::from);
            let to = from + usize::from(header[19]);
            let length = to.next_multiple_of(4);
            self.fill(length)?;
            let offset = self.offset();
            let bytes = &self.buffer[self.at..self.at + length];
            let invalid = |rule| Layout::invalid(offset, rule);
            if tag::check(bytes, None, offset)? != FILE_IDENTIFIER {
                return Err(invalid("a UDF directory consists of file identifiers"));
            }
            self.at += length;
            if characteristics & (DELETED | PARENT | METADATA) != 0 {
                continue;
            }
            let name = text::name(&bytes[from..to]).ok_or(invalid("a UDF name has a known form"))?;
            let name = escape_name(&name).into_owned();
            let address = Address::parse(bytes, 24).ok_or(invalid("a file identifier is whole"))?;
            return Ok(Some(Identifier { name, address, offset }));
        }
    }

    /// Returns the offset of the next identifier in the image.
    fn offset(&self) -> u64 {
        let position = self.next - (self.buffer.len() - self.at) as u64;
        self.runs.at(position).and_then(|run| run.offset).unwrap_or(0)
    }

    /// Reads until `buffer` has `wanted` bytes, which is at most the longest identifier.
    fn fill(&mut self, wanted: usize) -> Result<(), ReadError> {
        while self.buffer.len() - self.at < wanted {
            let length = usize::try_from((self.runs.len() - self.next).min(PIECE)).unwrap_or(0);
            let offset = self.offset();
            if length == 0 {
                return Err(Layout::invalid(offset, "a file identifier ends inside its directory"));
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let start = self.buffer.len();
            self.buffer.resize(start + length, 0);
            self.runs
                .read_exact_at(self.source, self.next, &mut self.buffer[start..])
                .map_err(|error| ReadError::io(offset, length, error))?;
            self.next += length as u64;
        }
        Ok(())
    }
}
