//! The continuation areas of the root's records, which move when the root moves.
//!
//! ```text
//! before   . CE ----> ER ...          A long name CE ----> NM ... CE ----> NM         anywhere in the image
//! after    | root directory | ER ... NM ... CE NM | /task |                           in order, none crossing a sector
//!               `-- CE --------^
//! ```
//!
//! They move because libarchive refuses an area before its record. Their old bytes are zeroed.

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::error::ReadError;

use super::budget::Budget;
use super::dialect::{Continuation, continuation, continue_at};
use super::error::SpliceError;
use super::overlay::Overlay;
use super::records::RawRecord;

/// The largest number of areas that are followed for one record.
const MAX_AREAS: usize = 32;

/// The location of a CE entry.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The index of a record, and the position in it.
    Record(usize, usize),
    /// The position in another area.
    Area(usize),
}

/// The areas, concatenated.
#[derive(Default)]
pub(crate) struct Areas {
    bytes: Vec<u8>,
    /// Every CE entry with the position in `bytes` that it points to.
    links: Vec<(Place, usize)>,
}

impl Areas {
    /// Copies the areas of these records from the original.
    pub(crate) fn take(
        records: &[RawRecord],
        skip: usize,
        source: &Budget<'_>,
        overlay: &mut Overlay,
    ) -> Result<Areas, SpliceError> {
        let mut areas = Areas::default();
        for (index, record) in records.iter().enumerate() {
            let start = record.system_use_at();
            let mut next = continuation(record.system_use(), skip)
                .map(|found| (Place::Record(index, start + found.at), found));
            let mut followed = 0;
            while let Some((place, found)) = next {
                if followed == MAX_AREAS {
                    let what = "continuation areas of one record";
                    return Err(SpliceError::Limit { what, limit: MAX_AREAS as u64 });
                }
                followed += 1;
                next = areas.append(place, found, source, overlay)?;
            }
        }
        Ok(areas)
    }

    /// Copies one area. Returns the CE entry in it.
    fn append(
        &mut self,
        place: Place,
        found: Continuation,
        source: &Budget<'_>,
        overlay: &mut Overlay,
    ) -> Result<Option<(Place, Continuation)>, SpliceError> {
        let Continuation { offset, length, .. } = found;
        if offset % SECTOR_SIZE + u64::from(length) > SECTOR_SIZE {
            let rule = "a continuation area lies inside one block";
            return Err(ReadError::Invalid { offset, rule }.into());
        }
        let area = source.bytes(offset, length.into(), "a continuation area lies inside the image")?;
        overlay.zero(offset, length.into())?;
        if self.bytes.len() % SECTOR + area.len() > SECTOR {
            self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR), 0);
        }
        let at = self.bytes.len();
        self.links.push((place, at));
        self.bytes.extend_from_slice(&area);
        Ok(continuation(&area, 0).map(|next| (Place::Area(at + next.at), next)))
    }

    /// Returns the total number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Updates every CE entry for areas that begin in `sector`, and returns the bytes of the areas.
    pub(crate) fn link(mut self, sector: u32, records: &mut [RawRecord]) -> Vec<u8> {
        for (place, target) in self.links {
            // The areas were read from the original within the budget, so their size is far below 2^32.
            let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            let (block, offset) = (sector.saturating_add(small(target / SECTOR)), small(target % SECTOR));
            match place {
                Place::Record(index, at) => continue_at(&mut records[index].bytes, at, block, offset),
                Place::Area(at) => continue_at(&mut self.bytes, at, block, offset),
            }
        }
        self.bytes
    }
}
