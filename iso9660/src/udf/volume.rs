//! From the anchor to the root directory (3/10, 4/14.1).
//!
//! ```text
//! anchor       16 main sequence, 24 reserve sequence (length, block)
//! every descriptor of a sequence    16 its number: the descriptor with the higher number replaces an older one
//! primary      376 date                       partition    22 number   188 first block   192 blocks
//! logical       84 label (128)   212 block size   240 revision   248 file set (long_ad)
//!              264 length and 268 number of partition maps       440 the maps
//! pointer       20 location of the next part of the sequence
//! file set     400 root (long_ad)
//! ```
//!
//! Invariants: at most [`MAX_DESCRIPTORS`] descriptors, however the sequence continues. The reserve sequence is used
//! when the main sequence is not usable. The root is a directory.

use super::file_entry::{FileEntry, FileKind};
use super::partition::{Layout, MAX_MAPS, Map, MapKind, Partition, Span};
use super::{Address, tag, text, u16_at, u32_at};
use crate::error::ReadError;
use crate::source::ReadAt;

/// The supported block sizes, that of optical media first.
const BLOCK_SIZES: [u32; 4] = [2048, 512, 4096, 1024];
/// The largest number of descriptors of one sequence.
const MAX_DESCRIPTORS: u32 = 256;

const PRIMARY: u16 = 1;
const ANCHOR: u16 = 2;
const POINTER: u16 = 3;
const PARTITION: u16 = 5;
const LOGICAL: u16 = 6;
const TERMINATOR: u16 = 8;
const FILE_SET: u16 = 256;

/// A UDF file system.
#[derive(Debug)]
pub(crate) struct Udf {
    pub(crate) layout: Layout,
    pub(crate) root: Address,
    /// The offset of the root's address in the image.
    pub(crate) root_from: u64,
    pub(crate) label: String,
    /// The revision, 0x0102 to 0x0260.
    pub(crate) revision: u16,
    /// The recording time in seconds since 1970.
    pub(crate) recorded: Option<i64>,
}

/// A descriptor with its offset and its number in the sequence.
struct Found {
    bytes: Vec<u8>,
    offset: u64,
    number: u32,
}

/// The descriptors of a sequence.
#[derive(Default)]
struct Sequence {
    primary: Option<Found>,
    logical: Option<Found>,
    /// The partitions, at most as many as partition maps.
    partitions: Vec<(u16, Found)>,
}

impl Udf {
    /// Opens the file system of an image whose recognition sequence declares one.
    pub(crate) fn open(source: &dyn ReadAt) -> Result<Udf, ReadError> {
        let mut problem = None;
        for block_size in BLOCK_SIZES {
            let blocks = source.len() / u64::from(block_size);
            let candidates = [Some(256), blocks.checked_sub(1), blocks.checked_sub(257)];
            for block in candidates.into_iter().flatten().filter_map(|block| u32::try_from(block).ok()) {
                let Some(anchor) = anchor(source, block_size, block)? else { continue };
                for at in [16, 24] {
                    match Udf::from_sequence(source, block_size, &anchor, at) {
                        Ok(udf) => return Ok(udf),
                        Err(error) => problem = problem.or(Some(error)),
                    }
                }
            }
        }
        let offset = 256 * u64::from(BLOCK_SIZES[0]);
        Err(problem
            .unwrap_or(Layout::invalid(offset, "a UDF volume has an anchor at block 256 or at its end")))
    }

