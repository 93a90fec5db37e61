//! Encodes and decodes GUID Partition Tables: the bytes that `sgdisk` would write, without a disk.
//!
//! ```text
//! LBA 0          protective MBR: one entry of type 0xEE over the whole disk, 0x55AA at the end
//! LBA 1          primary header      "EFI PART", revision 1.0, 92 bytes under a CRC-32
//! LBA 2..=33     primary entries     128 entries of 128 bytes, with a separate CRC-32
//! LBA 34..       usable area for partitions
//! last-32..=last-1   backup entries  the same bytes
//! last           backup header       MyLBA and AlternateLBA exchanged
//! ```
//!
//! Invariants: every partition lies inside the usable area, no partitions overlap, both copies of the table agree.
//! [`GptTable::new`] refuses anything else and [`GptTable::decode`] checks the same rules, so a `GptTable` is always
//! valid. Sectors are 512 bytes. The boot code area of the MBR stays zero: UEFI does not run it.
//!
//! Specification: UEFI 2.10 section 5.2.3 (protective MBR) and section 5.3 (GPT).

use thiserror::Error;
use uuid::Uuid;

/// Bytes of one logical block.
pub const SECTOR: u64 = 512;
/// Entries in the table; the smallest number every firmware accepts.
pub const ENTRIES: usize = 128;
/// Sectors of protective MBR, header and entries at the start of the disk.
pub const PRIMARY_SECTORS: u64 = 2 + ENTRY_SECTORS;
/// Sectors of entries and header at the end of the disk.
pub const BACKUP_SECTORS: u64 = ENTRY_SECTORS + 1;

const ENTRY_BYTES: usize = 128;
const ENTRY_SECTORS: u64 = (ENTRIES * ENTRY_BYTES) as u64 / SECTOR;
const HEADER_BYTES: usize = 92;
const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const NAME_UNITS: usize = 36;
const PROTECTIVE_TYPE: u8 = 0xEE;

/// One partition, in the words of UEFI table 5-6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptEntry {
    /// PartitionTypeGUID; never nil, which means "unused".
    pub type_guid: Uuid,
    /// UniquePartitionGUID.
    pub unique_guid: Uuid,
    /// The first sector of the partition, StartingLBA.
    pub first_lba: u64,
    /// EndingLBA, inclusive.
    pub last_lba: u64,
    /// Attributes; bit 0 means: required by the platform.
    pub attributes: u64,
    /// PartitionName, at most 36 UTF-16 code units.
    pub name: String,
}

impl GptEntry {
    /// Size of the partition in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.last_lba - self.first_lba + 1) * SECTOR
    }

    /// Start of the partition, in bytes from the start of the disk.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.first_lba * SECTOR
    }
}

/// A valid partition table of one disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptTable {
    disk_guid: Uuid,
    disk_sectors: u64,
    entries: Vec<GptEntry>,
}

/// The bytes of a partition table with their places on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedGpt {
    /// The bytes for LBA 0: protective MBR, primary header, primary entries.
    pub primary: Vec<u8>,
    /// The bytes for [`EncodedGpt::backup_lba`]: backup entries, backup header.
    pub backup: Vec<u8>,
    /// First sector of the backup copy.
    pub backup_lba: u64,
}

