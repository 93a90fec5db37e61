//! Reads the descriptors of the original and, for each tree, its root directory and its path table.
//!
//! ```text
//! sector 16..  primary ----------------------> tree: root records, path table      each tree is changed once,
//!              supplementary %/E -> Joliet --> tree                                even if several descriptors
//!              supplementary, version 2 -----> tree, or that of primary             point to it
//!              boot record -> boot catalog: only read
//!              terminator, then NSR02 / NSR03 -> refused
//! ```

use crate::SECTOR_SIZE;
use crate::ecma119::field::{array, read_both_u16, read_both_u32};
use crate::ecma119::record::{DIRECTORY, Record};
use crate::ecma119::{FIRST_DESCRIPTOR, SECTOR, descriptor};
use crate::eltorito::{self, Catalog, CatalogEntry};
use crate::error::ReadError;
use crate::source::ReadAt;

use super::budget::Budget;
use super::dialect::Dialect;
use super::error::SpliceError;
use super::path_table::PathTable;
use super::records::{self, RawRecord};
use super::tree_kind::TreeKind;

/// The largest number of descriptors that are read; Linux reads 84.
const MAX_DESCRIPTORS: u32 = 100;
/// The largest number of sectors after the descriptors that are searched for UDF.
const MAX_RECOGNITION: u64 = 16;
/// BP 7: the version of an Enhanced Volume Descriptor.
const ENHANCED: u8 = 2;

/// A volume descriptor that points to a tree.
#[derive(Clone, Debug)]
pub(crate) struct Descriptor {
    pub(crate) offset: u64,
    pub(crate) sector: [u8; SECTOR],
    pub(crate) kind: TreeKind,
}

/// A tree and the descriptors that point to it.
pub(crate) struct Tree {
    pub(crate) kind: TreeKind,
    pub(crate) descriptors: Vec<Descriptor>,
    /// The offset of the root directory in bytes.
    pub(crate) root_offset: u64,
    pub(crate) root_length: u32,
    pub(crate) records: Vec<RawRecord>,
    pub(crate) path_table: PathTable,
    pub(crate) rock_ridge: Option<Dialect>,
}

/// The parsed metadata of the original.
pub(crate) struct Original {
    pub(crate) trees: Vec<Tree>,
    /// The offset of the boot catalog, and its entries.
    pub(crate) boot: Option<(u64, Vec<CatalogEntry>)>,
    /// The offsets of the sectors in which xorriso stores checksums of the bytes before them.
    pub(crate) tags: Vec<u64>,
}

impl Descriptor {
    fn parse(offset: u64, sector: [u8; SECTOR], kind: TreeKind) -> Result<Descriptor, ReadError> {
        let invalid = |at: u64, rule| ReadError::Invalid { offset: offset + at, rule };
        match read_both_u16(&sector, 128) {
            Some(2048) => Ok(Descriptor { offset, sector, kind }),
            Some(_) => Err(ReadError::Unsupported {
                offset: offset + 128,
                feature: "logical blocks of other than 2048 bytes",
            }),
            None => Err(invalid(128, "both byte orders of the logical block size agree")),
        }
    }

    fn number(&self, at: usize, rule: &'static str) -> Result<u32, ReadError> {
        read_both_u32(&self.sector, at).ok_or(ReadError::Invalid { offset: self.offset + at as u64, rule })
    }

    /// Returns the offset and length of the root directory.
    fn root(&self) -> Result<(u64, u32), ReadError> {
        let offset = self.offset + 156;
        let root = Record::parse(&self.sector[156..190], offset)?;
        if self.sector[157] != 0 {
            let feature = "directories with extended attribute records";
            return Err(ReadError::Unsupported { offset, feature });
        }
        if root.flags & DIRECTORY == 0 || root.data_length == 0 {
            return Err(ReadError::Invalid { offset, rule: "the root is a directory with records" });
        }
        Ok((root.data_offset, root.data_length))
    }

    fn path_table_size(&self) -> Result<u32, ReadError> {
        self.number(132, "both byte orders of the path table size agree")
    }

    fn l_table(&self) -> u64 {
        array(&self.sector, 140).map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)) * SECTOR_SIZE)
    }

    /// Returns the offset and length of every path table.
    pub(crate) fn path_tables(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        let little = [140, 144].map(|at| array(&self.sector, at).map_or(0, u32::from_le_bytes));
        let big = [148, 152].map(|at| array(&self.sector, at).map_or(0, u32::from_be_bytes));
        let size = u64::from(self.path_table_size()?);
        let there = little.into_iter().chain(big).filter(|sector| *sector != 0);
        Ok(there.map(|sector| (u64::from(sector) * SECTOR_SIZE, size)).collect())
    }
}

