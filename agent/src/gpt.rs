//! GUID partition tables for sectors of 512 and 4096 bytes.
//!
//! ```text
//! LBA 0      protective MBR: one entry of type 0xEE over the disk
//! LBA 1      primary header, then 128 entries of 128 bytes (32 sectors of 512 bytes, 4 of 4096)
//! …          partitions
//! end        the same entries, backup header in the last sector
//! ```
//!
//! [`Table::write`] writes the backup first, then the primary copy: an interruption leaves a disk whose old or new table
//! is whole. [`Table::read`] takes either copy, so an image that was written to a larger disk is read by its primary copy
//! and written again with its backup at the new end.
//!
//! Invariants: partitions are inside the usable sectors and do not overlap; both copies agree; CRC-32 of headers and
//! entries hold. UEFI 2.10 sections 5.2.3 and 5.3.

use std::{io, ops::Range};

use recipe::partition::PlacedPartition;
use uuid::Uuid;

use crate::device::Disk;

const ENTRIES: usize = 128;
/// The places of the four entries of an MBR.
const MBR_ENTRIES: [usize; 4] = [446, 462, 478, 494];
/// The type of the MBR's entry that stands for a GPT.
const PROTECTIVE: u8 = 0xee;
const ENTRY_BYTES: usize = 128;
const HEADER_BYTES: usize = 92;
const SIGNATURE: &[u8; 8] = b"EFI PART";
const NAME_UNITS: usize = 36;
const MIB: u64 = 1024 * 1024;

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GptEntry {
    /// The type GUID.
    pub type_guid: Uuid,
    /// The GUID of this partition.
    pub unique_guid: Uuid,
    /// The first sector.
    pub first_lba: u64,
    /// The last sector.
    pub last_lba: u64,
    /// The attributes.
    pub attributes: u64,
    /// The name as UTF-16 units without trailing zeros. Foreign tables need not hold valid text.
    pub name: Vec<u16>,
}

/// The partition table of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The GUID of the disk.
    pub disk_guid: Uuid,
    /// The MBR without its signature: boot code, then four entries at 446. It is kept when a table is written again: some BIOSes start
    /// only a disk with an active entry, and a hybrid MBR names partitions. Empty for a new one.
    pub mbr: Vec<u8>,
    /// Slots of the table; a partition number is its position and 1.
    pub entries: Vec<Option<GptEntry>>,
    /// Whether the copy that was read has 128 entries, the primary one at LBA 2: [`Table::write`] writes no other place.
    pub is_usual: bool,
    sector: u64,
    sectors: u64,
}

/// A table cannot be written, or the bytes are no table.
#[derive(Debug, thiserror::Error)]
pub enum GptError {
    /// The disk could not be read or written.
    #[error("{what} the partition table")]
    Disk {
        /// Reading or writing.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The table breaks a rule.
    #[error("the partition table is not valid: {0}")]
    Invalid(String),
}

impl Table {
    /// Creates the table of placed partitions. `guid` is called for the disk and for each partition.
    ///
    /// # Errors
    /// Returns an error when a partition breaks an invariant of this module.
    pub fn new(
        disk: &dyn Disk,
        parts: &[PlacedPartition],
        mut guid: impl FnMut() -> Uuid,
    ) -> Result<Self, GptError> {
        let mut table = Self {
            disk_guid: guid(),
            mbr: Vec::new(),
            entries: Vec::new(),
            is_usual: true,
            sector: disk.sector(),
            sectors: disk.size() / disk.sector(),
        };
        for part in parts {
            table.entries.push(Some(GptEntry {
                type_guid: part.type_guid,
                unique_guid: guid(),
                first_lba: part.first_lba,
                last_lba: part.last_lba,
                attributes: 0,
                name: part.name.encode_utf16().collect(),
            }));
        }
        table.check()?;
        Ok(table)
    }