/// The partitions or bytes are not a valid partition table.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GptError {
    /// The disk is too small for both copies of the table and one partition.
    #[error("laying out a GPT: a disk of {sectors} sectors is too small; use at least {needed}")]
    DiskTooSmall {
        /// Number of sectors of the disk.
        sectors: u64,
        /// Minimum number of sectors.
        needed: u64,
    },
    /// There are more partitions than table entries.
    #[error("laying out a GPT: {count} partitions do not fit into {ENTRIES} entries")]
    TooManyPartitions {
        /// Number of partitions.
        count: usize,
    },
    /// A partition is empty or reaches outside the usable area.
    #[error(
        "laying out a GPT: partition {number} covers {first_lba}..={last_lba}, outside {usable_first}..={usable_last}"
    )]
    OutOfBounds {
        /// Number of the partition, from 1.
        number: usize,
        /// The first sector of the partition.
        first_lba: u64,
        /// The last sector of the partition.
        last_lba: u64,
        /// First usable sector.
        usable_first: u64,
        /// Last usable sector.
        usable_last: u64,
    },
    /// Two partitions share a sector.
    #[error("laying out a GPT: partitions {first} and {second} overlap")]
    Overlap {
        /// Number of the first partition, from 1.
        first: usize,
        /// Number of the second partition.
        second: usize,
    },
    /// A partition name is longer than the field.
    #[error("laying out a GPT: the name of partition {number} has more than {NAME_UNITS} UTF-16 units")]
    NameTooLong {
        /// Number of the partition, from 1.
        number: usize,
    },
    /// A type GUID is nil, which would mark the entry unused.
    #[error("laying out a GPT: partition {number} has the nil type GUID")]
    NilType {
        /// Number of the partition, from 1.
        number: usize,
    },
    /// The bytes are not a valid table.
    #[error("reading a GPT: {structure}: {rule}")]
    Invalid {
        /// The structure, such as protective MBR or primary header.
        structure: &'static str,
        /// The rule that the structure breaks.
        rule: &'static str,
    },
}

impl GptTable {
    /// Creates a table for a disk of `disk_sectors` sectors.
    ///
    /// # Errors
    /// Returns an error if the partitions break an invariant of this module.
    pub fn new(disk_guid: Uuid, disk_sectors: u64, entries: Vec<GptEntry>) -> Result<Self, GptError> {
        let needed = PRIMARY_SECTORS + BACKUP_SECTORS + 1;
        if disk_sectors < needed {
            return Err(GptError::DiskTooSmall { sectors: disk_sectors, needed });
        }
        if entries.len() > ENTRIES {
            return Err(GptError::TooManyPartitions { count: entries.len() });
        }
        let table = Self { disk_guid, disk_sectors, entries };
        let (usable_first, usable_last) = table.usable();
        for (index, entry) in table.entries.iter().enumerate() {
            let number = index + 1;
            if entry.first_lba < usable_first
                || entry.last_lba > usable_last
                || entry.last_lba < entry.first_lba
            {
                return Err(GptError::OutOfBounds {
                    number,
                    first_lba: entry.first_lba,
                    last_lba: entry.last_lba,
                    usable_first,
                    usable_last,
                });
            }
            if entry.type_guid.is_nil() {
                return Err(GptError::NilType { number });
            }
            if entry.name.encode_utf16().count() > NAME_UNITS {
                return Err(GptError::NameTooLong { number });
            }
        }
        table.refuse_overlap()?;
        Ok(table)
    }

    /// The partitions, in table order.
    #[must_use]
    pub fn entries(&self) -> &[GptEntry] {
        &self.entries
    }

    /// The GUID of the disk, DiskGUID.
    #[must_use]
    pub fn disk_guid(&self) -> Uuid {
        self.disk_guid
    }

    /// Number of sectors of the disk.
    #[must_use]
    pub fn disk_sectors(&self) -> u64 {
        self.disk_sectors
    }

    /// FirstUsableLBA and LastUsableLBA.
    #[must_use]
    pub fn usable(&self) -> (u64, u64) {
        (PRIMARY_SECTORS, self.disk_sectors - BACKUP_SECTORS - 1)
    }

    /// Encodes both copies of the table.
    #[must_use]
    pub fn encode(&self) -> EncodedGpt {
        let entries = self.encode_entries();
        let last_lba = self.disk_sectors - 1;
        let backup_lba = self.disk_sectors - BACKUP_SECTORS;
        let mut primary = Vec::with_capacity((PRIMARY_SECTORS * SECTOR) as usize);
        primary.extend_from_slice(&protective_mbr(self.disk_sectors));
        primary.extend_from_slice(&self.encode_header(1, last_lba, 2, &entries));
        primary.extend_from_slice(&entries);
        let mut backup = Vec::with_capacity((BACKUP_SECTORS * SECTOR) as usize);
        backup.extend_from_slice(&entries);
        backup.extend_from_slice(&self.encode_header(last_lba, 1, backup_lba, &entries));
        EncodedGpt { primary, backup, backup_lba }
    }