    fn from_sequence(
        source: &dyn ReadAt,
        block_size: u32,
        anchor: &Found,
        at: usize,
    ) -> Result<Udf, ReadError> {
        let extent = u32_at(&anchor.bytes, at).zip(u32_at(&anchor.bytes, at + 4));
        let extent = extent.ok_or(Layout::invalid(anchor.offset, "an anchor is whole"))?;
        let sequence = Sequence::read(source, block_size, extent)?;
        let missing = Layout::invalid(anchor.offset, "a UDF volume has a Logical Volume Descriptor");
        let logical = sequence.logical.as_ref().ok_or(missing)?;
        let Found { bytes, offset, .. } = logical;
        let short = || Layout::invalid(*offset, "a Logical Volume Descriptor fits its block");
        if u32_at(bytes, 212) != Some(block_size) {
            let feature = "UDF blocks of another size than the medium's";
            return Err(ReadError::Unsupported { offset: *offset, feature });
        }
        let layout = layout(source, block_size, logical, &sequence.partitions)?;
        let set = Address::parse(bytes, 252).ok_or_else(short)?;
        let mut block = Vec::new();
        let at = layout.read_block(source, set, *offset, &mut block)?;
        if tag::check(&block, Some(set.block), at)? != FILE_SET {
            return Err(Layout::invalid(at, "a Logical Volume Descriptor leads to a File Set Descriptor"));
        }
        let root = Address::parse(&block, 404).ok_or_else(short)?;
        if FileEntry::read(&layout, source, root, at)?.kind() != FileKind::Directory {
            return Err(Layout::invalid(at, "the root of a UDF volume is a directory"));
        }
        let recorded = sequence.primary.and_then(|primary| text::date(primary.bytes.get(376..)?));
        Ok(Udf {
            layout,
            root,
            root_from: at,
            label: text::dstring(bytes.get(84..212).ok_or_else(short)?),
            revision: u16_at(bytes, 240).ok_or_else(short)?,
            recorded,
        })
    }
}

/// Reads the anchor in a block, if the block has one.
fn anchor(source: &dyn ReadAt, block_size: u32, block: u32) -> Result<Option<Found>, ReadError> {
    let Some((bytes, offset)) = volume_block(source, block_size, block)? else { return Ok(None) };
    let right = tag::check(&bytes, Some(block), offset).is_ok_and(|identifier| identifier == ANCHOR);
    Ok(right.then_some(Found { bytes, offset, number: 0 }))
}

/// Reads a block of the volume and returns it with its offset, if the image is long enough.
fn volume_block(
    source: &dyn ReadAt,
    block_size: u32,
    block: u32,
) -> Result<Option<(Vec<u8>, u64)>, ReadError> {
    let offset = u64::from(block) * u64::from(block_size);
    if offset + u64::from(block_size) > source.len() {
        return Ok(None);
    }
    let mut bytes = vec![0; block_size as usize];
    source.read_exact_at(offset, &mut bytes).map_err(|error| ReadError::io(offset, bytes.len(), error))?;
    Ok(Some((bytes, offset)))
}

impl Sequence {
    /// Reads the sequence in an extent (length in bytes, first block).
    fn read(source: &dyn ReadAt, block_size: u32, extent: (u32, u32)) -> Result<Sequence, ReadError> {
        let mut sequence = Sequence::default();
        let (mut left, mut block) = (extent.0 / block_size, extent.1);
        let mut budget = MAX_DESCRIPTORS;
        while left > 0 {
            budget = budget.checked_sub(1).ok_or(ReadError::Limit {
                what: "UDF volume descriptors",
                limit: u64::from(MAX_DESCRIPTORS),
            })?;
            let Some((bytes, offset)) = volume_block(source, block_size, block)? else { break };
            // An unrecorded block ends a sequence, like its terminator.
            let Ok(identifier) = tag::check(&bytes, Some(block), offset) else { break };
            let number = u32_at(&bytes, 16).unwrap_or(0);
            let next = u32_at(&bytes, 20).zip(u32_at(&bytes, 24));
            (left, block) = (left - 1, block.saturating_add(1));
            match (identifier, next) {
                (TERMINATOR, _) => break,
                (POINTER, Some((length, first))) => (left, block) = (length / block_size, first),
                _ => sequence.add(identifier, Found { bytes, offset, number })?,
            }
        }
        Ok(sequence)
    }