impl Original {
    pub(crate) fn read(source: &Budget<'_>) -> Result<Original, SpliceError> {
        let (mut descriptors, mut catalog) = (Vec::new(), None);
        let mut next = u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE;
        let end = next + u64::from(MAX_DESCRIPTORS) * SECTOR_SIZE;
        loop {
            if next == end {
                return Err(SpliceError::Limit { what: "volume descriptors", limit: MAX_DESCRIPTORS.into() });
            }
            let sector = source.sector(next, "the volume descriptors end with a terminator")?;
            let unterminated =
                ReadError::Invalid { offset: next, rule: "the volume descriptors end with a terminator" };
            let kind = match descriptor::kind(&sector) {
                Some(descriptor::PRIMARY) => Some(TreeKind::Primary),
                Some(descriptor::SUPPLEMENTARY) if descriptor::is_joliet(&sector) => Some(TreeKind::Joliet),
                Some(descriptor::SUPPLEMENTARY) if sector[6] == ENHANCED => Some(TreeKind::Enhanced),
                Some(descriptor::SUPPLEMENTARY) => {
                    let feature = "a supplementary tree in an unknown character set";
                    return Err(ReadError::Unsupported { offset: next, feature }.into());
                }
                Some(descriptor::BOOT) => {
                    catalog = catalog.or_else(|| eltorito::parse_boot_record(&sector));
                    None
                }
                Some(descriptor::TERMINATOR) => break,
                Some(_) => None,
                None if has_udf(source, next)? => return Err(SpliceError::Udf),
                None => return Err(unterminated.into()),
            };
            if let Some(kind) = kind {
                descriptors.push(Descriptor::parse(next, sector, kind)?);
            }
            next += SECTOR_SIZE;
        }
        if has_udf(source, next + SECTOR_SIZE)? {
            return Err(SpliceError::Udf);
        }
        let (mut trees, mut sectors) = (Vec::new(), 0);
        for descriptor in descriptors {
            sectors = sectors.max(descriptor.number(80, "both byte orders of the volume space size agree")?);
            add(&mut trees, source, descriptor)?;
        }
        if !trees.iter().any(|tree| tree.kind == TreeKind::Primary) {
            let offset = u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE;
            let rule = "an ISO 9660 image has a Primary Volume Descriptor";
            return Err(ReadError::Invalid { offset, rule }.into());
        }
        let (claimed, len) = (u64::from(sectors) * SECTOR_SIZE, source.len());
        if claimed > len {
            return Err(SpliceError::Truncated { len, claimed });
        }
        Ok(Original { trees, boot: boot(source, catalog)?, tags: checksum_tags(source, next + SECTOR_SIZE)? })
    }
}

/// Adds a descriptor to the tree it points to.
fn add(trees: &mut Vec<Tree>, source: &Budget<'_>, descriptor: Descriptor) -> Result<(), SpliceError> {
    let (root_offset, root_length) = descriptor.root()?;
    let kind = descriptor.kind;
    if let Some(tree) = trees.iter_mut().find(|tree| tree.root_offset == root_offset) {
        let same_names = (tree.kind == TreeKind::Joliet) == (kind == TreeKind::Joliet);
        if !same_names || tree.root_length != root_length {
            return Err(SpliceError::Overlap { offset: root_offset });
        }
        tree.descriptors.push(descriptor);
        return Ok(());
    }
    let bytes = source.bytes(root_offset, root_length.into(), "a root directory lies inside the image")?;
    let records = records::split(&bytes, root_offset)?;
    if records[0].data_offset != root_offset || records[0].data_length != root_length {
        let rule = "a directory begins with the record of itself";
        return Err(ReadError::Invalid { offset: root_offset, rule }.into());
    }
    let rock_ridge = if kind == TreeKind::Joliet { None } else { Dialect::of(&records[0]) };
    let (l_table, size) = (descriptor.l_table(), descriptor.path_table_size()?);
    let table = source.bytes(l_table, size.into(), "a path table lies inside the image")?;
    let path_table = PathTable::parse(&table, l_table)?;
    let descriptors = vec![descriptor];
    trees.push(Tree { kind, descriptors, root_offset, root_length, records, path_table, rock_ridge });
    Ok(())
}

/// Reads the boot catalog. Only one sector is read, as firmware does.
fn boot(source: &Budget<'_>, sector: Option<u32>) -> Result<Option<(u64, Vec<CatalogEntry>)>, SpliceError> {
    let Some(sector) = sector else { return Ok(None) };
    let offset = u64::from(sector) * SECTOR_SIZE;
    let catalog = source.sector(offset, "the boot catalog lies inside the image")?;
    let Catalog { entries, faults } = eltorito::parse_catalog(&catalog, offset);
    // A splice keeps what an image boots, so the whole catalog must be known.
    faults.into_iter().next().map_or(Ok(Some((offset, entries))), |fault| Err(fault.into()))
}

/// Returns the checksum tags of libisofs. Each is a line of text at the start of a sector that names the next sector:
/// `libisofs_sb_checksum_tag_v1 pos=19 range_start=0 range_size=19 next=28 md5=...`
fn checksum_tags(source: &Budget<'_>, first: u64) -> Result<Vec<u64>, SpliceError> {
    let mut tags = Vec::new();
    let mut offset = first;
    for name in
        ["libisofs_sb_checksum_tag_v1 ", "libisofs_tree_checksum_tag_v1 ", "libisofs_checksum_tag_v1 "]
    {
        if offset.saturating_add(SECTOR_SIZE) > source.len() {
            break;
        }
        let sector = source.sector(offset, "")?;
        let line: Vec<u8> = sector.iter().copied().take_while(|byte| *byte != b'\n').collect();
        let Some(fields) = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(name)) else {
            break;
        };
        tags.push(offset);
        let next = fields.split(' ').find_map(|field| field.strip_prefix("next="));
        let Some(next) = next.and_then(|next| next.parse::<u32>().ok()) else { break };
        offset = u64::from(next) * SECTOR_SIZE;
    }
    Ok(tags)
}

/// Returns whether a UDF recognition sequence (ECMA-167 2/9) begins at byte `offset` or shortly after it.
fn has_udf(source: &Budget<'_>, offset: u64) -> Result<bool, SpliceError> {
    let sectors = (source.len().saturating_sub(offset) / SECTOR_SIZE).min(MAX_RECOGNITION);
    let bytes = source.bytes(offset.min(source.len()), sectors * SECTOR_SIZE, "")?;
    let identifiers = bytes.chunks_exact(SECTOR).map(|sector| &sector[1..6]);
    let mut until_end = identifiers.take_while(|identifier| *identifier != b"TEA01");
    Ok(until_end.any(|identifier| matches!(identifier, b"NSR02" | b"NSR03")))
}
