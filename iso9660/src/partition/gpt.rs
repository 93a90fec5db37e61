//! The GUID Partition Table.
//!
//! ```text
//! header, one sector                         entry, 128 bytes
//!  0  "EFI PART", revision 1.0                 0  type, all zero: unused
//! 12  size of the header, 92                  16  identifier
//! 16  CRC-32 of the header, this field zero   32  first sector
//! 24  own sector       32  other header       40  last sector, inclusive
//! 40  first and 48  last usable sector        48  attributes
//! 56  disk identifier                         56  name, 36 UTF-16LE units
//! 72  first sector of the entries
//! 80  number of entries   84  size of one     88  CRC-32 of all entries
//! ```
//!
//! Invariants: at most 248 entries, the number that fits between the header and the first volume descriptor. The
//! primary table and its backup differ in three addresses only, so each can be computed from the other.

use super::{SECTOR, SECTOR_SIZE};
use crate::ecma119::field::{array, put};
use crate::error::ReadError;
use crate::source::ReadAt;

const SIGNATURE: &[u8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER: usize = 92;
const ENTRY: usize = 128;
/// The number of entries that the specification requires room for and that disk tools expect.
const ENTRIES: usize = 128;
const MAX_ENTRIES: u32 = 248;
const NAME_UNITS: usize = 36;

/// A globally unique identifier in the byte order of the disk (the first three groups are little-endian).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Guid(pub [u8; 16]);

/// A GUID Partition Table: the primary table or the backup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gpt {
    /// The identifier of the disk.
    pub disk: Guid,
    /// The sector of this header.
    pub sector: u64,
    /// The sector of the other header.
    pub alternate: u64,
    /// The first sector that a partition may use.
    pub first_usable: u64,
    /// The last sector that a partition may use.
    pub last_usable: u64,
    /// The first sector of the entries.
    pub entries_sector: u64,
    /// The entries, including unused ones; at most 248.
    pub entries: Vec<Option<GptPartition>>,
}

/// A partition of a GPT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GptPartition {
    /// The partition type.
    pub kind: Guid,
    /// The identifier of the partition.
    pub id: Guid,
    /// The first sector.
    pub first: u64,
    /// The last sector, inclusive.
    pub last: u64,
    /// The attribute flags.
    pub attributes: u64,
    /// The name in UTF-16, padded with zeros.
    pub name: [u16; NAME_UNITS],
}

impl Guid {
    /// The type of an EFI system partition: C12A7328-F81F-11D2-BA4B-00A0C93EC93B.
    pub const EFI_SYSTEM: Guid = Guid([
        0x28, 0x73, 0x2A, 0xC1, 0x1F, 0xF8, 0xD2, 0x11, 0xBA, 0x4B, 0x00, 0xA0, 0xC9, 0x3E, 0xC9, 0x3B,
    ]);

    /// Returns a GUID of version 8 (RFC 9562: custom content) with these bytes.
    pub fn custom(mut bytes: [u8; 16]) -> Guid {
        bytes[7] = 0x80 | bytes[7] & 0x0F;
        bytes[8] = 0x80 | bytes[8] & 0x3F;
        Guid(bytes)
    }
}

impl GptPartition {
    /// Returns a partition from its first to its last sector. The name is truncated to 36 units.
    pub fn new(kind: Guid, id: Guid, first: u64, last: u64, name: &str) -> GptPartition {
        let mut units = [0; NAME_UNITS];
        units.iter_mut().zip(name.encode_utf16()).for_each(|(to, unit)| *to = unit);
        GptPartition { kind, id, first, last, attributes: 0, name: units }
    }

    fn parse(bytes: &[u8]) -> Option<GptPartition> {
        let number = |at| array(bytes, at).map(u64::from_le_bytes);
        let mut name = [0; NAME_UNITS];
        for (unit, pair) in name.iter_mut().zip(bytes.get(56..ENTRY)?.chunks_exact(2)) {
            *unit = u16::from_le_bytes([pair[0], pair[1]]);
        }
        let kind = Guid(array(bytes, 0)?);
        (kind != Guid::default()).then_some(())?;
        let id = Guid(array(bytes, 16)?);
        Some(GptPartition { kind, id, first: number(32)?, last: number(40)?, attributes: number(48)?, name })
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        put(&mut bytes, 0, &self.kind.0);
        put(&mut bytes, 16, &self.id.0);
        put(&mut bytes, 32, &self.first.to_le_bytes());
        put(&mut bytes, 40, &self.last.to_le_bytes());
        put(&mut bytes, 48, &self.attributes.to_le_bytes());
        for (pair, unit) in bytes[56..].chunks_exact_mut(2).zip(self.name) {
            put(pair, 0, &unit.to_le_bytes());
        }
        bytes
    }
}

