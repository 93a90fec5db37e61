//! Reads directories record by record.
//!
//! ```text
//! extent: | sector: record record record 00.. | sector: record ... |        a length of 0 ends the records of a sector
//! ```
//!
//! A directory is read in pieces of a few sectors, whatever size it claims. The claimed size was checked against the
//! length of the source and the budget. The claims of its parent and of its own record can differ: the larger one, in whole
//! sectors, is read.

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::ecma119::record::{Record, SELF};
use crate::error::ReadError;
use crate::rockridge;
use crate::source::ReadAt;

use super::{Extent, ReadLimits};

/// The number of bytes of a directory that are read at once.
const PIECE: usize = 16 * SECTOR;

/// The root directory of a hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) extent: Extent,
    /// The number of bytes before the Rock Ridge entries of a system use area.
    pub(crate) skip: usize,
}

/// Reads the records of a directory.
pub(crate) struct Records<'a> {
    source: &'a dyn ReadAt,
    extent: Extent,
    limits: ReadLimits,
    /// The position in the directory of the first byte after `piece`.
    next: u64,
    piece: Vec<u8>,
    /// The position in `piece` of the next record.
    at: usize,
}

impl<'a> Records<'a> {
    /// Starts reading a directory.
    pub(crate) fn new(
        source: &'a dyn ReadAt,
        extent: Extent,
        limits: &ReadLimits,
    ) -> Result<Records<'a>, ReadError> {
        let extent = Extent { len: readable(source, extent, limits)?, ..extent };
        Ok(Records { source, extent, limits: *limits, next: 0, piece: Vec::new(), at: 0 })
    }

    /// Returns the next record, including the records of the directory itself and of its parent.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        loop {
            if self.at >= self.piece.len() && !self.fill()? {
                return Ok(None);
            }
            if self.piece[self.at] != 0 {
                break;
            }
            // The sector has no more records.
            self.at = (self.at / SECTOR + 1) * SECTOR;
        }
        let start = self.at;
        let sector_end = ((start / SECTOR + 1) * SECTOR).min(self.piece.len());
        let offset = self.extent.offset + self.next - self.piece.len() as u64 + start as u64;
        self.at = start + usize::from(self.piece[start]);
        let record = Record::parse(&self.piece[start..sector_end], offset)?;
        let Extent { offset: first, len } = self.extent;
        // Linux uses the length in the record that a directory has of itself.
        let own = Extent { offset: first, len: u64::from(record.data_length) };
        if offset == first
            && record.is_of(first)
            && own.len > len
            && let Ok(len) = readable(self.source, own, &self.limits)
        {
            self.extent.len = len;
        }
        Ok(Some(record))
    }

    /// Reads the next piece. Returns false at the end of the directory.
    fn fill(&mut self) -> Result<bool, ReadError> {
        let left = self.extent.len - self.next;
        let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        self.piece.resize(length, 0);
        let offset = self.extent.offset + self.next;
        self.source
            .read_exact_at(offset, &mut self.piece)
            .map_err(|error| ReadError::io(offset, length, error))?;
        self.next += length as u64;
        self.at = 0;
        Ok(length > 0)
    }
}

/// Returns the number of bytes to read of a directory, checked against the source and the budget. Directories occupy whole
/// sectors (6.8.1.3), so a length that ends inside a sector is continued to its end.
fn readable(source: &dyn ReadAt, extent: Extent, limits: &ReadLimits) -> Result<u64, ReadError> {
    let Extent { offset, len } = extent;
    if offset.checked_add(len).is_none_or(|end| end > source.len()) {
        return Err(ReadError::Invalid { offset, rule: "a directory lies inside the image" });
    }
    if len > limits.directory_bytes {
        return Err(ReadError::Limit { what: "bytes in one directory", limit: limits.directory_bytes });
    }
    Ok(len.next_multiple_of(SECTOR_SIZE).min(source.len() - offset))
}

/// Returns the extent of a directory whose first block is known, from its record of itself.
pub(crate) fn extent_of(source: &dyn ReadAt, block: u32, limits: &ReadLimits) -> Result<Extent, ReadError> {
    let offset = u64::from(block) * SECTOR_SIZE;
    let first = Extent { offset, len: SECTOR_SIZE };
    let rule = "a directory begins with the record of itself";
    match Records::new(source, first, limits)?.next()? {
        Some(record) if record.is_of(offset) => Ok(Extent { offset, len: u64::from(record.data_length) }),
        _ => Err(ReadError::Invalid { offset, rule }),
    }
}

/// Returns an error when not even the first record of a root directory can be read.
pub(crate) fn probe(source: &dyn ReadAt, root: Extent, limits: &ReadLimits) -> Result<(), ReadError> {
    Records::new(source, root, limits)?.next().map(|_| ())
}

/// Returns the number of bytes to skip in system use areas, if the root directory declares Rock Ridge.
pub(crate) fn rock_ridge_skip(
    source: &dyn ReadAt,
    root: &Root,
    limits: &ReadLimits,
) -> Result<Option<usize>, ReadError> {
    let mut records = Records::new(source, root.extent, limits)?;
    let Some(record) = records.next()?.filter(|record| record.identifier == SELF) else { return Ok(None) };
    let Some(skip) = rockridge::root_skip(record.system_use) else { return Ok(None) };
    let attributes = rockridge::parse(source, record.system_use, record.offset)?;
    // Some writers write the attributes without an ER entry; this counts as Rock Ridge too.
    Ok((attributes.er_seen || attributes.mode.is_some()).then_some(skip))
}
