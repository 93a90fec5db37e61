//! Partition maps (3/10.7, UDF 2.2.8 to 2.2.10): from a block of a partition to a byte of the image.
//!
//! ```text
//! type 1  physical   block b is block start + b of the volume
//! type 2  sparable   as physical, but packets (32 blocks) listed in a table were moved elsewhere
//!         virtual    block b is the b-th number in the allocation table, a block of the physical partition
//!         metadata   block b is the b-th block of the metadata file, which lies in the physical partition
//! ```
//!
//! Invariant: what comes out lies inside the partition; the readers of files check it against the image as well.

use super::allocation;
use super::file_entry::FileEntry;
use super::tag;
use super::{Address, u16_at, u32_at};
use crate::error::ReadError;
use crate::runs::Runs;
use crate::source::ReadAt;

/// The most partition maps; real volumes have one or two.
pub(super) const MAX_MAPS: usize = 8;
/// The most moved packets of a sparable partition.
const MAX_MOVED: usize = 8192;
/// The types of a file that is a virtual allocation table: since UDF 2.00, and before.
const TABLE: u8 = 248;
const UNSPECIFIED: u8 = 0;
const OUTSIDE: &str = "a UDF address lies inside its partition";

/// How the partitions of a volume lie in the image.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(super) block_size: u32,
    /// One per partition map, in the order of the maps.
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
    /// Described by a map that comes later or that could not be used.
    Missing,
}

/// A range of blocks of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) blocks: u32,
}

/// A partition map as it stands in the Logical Volume Descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map<'a> {
    pub(super) bytes: &'a [u8],
    /// Where it is in the image.
    pub(super) offset: u64,
}

/// What a partition map describes.
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

    /// The number of the Partition Descriptor.
    pub(super) fn number(&self) -> Option<u16> {
        u16_at(self.bytes, if self.bytes.first() == Some(&1) { 4 } else { 38 })
    }
}

impl Layout {
    pub(super) fn invalid(offset: u64, rule: &'static str) -> ReadError {
        ReadError::Invalid { offset, rule }
    }

    /// Where a block is in the image, and how many bytes follow each other from there. `from` is where the address
    /// stands.
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

    /// Reads a block into `block`; answers where it is in the image.
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

    /// Reads the sparing table of a sparable partition (UDF 2.2.12): the first of its copies that is right.
    pub(super) fn sparable(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        span: Span,
    ) -> Result<Partition, ReadError> {
        let bytes = map.bytes;
        let packet = u16_at(bytes, 40).map_or(0, u32::from);
        let copies = bytes.get(42).map_or(0, |count| usize::from(*count).min(4));
        let size = u32_at(bytes, 44).unwrap_or(0).min(64 << 10) as usize;
        if packet == 0 {
            return Err(Layout::invalid(map.offset, "the packets of a sparable partition have blocks"));
        }
        for copy in 0..copies {
            let Some(block) = u32_at(bytes, 48 + 4 * copy) else { continue };
            let offset = u64::from(block) * u64::from(self.block_size);
            let mut table = vec![0; size];
            if source.read_exact_at(offset, &mut table).is_err()
                || tag::check(&table, Some(block), offset).is_err()
                || !table.get(17..).is_some_and(|name| name.starts_with(b"*UDF Sparing Table"))
            {
                continue;
            }
            let count = u16_at(&table, 48).map_or(0, usize::from).min(MAX_MOVED);
            let entries = table.get(56..).unwrap_or_default().chunks_exact(8).take(count);
            let entries = entries.filter_map(|entry| Some((u32_at(entry, 0)?, u32_at(entry, 4)?)));
            // The highest numbers mean "not used" and "broken".
            let mut moved: Vec<(u32, u32)> =
                entries.filter(|(original, _)| *original < 0xFFFF_FFF0).collect();
            moved.sort_unstable();
            return Ok(Partition::Sparable { span, packet, moved });
        }
        Err(Layout::invalid(map.offset, "a sparable partition has a sparing table"))
    }

    /// Reads where the metadata file is (UDF 2.2.10): the main one, or its mirror. `base` is the index of the partition
    /// that it lies in.
    pub(super) fn metadata(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        base: u16,
    ) -> Result<Partition, ReadError> {
        let file = |at| {
            let block =
                u32_at(map.bytes, at).ok_or(Layout::invalid(map.offset, "a partition map is whole"))?;
            let address = Address { block, partition: base };
            FileEntry::read(self, source, address, map.offset)?.runs(self, source)
        };
        Ok(Partition::Metadata { file: file(40).or_else(|_| file(44))? })
    }

    /// Reads the virtual allocation table (UDF 2.2.11), whose file entry is the last block that was written.
    pub(super) fn virtual_table(
        &self,
        source: &dyn ReadAt,
        map: Map<'_>,
        (base, span): (u16, Span),
    ) -> Result<Partition, ReadError> {
        let last = source.len() / u64::from(self.block_size);
        // A few blocks may follow it: the run-out of the medium.
        let blocks = (0..allocation::MAX_RUN_OUT).filter_map(|back| {
            let absolute = last.checked_sub(1 + back)?;
            u32::try_from(absolute).ok()?.checked_sub(span.start)
        });
        for block in blocks {
            let address = Address { block, partition: base };
            let Ok(entry) = FileEntry::read(self, source, address, map.offset) else { continue };
            let has_header = match entry.file_type {
                // From UDF 2.00 on the table begins with a header that says its own length.
                TABLE => true,
                // Before, it ended with an identifier.
                UNSPECIFIED => false,
                _ => continue,
            };
            let table = entry.runs(self, source)?;
            let mut header = [0; 2];
            if has_header {
                table
                    .read_exact_at(source, 0, &mut header)
                    .map_err(|error| ReadError::io(entry.offset, 2, error))?;
            }
            let first = u64::from(u16::from_le_bytes(header));
            return Ok(Partition::Virtual { span, table, first });
        }
        Err(Layout::invalid(map.offset, "a virtual partition ends with its allocation table"))
    }
}