impl Gpt {
    /// Returns the primary table of a disk of `sectors` sectors. No partition uses the first `reserved` sectors.
    pub fn new(disk: Guid, sectors: u64, reserved: u64, partitions: Vec<GptPartition>) -> Gpt {
        let mut entries: Vec<_> = partitions.into_iter().map(Some).collect();
        entries.resize(entries.len().max(ENTRIES), None);
        let (alternate, last_usable, entries_sector) = (0, 0, 2);
        let mut gpt =
            Gpt { disk, sector: 1, alternate, first_usable: reserved, last_usable, entries_sector, entries };
        gpt.resize(sectors);
        gpt
    }

    /// Reads the table whose header is in sector `sector`; `None` when the sector has no GPT header.
    ///
    /// # Errors
    /// [`ReadError::Invalid`] when a checksum or an address is wrong, [`ReadError::Unsupported`] when the table has
    /// more than 248 entries or entries of another size, [`ReadError::Io`] when the source fails.
    pub fn read(source: &(impl ReadAt + ?Sized), sector: u64) -> Result<Option<Gpt>, ReadError> {
        let in_source = |sector: u64, length: u64| {
            let offset = sector.checked_mul(SECTOR_SIZE)?;
            (offset.checked_add(length)? <= source.len()).then_some(offset)
        };
        let Some(offset) = in_source(sector, SECTOR_SIZE) else { return Ok(None) };
        let mut header = [0; SECTOR];
        read(source, offset, &mut header)?;
        if !header.starts_with(SIGNATURE) {
            return Ok(None);
        }
        let invalid = |at: u64, rule| ReadError::Invalid { offset: offset + at, rule };
        let short = |at| array(&header, at).map_or(0, u32::from_le_bytes);
        let long = |at| array(&header, at).map_or(0, u64::from_le_bytes);
        let size = usize::try_from(short(12)).ok().filter(|size| (HEADER..=SECTOR).contains(size));
        let mut checked = header;
        put(&mut checked, 16, &[0; 4]);
        match size {
            Some(size) if crc32fast::hash(&checked[..size]) == short(16) => {}
            Some(_) => return Err(invalid(16, "the checksum of a GPT header is right")),
            None => return Err(invalid(12, "a GPT header has 92 to 512 bytes")),
        }
        if long(24) != sector {
            return Err(invalid(24, "a GPT header says in which sector it is"));
        }
        let (count, entries_sector) = (short(80), long(72));
        if count > MAX_ENTRIES || short(84) as usize != ENTRY {
            let feature = "a GPT with more than 248 entries or with entries of other than 128 bytes";
            return Err(ReadError::Unsupported { offset: offset + 80, feature });
        }
        let mut table = vec![0; count as usize * ENTRY];
        let at = in_source(entries_sector, table.len() as u64)
            .ok_or(invalid(72, "the entries of a GPT lie inside the disk"))?;
        read(source, at, &mut table)?;
        if crc32fast::hash(&table) != short(88) {
            return Err(invalid(88, "the checksum of the GPT entries is right"));
        }
        Ok(Some(Gpt {
            disk: Guid(array(&header, 56).unwrap_or_default()),
            sector,
            alternate: long(32),
            first_usable: long(40),
            last_usable: long(48),
            entries_sector,
            entries: table.chunks_exact(ENTRY).map(GptPartition::parse).collect(),
        }))
    }

    /// Returns the number of sectors of the entries.
    pub fn entries_sectors(&self) -> u64 {
        ((self.entries.len() * ENTRY) as u64).div_ceil(SECTOR_SIZE)
    }

    /// Adapts the primary table to a disk of another size: the backup moves to the end, and all sectors before it
    /// become usable.
    pub fn resize(&mut self, sectors: u64) {
        self.alternate = sectors.saturating_sub(1);
        self.last_usable = sectors.saturating_sub(2 + self.entries_sectors());
    }

    /// Returns the backup of a primary table. Its entries are directly before its header, which is in sector
    /// `alternate`.
    pub fn backup(&self) -> Gpt {
        let entries_sector = self.alternate.saturating_sub(self.entries_sectors());
        Gpt { sector: self.alternate, alternate: self.sector, entries_sector, ..self.clone() }
    }

