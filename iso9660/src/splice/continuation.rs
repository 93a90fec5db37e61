//! The continuation areas of the root's records, which move with it.
//!
//! ```text
//! before   . CE ----> ER ...          A long name CE ----> NM ... CE ----> NM         anywhere in the image
//! after    | root directory | ER ... NM ... CE NM | /task |                           in order, none crossing a sector
//!               `-- CE --------^
//! ```
//!
//! They must: libarchive refuses an area that comes before its record. What they leave behind is zeroed.

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::error::ReadError;

use super::budget::Budget;
use super::dialect::{Continuation, continuation, continue_at};
use super::error::SpliceError;
use super::overlay::Overlay;
use super::records::RawRecord;

/// The most areas followed for one record.
const MAX_AREAS: usize = 32;

/// Where a CE entry is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In a record: its index, and the position in it.
    Record(usize, usize),
    /// In another area.
    Area(usize),
}

/// The areas, one behind the other.
#[derive(Default)]
pub(crate) struct Areas {
    bytes: Vec<u8>,
    /// Every CE entry with the position in `bytes` that it leads to.
    links: Vec<(Place, usize)>,
}

impl Areas {
    /// Takes the areas of these records from where they are.
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

    /// Takes one area; answers the CE entry in it.
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

    /// How many bytes they take together.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Leads every CE entry to where its area is when the first one begins in `sector`; answers the bytes of the areas.
    pub(crate) fn link(mut self, sector: u32, records: &mut [RawRecord]) -> Vec<u8> {
        for (place, target) in self.links {
            // No more than what was read of the original: far below 2^32.
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