    fn add(&mut self, identifier: u16, found: Found) -> Result<(), ReadError> {
        let newer = |old: &Option<Found>| old.as_ref().is_none_or(|old| old.number <= found.number);
        match identifier {
            PRIMARY if newer(&self.primary) => self.primary = Some(found),
            LOGICAL if newer(&self.logical) => self.logical = Some(found),
            PARTITION => {
                let number = u16_at(&found.bytes, 22).unwrap_or(0);
                let full = self.partitions.len() == MAX_MAPS;
                match self.partitions.iter_mut().find(|(known, _)| *known == number) {
                    Some((_, old)) if old.number <= found.number => *old = found,
                    Some(_) => {}
                    None if full => {
                        return Err(ReadError::Limit { what: "UDF partitions", limit: MAX_MAPS as u64 });
                    }
                    None => self.partitions.push((number, found)),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the partition maps of a Logical Volume Descriptor with their offsets.
fn maps(logical: &Found) -> Result<Vec<Map<'_>>, ReadError> {
    let Found { bytes, offset, .. } = logical;
    let rule = "the partition maps of a Logical Volume Descriptor lie inside it";
    let invalid = || Layout::invalid(*offset, rule);
    let length = u32_at(bytes, 264).ok_or_else(invalid)? as usize;
    let count = u32_at(bytes, 268).ok_or_else(invalid)? as usize;
    let mut rest = 440_usize.checked_add(length).and_then(|end| bytes.get(440..end)).ok_or_else(invalid)?;
    if count > MAX_MAPS {
        return Err(ReadError::Limit { what: "UDF partition maps", limit: MAX_MAPS as u64 });
    }
    let mut maps = Vec::new();
    for _ in 0..count {
        let offset = offset + (440 + length - rest.len()) as u64;
        let size = rest.get(1).map_or(0, |size| usize::from(*size));
        let (map, after) = rest.split_at_checked(size).filter(|_| size >= 2).ok_or_else(invalid)?;
        maps.push(Map { bytes: map, offset });
        rest = after;
    }
    Ok(maps)
}

/// Returns the layout of the partition maps. Structures in the physical partition can be read only when that partition
/// is known, so this takes two passes.
fn layout(
    source: &dyn ReadAt,
    block_size: u32,
    logical: &Found,
    descriptors: &[(u16, Found)],
) -> Result<Layout, ReadError> {
    let maps = maps(logical)?;
    let mut kinds = Vec::new();
    let mut layout = Layout { block_size, partitions: Vec::new() };
    for map in &maps {
        let kind = map.kind()?;
        let number = map.number();
        let known = descriptors.iter().find(|(known, _)| Some(*known) == number);
        let rule = "a partition map names a Partition Descriptor";
        let (_, found) = known.ok_or(Layout::invalid(map.offset, rule))?;
        let span = u32_at(&found.bytes, 188).zip(u32_at(&found.bytes, 192));
        let (start, blocks) = span.ok_or(Layout::invalid(found.offset, "a Partition Descriptor is whole"))?;
        let span = Span { start, blocks };
        kinds.push((kind, number, span));
        layout.partitions.push(match kind {
            MapKind::Physical => Partition::Physical(span),
            MapKind::Sparable => layout.sparable(source, *map, span)?,
            MapKind::Virtual | MapKind::Metadata => Partition::Missing,
        });
    }
    for (index, (map, (kind, number, span))) in maps.iter().zip(&kinds).enumerate() {
        if !matches!(kind, MapKind::Virtual | MapKind::Metadata) {
            continue;
        }
        let base = kinds.iter().position(|(other, same, _)| {
            same == number && matches!(other, MapKind::Physical | MapKind::Sparable)
        });
        let base = base.and_then(|base| u16::try_from(base).ok());
        let rule = "a virtual or metadata partition lies in another one";
        let base = base.ok_or(Layout::invalid(map.offset, rule))?;
        layout.partitions[index] = match kind {
            MapKind::Virtual => layout.virtual_table(source, *map, (base, *span))?,
            _ => layout.metadata(source, *map, base)?,
        };
    }
    Ok(layout)
}