    /// Marks the protective entry of a new table as active. Some BIOSes start no disk without an active entry; UEFI wants none.
    pub fn set_active(&mut self) {
        self.mbr.resize(510, 0);
        self.mbr[446..458].copy_from_slice(&[0x80, 0, 2, 0, PROTECTIVE, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
    }

    /// Reads the table of a disk: the primary copy, or the backup at the end when the primary is damaged. Returns `None`
    /// when the disk has neither.
    ///
    /// # Errors
    /// Returns the error of the medium, or an error when a copy with a valid checksum breaks a rule.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, GptError> {
        let sectors = disk.size() / disk.sector();
        for lba in [1, sectors.saturating_sub(1)] {
            if let Some(table) = read_copy(disk, disk.sector(), lba)? {
                table.check()?;
                return Ok(Some(table));
            }
        }
        Ok(None)
    }

    /// Returns whether the kernel takes the partitions of this disk from this table. It reads the primary copy only, behind a protective
    /// MBR; the backup alone, which [`Table::read`] accepts, shows it nothing.
    ///
    /// # Errors
    /// Returns the error of the medium.
    pub fn is_primary_of(&self, disk: &dyn Disk) -> Result<bool, GptError> {
        let primary = read_copy(disk, disk.sector(), 1)?;
        Ok(primary.is_some_and(|primary| {
            let is_protective =
                MBR_ENTRIES.iter().any(|entry| primary.mbr.get(entry + 4) == Some(&PROTECTIVE));
            is_protective && primary.disk_guid == self.disk_guid && primary.entries == self.entries
        }))
    }

    /// Returns the first and the last sector that partitions can use.
    #[must_use]
    pub fn usable(&self) -> (u64, u64) {
        let table = entry_sectors(self.sector);
        (2 + table, self.sectors.saturating_sub(table + 2))
    }

    /// Returns the bytes of a partition on the disk. Numbers begin at 1.
    #[must_use]
    pub fn range(&self, number: usize) -> Option<Range<u64>> {
        let entry = self.entries.get(number.checked_sub(1)?)?.as_ref()?;
        Some(entry.first_lba * self.sector..(entry.last_lba + 1) * self.sector)
    }

    /// Returns the number and the bytes of each partition, in the order of the table.
    pub fn partitions(&self) -> impl Iterator<Item = (usize, Range<u64>)> + '_ {
        (1..=self.entries.len()).filter_map(|number| Some((number, self.range(number)?)))
    }

    /// Returns the number of the partition that ends last on the disk.
    #[must_use]
    pub fn last_number(&self) -> Option<usize> {
        let numbered = self.entries.iter().enumerate();
        let used = numbered.filter_map(|(index, entry)| Some((entry.as_ref()?.last_lba, index + 1)));
        used.max().map(|(_, number)| number)
    }

    /// Grows the last partition to the last whole MiB before the backup table. Returns its number when it grew.
    pub fn grow_last(&mut self) -> Option<usize> {
        let (_, last_usable) = self.usable();
        let number = self.last_number()?;
        let sector = self.sector;
        let entry = self.entries.get_mut(number - 1)?.as_mut()?;
        let end = (last_usable + 1) * sector / MIB * MIB / sector;
        let last_lba = end.checked_sub(1)?;
        if last_lba <= entry.last_lba {
            return None;
        }
        entry.last_lba = last_lba;
        Some(number)
    }

    /// Returns the ranges of the disk that [`Table::write`] writes.
    #[must_use]
    pub fn written(disk: &dyn Disk) -> [Range<u64>; 2] {
        let (sector, size) = (disk.sector(), disk.size());
        let table = entry_sectors(sector);
        [0..(2 + table) * sector, size - (1 + table) * sector..size]
    }

    /// Writes both copies: the backup, then the primary copy, each followed by a flush.
    ///
    /// # Errors
    /// Returns an error when the table breaks a rule or the disk cannot be written.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), GptError> {
        self.check()?;
        if disk.sector() != self.sector || disk.size() / disk.sector() != self.sectors {
            return Err(GptError::Invalid("it was made for a disk of another size".to_owned()));
        }
        let failed = |source| GptError::Disk { what: "writing", source };
        let entries = self.encode_entries();
        let table = entry_sectors(self.sector);
        let last = self.sectors - 1;
        let padded = |mut bytes: Vec<u8>| {
            bytes.resize(self.sector as usize, 0);
            bytes
        };
        let mut backup = entries.clone();
        backup.extend(padded(self.encode_header(last, 1, last - table, &entries)));
        disk.write_at((last - table) * self.sector, &backup).map_err(failed)?;
        disk.flush().map_err(failed)?;
        let mut primary = padded(self.protective_mbr());
        primary.extend(padded(self.encode_header(1, last, 2, &entries)));
        primary.extend(entries);
        disk.write_at(0, &primary).map_err(failed)?;
        disk.flush().map_err(failed)
    }

