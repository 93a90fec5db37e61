//! Directories, record by record.
//!
//! ```text
//! extent: | sector: record record record 00.. | sector: record ... |        a length of 0 ends the records of a sector
//! ```
//!
//! A directory is read in pieces of a few sectors, whatever size it claims; the claim itself was checked against the
//! length of the source and the budget.

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::ecma119::record::{DIRECTORY, Record, SELF};
use crate::error::ReadError;
use crate::rockridge;
use crate::source::ReadAt;

use super::{Extent, ReadLimits};

/// How much of a directory is read at once.
const PIECE: usize = 16 * SECTOR;

/// The root directory of a hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) extent: Extent,
    /// How many bytes of a system use area come before Rock Ridge's.
    pub(crate) skip: usize,
}

/// A directory being read.
pub(crate) struct Records<'a> {
    source: &'a dyn ReadAt,
    extent: Extent,
    /// The position in the directory of what is not yet in `piece`.
    next: u64,
    piece: Vec<u8>,
    /// The position in `piece` of the next record.
    at: usize,
}

impl<'a> Records<'a> {
    /// Begins to read a directory.
    pub(crate) fn new(
        source: &'a dyn ReadAt,
        extent: Extent,
        limits: &ReadLimits,
    ) -> Result<Records<'a>, ReadError> {
        let Extent { offset, len } = extent;
        if offset.checked_add(len).is_none_or(|end| end > source.len()) {
            return Err(ReadError::Invalid { offset, rule: "a directory lies inside the image" });
        }
        if len > limits.directory_bytes {
            return Err(ReadError::Limit { what: "bytes in one directory", limit: limits.directory_bytes });
        }
        Ok(Records { source, extent, next: 0, piece: Vec::new(), at: 0 })
    }

    /// The next record, the first two of every directory (itself and its parent) included.
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        loop {
            if self.at >= self.piece.len() && !self.fill()? {
                return Ok(None);
            }
            if self.piece[self.at] != 0 {
                break;
            }
            // No more records in this sector.
            self.at = (self.at / SECTOR + 1) * SECTOR;
        }
        let start = self.at;
        let sector_end = ((start / SECTOR + 1) * SECTOR).min(self.piece.len());
        let offset = self.extent.offset + self.next - self.piece.len() as u64 + start as u64;
        self.at = start + usize::from(self.piece[start]);
        Record::parse(&self.piece[start..sector_end], offset).map(Some)
    }

    /// Reads the next piece; answers whether there was one.
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

/// The extent of a directory that is known by its first block alone, from its record of itself.
pub(crate) fn extent_of(source: &dyn ReadAt, block: u32, limits: &ReadLimits) -> Result<Extent, ReadError> {
    let offset = u64::from(block) * SECTOR_SIZE;
    let first = Extent { offset, len: SECTOR_SIZE };
    let rule = "a directory begins with the record of itself";
    match Records::new(source, first, limits)?.next()? {
        Some(record)
            if record.identifier == SELF && record.flags & DIRECTORY != 0 && record.data_offset == offset =>
        {
            Ok(Extent { offset, len: u64::from(record.data_length) })
        }
        _ => Err(ReadError::Invalid { offset, rule }),
    }
}

/// Whether the root directory announces Rock Ridge, and how many bytes its areas begin after.
pub(crate) fn rock_ridge_skip(
    source: &dyn ReadAt,
    root: &Root,
    limits: &ReadLimits,
) -> Result<Option<usize>, ReadError> {
    let mut records = Records::new(source, root.extent, limits)?;
    let Some(record) = records.next()?.filter(|record| record.identifier == SELF) else { return Ok(None) };
    let Some(skip) = rockridge::root_skip(record.system_use) else { return Ok(None) };
    let attributes = rockridge::parse(source, record.system_use, record.offset)?;
    // Some writers announce nothing but write the attributes, which is as good.
    Ok((attributes.er_seen || attributes.mode.is_some()).then_some(skip))
}