    /// Decodes and checks both copies: `primary` from LBA 0, `backup` from `disk_sectors - BACKUP_SECTORS`.
    ///
    /// # Errors
    /// Returns an error that names the first structure that breaks a rule.
    pub fn decode(primary: &[u8], backup: &[u8], disk_sectors: u64) -> Result<Self, GptError> {
        let invalid = |structure, rule| GptError::Invalid { structure, rule };
        if primary.len() as u64 != PRIMARY_SECTORS * SECTOR || backup.len() as u64 != BACKUP_SECTORS * SECTOR
        {
            return Err(invalid("table", "both copies must be complete"));
        }
        if disk_sectors < PRIMARY_SECTORS + BACKUP_SECTORS + 1 {
            return Err(invalid("table", "the disk is too small to hold one"));
        }
        let sector = SECTOR as usize;
        let (mbr, rest) = primary.split_at(sector);
        let (header, entries) = rest.split_at(sector);
        let (backup_entries, backup_header) = backup.split_at((ENTRY_SECTORS * SECTOR) as usize);
        if mbr != protective_mbr(disk_sectors) {
            return Err(invalid("protective MBR", "it does not protect exactly this disk"));
        }
        let last_lba = disk_sectors - 1;
        let disk_guid = check_header("primary header", header, 1, last_lba, 2, disk_sectors, entries)?;
        let backup_lba = disk_sectors - BACKUP_SECTORS;
        let backup_guid = check_header(
            "backup header",
            backup_header,
            last_lba,
            1,
            backup_lba,
            disk_sectors,
            backup_entries,
        )?;
        if disk_guid != backup_guid || entries != backup_entries {
            return Err(invalid("backup", "it differs from the primary copy"));
        }
        let decoded = entries.chunks_exact(ENTRY_BYTES).filter_map(decode_entry).collect();
        Self::new(disk_guid, disk_sectors, decoded)
    }

    fn refuse_overlap(&self) -> Result<(), GptError> {
        let mut by_start: Vec<(usize, &GptEntry)> = self.entries.iter().enumerate().collect();
        by_start.sort_by_key(|(_, entry)| entry.first_lba);
        for pair in by_start.windows(2) {
            let [(first, before), (second, after)] = pair else { continue };
            if after.first_lba <= before.last_lba {
                return Err(GptError::Overlap { first: first + 1, second: second + 1 });
            }
        }
        Ok(())
    }