    fn check(&self) -> Result<(), GptError> {
        let invalid = |text: String| Err(GptError::Invalid(text));
        if self.sectors < 2 * (entry_sectors(self.sector) + 2) + 1 {
            return invalid(format!("a disk of {} sectors is too small", self.sectors));
        }
        if self.entries.len() > ENTRIES {
            return invalid(format!("{} partitions do not fit into {ENTRIES} entries", self.entries.len()));
        }
        let (first, last) = self.usable();
        let mut used: Vec<(u64, u64, usize)> = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let number = index + 1;
            if entry.first_lba < first || entry.last_lba > last || entry.last_lba < entry.first_lba {
                let (from, to) = (entry.first_lba, entry.last_lba);
                return invalid(format!(
                    "partition {number} covers {from} to {to}, outside {first} to {last}"
                ));
            }
            if entry.type_guid.is_nil() || entry.name.len() > NAME_UNITS {
                return invalid(format!("partition {number} has no type or a name that is too long"));
            }
            used.push((entry.first_lba, entry.last_lba, number));
        }
        used.sort_unstable();
        for pair in used.windows(2) {
            if pair[1].0 <= pair[0].1 {
                return invalid(format!("partitions {} and {} overlap", pair[0].2, pair[1].2));
            }
        }
        Ok(())
    }

    fn encode_entries(&self) -> Vec<u8> {
        let mut bytes = vec![0; (entry_sectors(self.sector) * self.sector) as usize];
        for (slot, entry) in bytes.chunks_exact_mut(ENTRY_BYTES).zip(&self.entries) {
            let Some(entry) = entry else { continue };
            slot[..16].copy_from_slice(&entry.type_guid.to_bytes_le());
            slot[16..32].copy_from_slice(&entry.unique_guid.to_bytes_le());
            slot[32..40].copy_from_slice(&entry.first_lba.to_le_bytes());
            slot[40..48].copy_from_slice(&entry.last_lba.to_le_bytes());
            slot[48..56].copy_from_slice(&entry.attributes.to_le_bytes());
            for (target, unit) in slot[56..].chunks_exact_mut(2).zip(&entry.name) {
                target.copy_from_slice(&unit.to_le_bytes());
            }
        }
        bytes
    }

    fn encode_header(&self, own: u64, other: u64, entries_lba: u64, entries: &[u8]) -> Vec<u8> {
        let (first, last) = self.usable();
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(SIGNATURE);
        header.extend(0x0001_0000_u32.to_le_bytes());
        header.extend((HEADER_BYTES as u32).to_le_bytes());
        header.extend([0; 8]);
        for lba in [own, other, first, last] {
            header.extend(lba.to_le_bytes());
        }
        header.extend(self.disk_guid.to_bytes_le());
        header.extend(entries_lba.to_le_bytes());
        header.extend((ENTRIES as u32).to_le_bytes());
        header.extend((ENTRY_BYTES as u32).to_le_bytes());
        header.extend(crc32fast::hash(&entries[..ENTRIES * ENTRY_BYTES]).to_le_bytes());
        let crc = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header
    }

    fn protective_mbr(&self) -> Vec<u8> {
        let mut mbr = self.mbr.clone();
        mbr.resize(510, 0);
        let used: Vec<usize> = MBR_ENTRIES.into_iter().filter(|entry| mbr[entry + 4] != 0).collect();
        let sole = if used.iter().any(|entry| mbr[entry + 4] == PROTECTIVE) {
            // In a hybrid MBR it ends where it did.
            if used.len() == 1 { used.first().copied() } else { None }
        } else {
            // Not bootable, CHS of LBA 1, the type, CHS beyond its range, from LBA 1.
            mbr[446..].fill(0);
            mbr[446..454].copy_from_slice(&[0x00, 0x00, 0x02, 0x00, PROTECTIVE, 0xff, 0xff, 0xff]);
            mbr[454..458].copy_from_slice(&1_u32.to_le_bytes());
            Some(446)
        };
        if let Some(entry) = sole {
            let sectors = u32::try_from(self.sectors - 1).unwrap_or(u32::MAX);
            mbr[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        mbr.extend([0x55, 0xaa]);
        mbr
    }
}

/// Returns the partitions that any readable copy names, for both sector sizes. For wiping only: no rule is checked.
pub(crate) fn partitions_of_any_table(disk: &dyn Disk) -> io::Result<Vec<Range<u64>>> {
    let mut parts = Vec::new();
    for sector in [512, 4096] {
        for lba in [1, (disk.size() / sector).saturating_sub(1)] {
            let table = match read_copy(disk, sector, lba) {
                Ok(Some(table)) => table,
                Err(GptError::Disk { source, .. }) => return Err(source),
                _ => continue,
            };
            for entry in table.entries.into_iter().flatten() {
                let end = entry.last_lba.saturating_add(1).saturating_mul(sector);
                parts.push(entry.first_lba.saturating_mul(sector)..end);
            }
        }
    }
    Ok(parts)
}

fn entry_sectors(sector: u64) -> u64 {
    (ENTRIES * ENTRY_BYTES) as u64 / sector
}

/// Reads the copy whose header is at `lba`. Returns `None` when a signature or checksum does not hold.
fn read_copy(disk: &dyn Disk, sector: u64, lba: u64) -> Result<Option<Table>, GptError> {
    let failed = |source| GptError::Disk { what: "reading", source };
    let sectors = disk.size() / sector;
    if lba == 0 || lba >= sectors {
        return Ok(None);
    }
    let mut header = vec![0; HEADER_BYTES];
    disk.read_at(lba * sector, &mut header).map_err(failed)?;
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let mut summed = header.clone();
    summed[16..20].fill(0);
    let plain = &header[..8] == SIGNATURE
        && u32_at(12) as usize == HEADER_BYTES
        && u32_at(16) == crc32fast::hash(&summed)
        && u64_at(24) == lba
        && (1..=ENTRIES).contains(&(u32_at(80) as usize))
        && u32_at(84) as usize == ENTRY_BYTES;
    let entries_lba = u64_at(72);
    let length = u32_at(80) as usize * ENTRY_BYTES;
    let inside = entries_lba
        .checked_mul(sector)
        .and_then(|start| start.checked_add(length as u64))
        .is_some_and(|end| end <= disk.size());
    if !plain || !inside {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    disk.read_at(entries_lba * sector, &mut bytes).map_err(failed)?;
    if crc32fast::hash(&bytes) != u32_at(88) {
        return Ok(None);
    }
    let mut mbr = vec![0; 512];
    disk.read_at(0, &mut mbr).map_err(failed)?;
    // Without the signature there are no entries, and the boot code may be one all the same.
    mbr.truncate(if mbr[510..] == [0x55, 0xaa] { 510 } else { 440 });
    let mut entries: Vec<Option<GptEntry>> = bytes.chunks_exact(ENTRY_BYTES).map(decode_entry).collect();
    while entries.last().is_some_and(Option::is_none) {
        entries.pop();
    }
    let is_usual = u32_at(80) as usize == ENTRIES && (lba != 1 || entries_lba == 2);
    Ok(Some(Table { disk_guid: guid_at(&header, 56), mbr, entries, is_usual, sector, sectors }))
}

fn decode_entry(bytes: &[u8]) -> Option<GptEntry> {
    let type_guid = guid_at(bytes, 0);
    let u64_at =
        |at: usize| (0..8).fold(0_u64, |sum, index| sum | u64::from(bytes[at + index]) << (8 * index));
    let units = bytes[56..].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    (!type_guid.is_nil()).then(|| GptEntry {
        type_guid,
        unique_guid: guid_at(bytes, 16),
        first_lba: u64_at(32),
        last_lba: u64_at(40),
        attributes: u64_at(48),
        name: units.take_while(|unit| *unit != 0).collect(),
    })
}

fn guid_at(bytes: &[u8], at: usize) -> Uuid {
    let mut guid = [0; 16];
    guid.copy_from_slice(&bytes[at..at + 16]);
    Uuid::from_bytes_le(guid)
}

#[cfg(test)]
#[path = "gpt/tests.rs"]
mod tests;