    /// Returns the sector of the header with its checksums.
    pub fn header(&self) -> [u8; SECTOR] {
        let mut header = [0; SECTOR];
        put(&mut header, 0, SIGNATURE);
        put(&mut header, 8, &REVISION.to_le_bytes());
        put(&mut header, 12, &(HEADER as u32).to_le_bytes());
        for (at, value) in [
            (24, self.sector),
            (32, self.alternate),
            (40, self.first_usable),
            (48, self.last_usable),
            (72, self.entries_sector),
        ] {
            put(&mut header, at, &value.to_le_bytes());
        }
        put(&mut header, 56, &self.disk.0);
        // 32 bits can represent every number that was parsed or that fits a disk.
        put(&mut header, 80, &u32::try_from(self.entries.len()).unwrap_or(u32::MAX).to_le_bytes());
        put(&mut header, 84, &(ENTRY as u32).to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&self.entry_bytes()).to_le_bytes());
        let checksum = crc32fast::hash(&header[..HEADER]);
        put(&mut header, 16, &checksum.to_le_bytes());
        header
    }

    /// Returns the entries, padded to whole sectors.
    pub fn table(&self) -> Vec<u8> {
        let mut bytes = self.entry_bytes();
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }

    fn entry_bytes(&self) -> Vec<u8> {
        let entry = |entry: &Option<GptPartition>| entry.map_or([0; ENTRY], GptPartition::to_bytes);
        self.entries.iter().flat_map(entry).collect()
    }
}

fn read(source: &(impl ReadAt + ?Sized), offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
    let length = buffer.len();
    source.read_exact_at(offset, buffer).map_err(|source| ReadError::Io { offset, length, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn disk(gpt: &Gpt, sectors: usize) -> Vec<u8> {
        let mut disk = vec![0; sectors * SECTOR];
        for gpt in [gpt, &gpt.backup()] {
            put(&mut disk, gpt.sector as usize * SECTOR, &gpt.header());
            put(&mut disk, gpt.entries_sector as usize * SECTOR, &gpt.table());
        }
        disk
    }

    fn table(sectors: u64) -> Gpt {
        let partition =
            GptPartition::new(Guid::EFI_SYSTEM, Guid::custom([7; 16]), 64, 127, "EFI system partition");
        Gpt::new(Guid::custom([9; 16]), sectors, 64, vec![partition])
    }

    #[test]
    fn primary_and_backup_read_back_and_point_to_each_other() {
        let gpt = table(400);
        let disk = disk(&gpt, 400);
        assert_eq!(Gpt::read(&disk, 1).unwrap().unwrap(), gpt);
        assert_eq!(Gpt::read(&disk, gpt.alternate).unwrap().unwrap(), gpt.backup());
        assert_eq!((gpt.alternate, gpt.last_usable, gpt.backup().entries_sector), (399, 366, 367));
        assert_eq!(gpt.backup().alternate, 1);
    }

    #[test]
    fn the_backup_moves_to_the_end_of_a_larger_disk() {
        let mut gpt = table(400);
        gpt.resize(1000);
        let disk = disk(&gpt, 1000);
        assert_eq!(Gpt::read(&disk, 999).unwrap().unwrap().entries, gpt.entries);
        assert_eq!(gpt.last_usable, 966);
    }

    #[test]
    fn a_missing_table_is_none_and_a_damaged_one_is_invalid_at_its_offset() {
        let good = disk(&table(400), 400);
        assert!(Gpt::read(&good, 2).unwrap().is_none());
        assert!(Gpt::read(&good, 400).unwrap().is_none());
        assert!(Gpt::read(&good, u64::MAX).unwrap().is_none());
        let damage = |at: usize, value: &[u8]| {
            let mut disk = good.clone();
            put(&mut disk, at, value);
            // The header checksum is recomputed, unless the checksum itself was damaged.
            if at != 512 + 16 {
                let mut header = disk[512..512 + HEADER].to_vec();
                put(&mut header, 16, &[0; 4]);
                put(&mut disk, 512 + 16, &crc32fast::hash(&header).to_le_bytes());
            }
            match Gpt::read(&disk, 1) {
                Err(ReadError::Invalid { offset, .. } | ReadError::Unsupported { offset, .. }) => offset,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(damage(512 + 16, &[1]), 512 + 16);
        assert_eq!(damage(512 + 12, &[0xFF; 4]), 512 + 12);
        assert_eq!(damage(512 + 24, &[2]), 512 + 24);
        assert_eq!(damage(512 + 72, &[0xFF; 8]), 512 + 72);
        assert_eq!(damage(512 + 80, &249_u32.to_le_bytes()), 512 + 80);
        assert_eq!(damage(512 + 80, &[0xFF; 4]), 512 + 80);
        assert_eq!(damage(1024 + 20, &[1]), 512 + 88);
    }

    proptest! {
        #[test]
        fn reading_any_header_never_panics(header in proptest::collection::vec(any::<u8>(), 84)) {
            let mut disk = disk(&table(100), 100);
            put(&mut disk, 512 + 8, &header);
            let mut header = disk[512..512 + HEADER].to_vec();
            put(&mut header, 12, &(HEADER as u32).to_le_bytes());
            put(&mut header, 16, &[0; 4]);
            let checksum = crc32fast::hash(&header);
            put(&mut header, 16, &checksum.to_le_bytes());
            put(&mut disk, 512, &header);
            let _ = Gpt::read(&disk, 1);
        }
    }
}