    fn encode_entries(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; ENTRIES * ENTRY_BYTES];
        for (entry, slot) in self.entries.iter().zip(bytes.chunks_exact_mut(ENTRY_BYTES)) {
            slot[0..16].copy_from_slice(&entry.type_guid.to_bytes_le());
            slot[16..32].copy_from_slice(&entry.unique_guid.to_bytes_le());
            slot[32..40].copy_from_slice(&entry.first_lba.to_le_bytes());
            slot[40..48].copy_from_slice(&entry.last_lba.to_le_bytes());
            slot[48..56].copy_from_slice(&entry.attributes.to_le_bytes());
            for (unit, place) in entry.name.encode_utf16().zip(slot[56..].chunks_exact_mut(2)) {
                place.copy_from_slice(&unit.to_le_bytes());
            }
        }
        bytes
    }

    fn encode_header(&self, my_lba: u64, alternate_lba: u64, entries_lba: u64, entries: &[u8]) -> Vec<u8> {
        let (usable_first, usable_last) = self.usable();
        let mut bytes = vec![0u8; SECTOR as usize];
        bytes[0..8].copy_from_slice(SIGNATURE);
        bytes[8..12].copy_from_slice(&REVISION.to_le_bytes());
        bytes[12..16].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&my_lba.to_le_bytes());
        bytes[32..40].copy_from_slice(&alternate_lba.to_le_bytes());
        bytes[40..48].copy_from_slice(&usable_first.to_le_bytes());
        bytes[48..56].copy_from_slice(&usable_last.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.disk_guid.to_bytes_le());
        bytes[72..80].copy_from_slice(&entries_lba.to_le_bytes());
        bytes[80..84].copy_from_slice(&(ENTRIES as u32).to_le_bytes());
        bytes[84..88].copy_from_slice(&(ENTRY_BYTES as u32).to_le_bytes());
        bytes[88..92].copy_from_slice(&crc32fast::hash(entries).to_le_bytes());
        // HeaderCRC32 is computed over the header with the field itself zero.
        let crc = crc32fast::hash(&bytes[..HEADER_BYTES]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn protective_mbr(disk_sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; SECTOR as usize];
    // Starting CHS 0x000200 (UEFI table 5-4), ending CHS 0xFFFFFF: not representable as CHS.
    bytes[446..454].copy_from_slice(&[0x00, 0x00, 0x02, 0x00, PROTECTIVE_TYPE, 0xFF, 0xFF, 0xFF]);
    bytes[454..458].copy_from_slice(&1u32.to_le_bytes());
    let size = u32::try_from(disk_sectors - 1).unwrap_or(u32::MAX);
    bytes[458..462].copy_from_slice(&size.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes
}

fn check_header(
    structure: &'static str,
    header: &[u8],
    my_lba: u64,
    alternate_lba: u64,
    entries_lba: u64,
    disk_sectors: u64,
    entries: &[u8],
) -> Result<Uuid, GptError> {
    let rule = |holds: bool, rule| if holds { Ok(()) } else { Err(GptError::Invalid { structure, rule }) };
    rule(header[0..8] == *SIGNATURE, "the signature is not EFI PART")?;
    rule(u32_at(header, 8) == REVISION, "the revision is not 1.0")?;
    rule(u32_at(header, 12) as usize == HEADER_BYTES, "HeaderSize is not 92")?;
    let mut zeroed = [0u8; HEADER_BYTES];
    zeroed.copy_from_slice(&header[..HEADER_BYTES]);
    zeroed[16..20].fill(0);
    rule(u32_at(header, 16) == crc32fast::hash(&zeroed), "HeaderCRC32 does not match")?;
    rule(u64_at(header, 24) == my_lba, "MyLBA is not the LBA of the header")?;
    rule(u64_at(header, 32) == alternate_lba, "AlternateLBA does not name the other copy")?;
    rule(u64_at(header, 40) == PRIMARY_SECTORS, "FirstUsableLBA is not 34")?;
    rule(u64_at(header, 48) == disk_sectors - BACKUP_SECTORS - 1, "LastUsableLBA does not fit the disk")?;
    rule(u64_at(header, 72) == entries_lba, "PartitionEntryLBA does not name this copy")?;
    rule(u32_at(header, 80) as usize == ENTRIES, "NumberOfPartitionEntries is not 128")?;
    rule(u32_at(header, 84) as usize == ENTRY_BYTES, "SizeOfPartitionEntry is not 128")?;
    rule(u32_at(header, 88) == crc32fast::hash(entries), "PartitionEntryArrayCRC32 does not match")?;
    rule(header[HEADER_BYTES..].iter().all(|byte| *byte == 0), "the reserved bytes are not zero")?;
    Ok(guid_at(header, 56))
}

fn decode_entry(slot: &[u8]) -> Option<GptEntry> {
    let type_guid = guid_at(slot, 0);
    if type_guid.is_nil() {
        return None;
    }
    let units: Vec<u16> = slot[56..]
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .take_while(|unit| *unit != 0)
        .collect();
    Some(GptEntry {
        type_guid,
        unique_guid: guid_at(slot, 16),
        first_lba: u64_at(slot, 32),
        last_lba: u64_at(slot, 40),
        attributes: u64_at(slot, 48),
        name: String::from_utf16_lossy(&units),
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0u8; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0u8; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

fn guid_at(bytes: &[u8], offset: usize) -> Uuid {
    let mut field = [0u8; 16];
    field.copy_from_slice(&bytes[offset..offset + 16]);
    Uuid::from_bytes_le(field)
}

#[cfg(test)]
mod tests;
