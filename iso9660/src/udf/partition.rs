//! Partition maps (3/10.7, UDF 2.2.8 to 2.2.10): from a block of a partition to a byte of the image.
//!
//! ```text
//! type 1  physical   block b is block start + b of the volume
//! type 2  sparable   like physical, but packets (32 blocks) listed in a table are stored elsewhere
//!         virtual    block b is entry b of the allocation table, a block of the physical partition
//!         metadata   block b is block b of the metadata file, which is in the physical partition
//! ```
//!
//! Invariant: a translated range is inside the partition. The readers of files check it against the image too.

use super::{Address, u16_at};
use crate::error::ReadError;
use crate::runs::Runs;
use crate::source::ReadAt;

/// The largest number of partition maps; real volumes have one or two.
pub(super) const MAX_MAPS: usize = 8;
const OUTSIDE: &str = "a UDF address lies inside its partition";

/// The partitions of a volume, for the translation of addresses.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(super) block_size: u32,
    /// The partitions in the order of their maps.
    pub(super) partitions: Vec<Partition>,
}

#[derive(Debug)]
pub(super) enum Partition {
    Physical(Span),
    Sparable {
        span: Span,
        packet: u32,
        moved: Vec<(u32, u32)>,
    },
    Virtual {
        span: Span,
        table: Runs,
        first: u64,
    },
    Metadata {
        file: Runs,
    },
    /// A partition whose map is read later or cannot be used.
    Missing,
}

/// A range of blocks of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) blocks: u32,
}

/// A partition map in the Logical Volume Descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map<'a> {
    pub(super) bytes: &'a [u8],
    /// The offset of the map in the image.
    pub(super) offset: u64,
}

/// The content of a partition map.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MapKind {
    Physical,
    Sparable,
    Virtual,
    Metadata,
}

impl Map<'_> {
    pub(super) fn kind(&self) -> Result<MapKind, ReadError> {
        // Type 2: an identifier of 23 bytes follows the flags of an entity identifier.
        let identifier = self.bytes.get(5..28).unwrap_or_default();
        let is = |name: &[u8]| identifier.starts_with(name);
        match (self.bytes.first(), self.bytes.len()) {
            (Some(1), 6) => Ok(MapKind::Physical),
            (Some(2), 64) if is(b"*UDF Sparable Partition") => Ok(MapKind::Sparable),
            (Some(2), 64) if is(b"*UDF Virtual Partition") => Ok(MapKind::Virtual),
            (Some(2), 64) if is(b"*UDF Metadata Partition") => Ok(MapKind::Metadata),
            _ => Err(ReadError::Unsupported { offset: self.offset, feature: "this kind of UDF partition" }),
        }
    }

    /// Returns the number of the Partition Descriptor.
    pub(super) fn number(&self) -> Option<u16> {
        u16_at(self.bytes, if self.bytes.first() == Some(&1) { 4 } else { 38 })
    }
}

impl Layout {
    pub(super) fn invalid(offset: u64, rule: &'static str) -> ReadError {
        ReadError::Invalid { offset, rule }
    }

    /// Returns the offset of a block in the image and the number of contiguous bytes from there. `from` is the offset
    /// of the address, for errors.
    pub(super) fn locate(
        &self,
        source: &dyn ReadAt,
        address: Address,
        from: u64,
    ) -> Result<(u64, u64), ReadError> {
        let block_size = u64::from(self.block_size);
        let outside = || Layout::invalid(from, OUTSIDE);
        let Address { block, partition } = address;
        let inside =
            |span: &Span| span.blocks.checked_sub(block).filter(|left| *left > 0).ok_or_else(outside);
        let (absolute, blocks) = match self.partitions.get(usize::from(partition)) {
            Some(Partition::Physical(span)) => {
                let left = inside(span)?;
                (u64::from(span.start) + u64::from(block), left)
            }
            Some(Partition::Sparable { span, packet, moved }) => {
                let left = inside(span)?;
                let within = block % packet;
                let start = match moved.binary_search_by_key(&(block - within), |(original, _)| *original) {
                    Ok(index) => u64::from(moved[index].1),
                    Err(_) => u64::from(span.start) + u64::from(block - within),
                };
                (start + u64::from(within), left.min(packet - within))
            }
            Some(Partition::Virtual { span, table, first }) => {
                let mut entry = [0; 4];
                let at = first + 4 * u64::from(block);
                if at + 4 > table.len() {
                    return Err(outside());
                }
                table.read_exact_at(source, at, &mut entry).map_err(|error| ReadError::io(from, 4, error))?;
                let block = u32::from_le_bytes(entry);
                if block >= span.blocks {
                    return Err(outside());
                }
                (u64::from(span.start) + u64::from(block), 1)
            }
            Some(Partition::Metadata { file }) => {
                let run = file.at(u64::from(block) * block_size).ok_or_else(outside)?;
                let rule = "the metadata file of UDF has no holes";
                let offset = run.offset.ok_or(Layout::invalid(from, rule))?;
                return Ok((offset, run.len));
            }
            Some(Partition::Missing) | None => {
                return Err(Layout::invalid(from, "a UDF address names a partition"));
            }
        };
        Ok((absolute * block_size, u64::from(blocks) * block_size))
    }

    /// Reads a block into `block`. Returns its offset in the image.
    pub(super) fn read_block(
        &self,
        source: &dyn ReadAt,
        address: Address,
        from: u64,
        block: &mut Vec<u8>,
    ) -> Result<u64, ReadError> {
        let (offset, left) = self.locate(source, address, from)?;
        let size = u64::from(self.block_size);
        if left < size || offset.checked_add(size).is_none_or(|end| end > source.len()) {
            return Err(Layout::invalid(from, "a UDF address lies inside the image"));
        }
        let length = self.block_size as usize;
        block.resize(length, 0);
        source.read_exact_at(offset, block).map_err(|error| ReadError::io(offset, length, error))?;
        Ok(offset)
    }
}
