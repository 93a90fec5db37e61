//! Extends the partition tables of a hybrid image to its new length.
//!
//! ```text
//! before  |MBR|GPT|  volume                  |backup|
//! after   |MBR|GPT|  volume                  |zeros | added ............. |zeros|backup|
//!           |   `- partition that began with the volume and ended last: extended to here ^
//!           `----- partition likewise, extended to the end of the image                   ^
//! ```
//!
//! A partition that begins with the volume but is followed by another one (the EFI system partition that xorriso
//! appends) cannot grow without overlap. It stays unchanged and is reported. A GPT with wrong checksums, which firmware
//! ignores, stays unchanged and is reported too. Boot code, identifiers and all other partitions keep their bytes.

use std::collections::BTreeSet;

use crate::SECTOR_SIZE;
use crate::ecma119::{FIRST_DESCRIPTOR, descriptor};
use crate::error::ReadError;
use crate::partition::{self, Gpt, Mbr};
use crate::plan::{NewPiece, Part};
use crate::source::ReadAt;

use super::budget::Budget;
use super::error::SpliceError;
use super::overlay::Overlay;
use super::{PartitionTable, SpliceNote};

/// The sector size of partition tables in bytes.
const SECTOR: usize = partition::SECTOR_SIZE as usize;
/// The number of partition sectors in a sector of the volume.
const PER_SECTOR: u64 = SECTOR_SIZE / partition::SECTOR_SIZE;
/// The last sector at which a partition of the volume can begin, before the first descriptor.
const VOLUME: u64 = FIRST_DESCRIPTOR as u64 * PER_SECTOR;
/// Firmware requires partitions of isohybrids to end with a cylinder: 64 heads of 32 sectors.
const CYLINDER: u64 = 1 << 20;
/// The size of a GPT entry in bytes.
const ENTRY: usize = 128;
/// The signature at the start of an Apple partition map.
const APPLE: &[u8] = b"ER";

/// The partition tables of the original.
pub(crate) struct Disk {
    mbr: Option<Mbr>,
    gpt: Option<Gpt>,
    /// The backup of `gpt`, if it is at its address.
    backup: Option<Gpt>,
    original: u64,
}

impl Disk {
    pub(crate) fn read(source: &Budget<'_>, notes: &mut Vec<SpliceNote>) -> Result<Disk, SpliceError> {
        let original = source.len();
        let mut first = [0; SECTOR];
        first.copy_from_slice(&source.bytes(0, SECTOR as u64, "an image has a first sector")?);
        let mbr = Mbr::parse(&first);
        if first.starts_with(APPLE) {
            notes.push(SpliceNote::AppleMapKept);
        }
        let gpt = match Gpt::read(source, 1) {
            Ok(gpt) => gpt,
            Err(ReadError::Invalid { offset, .. }) => {
                notes.push(SpliceNote::BrokenGptKept { offset });
                None
            }
            Err(error) => return Err(source.error(error)),
        };
        let backup = match gpt.as_ref().map(|gpt| Gpt::read(source, gpt.alternate)) {
            Some(Ok(backup)) => backup,
            None | Some(Err(ReadError::Invalid { .. })) => None,
            Some(Err(error)) => return Err(source.error(error)),
        };
        let disk = Disk { mbr, gpt, backup, original };
        disk.note_inner_volumes(source, notes)?;
        Ok(disk)
    }

    /// Looks for descriptors with addresses relative to a partition: a second set of trees over the same data. A system
    /// that mounts the partition instead of the disk reads these.
    fn note_inner_volumes(
        &self,
        source: &Budget<'_>,
        notes: &mut Vec<SpliceNote>,
    ) -> Result<(), SpliceError> {
        let of_mbr =
            self.mbr.iter().flat_map(|mbr| &mbr.partitions).filter(|partition| partition.sectors > 0);
        let of_gpt = self.gpt.iter().flat_map(|gpt| &gpt.entries).flatten();
        let firsts = of_mbr.map(|entry| u64::from(entry.first)).chain(of_gpt.map(|entry| entry.first));
        let inside: BTreeSet<u64> =
            firsts.filter(|first| (1..=VOLUME).contains(first) && first.is_multiple_of(PER_SECTOR)).collect();
        for first in inside {
            let sector = first / PER_SECTOR + u64::from(FIRST_DESCRIPTOR);
            if (sector + 1) * SECTOR_SIZE > source.len() {
                continue;
            }
            let bytes = source.sector(sector * SECTOR_SIZE, "")?;
            if descriptor::kind(&bytes) == Some(descriptor::PRIMARY) {
                notes.push(SpliceNote::PartitionVolumeKept { sector });
            }
        }
        Ok(())
    }

    /// Returns the length of an image whose volume ends at byte `end`, including partition tables.
    pub(crate) fn image_len(&self, end: u64) -> u64 {
        let backup = self.gpt.as_ref().map_or(0, |gpt| (gpt.entries_sectors() + 1) * partition::SECTOR_SIZE);
        let whole_cylinders = self.mbr.is_some() && self.original.is_multiple_of(CYLINDER);
        (end + backup).next_multiple_of(if whole_cylinders { CYLINDER } else { SECTOR_SIZE })
    }

    /// Extends the tables for an image of `len` bytes whose volume ends at `end`. Returns the piece of the backup.
    pub(crate) fn grow(
        mut self,
        end: u64,
        len: u64,
        overlay: &mut Overlay,
        notes: &mut Vec<SpliceNote>,
    ) -> Result<Option<NewPiece>, SpliceError> {
        let sectors = len / partition::SECTOR_SIZE;
        if let Some(mbr) = &mut self.mbr {
            grow_mbr(mbr, sectors, notes);
            overlay.replace(0, mbr.to_bytes().to_vec(), Part::SystemArea)?;
        }
        let Some(mut gpt) = self.gpt else { return Ok(None) };
        if let Some(backup) = &self.backup {
            let bytes = backup.entries_sectors() * partition::SECTOR_SIZE;
            // The addresses were used for reads, so they are far below 2^64.
            overlay.zero(backup.entries_sector * partition::SECTOR_SIZE, bytes)?;
            overlay.zero(backup.sector * partition::SECTOR_SIZE, partition::SECTOR_SIZE)?;
        }
        let from = gpt.alternate;
        grow_gpt(&mut gpt, end / partition::SECTOR_SIZE, notes);
        gpt.resize(sectors);
        notes.push(SpliceNote::BackupGptMoved { from, to: gpt.alternate });
        overlay.replace(partition::SECTOR_SIZE, gpt.header().to_vec(), Part::SystemArea)?;
        // If the last sector is not full, the bytes after the entries belong to other structures.
        let mut table = gpt.table();
        table.truncate(gpt.entries.len() * ENTRY);
        overlay.replace(gpt.entries_sector * partition::SECTOR_SIZE, table, Part::SystemArea)?;
        let backup = gpt.backup();
        let bytes = [backup.table(), backup.header().to_vec()].concat();
        Ok(Some(NewPiece::bytes(
            backup.entries_sector * partition::SECTOR_SIZE,
            Part::BackupPartitionTable,
            bytes,
        )))
    }
}

fn grow_mbr(mbr: &mut Mbr, sectors: u64, notes: &mut Vec<SpliceNote>) {
    let before = mbr.partitions;
    for (number, partition) in (1..).zip(&mut mbr.partitions) {
        let (first, end) = (u64::from(partition.first), partition.end());
        if first > VOLUME || end <= VOLUME {
            continue;
        }
        if before.iter().any(|other| other.sectors > 0 && u64::from(other.first) >= end) {
            notes.push(SpliceNote::PartitionKept { table: PartitionTable::Mbr, number });
            continue;
        }
        let last_chs = partition.last_chs;
        partition.set_sectors(u32::try_from(sectors - first).unwrap_or(u32::MAX));
        // A CHS address that represents no sector stays so, in the form that the original writer used.
        if is_beyond(last_chs) {
            partition.last_chs = last_chs;
        }
        notes.push(SpliceNote::PartitionGrown {
            table: PartitionTable::Mbr,
            number,
            sectors: u64::from(partition.sectors),
        });
    }
}

/// Returns whether a CHS address has the last cylinder, which stands for every address beyond the CHS range.
fn is_beyond(chs: [u8; 3]) -> bool {
    chs[1] & 0xC0 == 0xC0 && chs[2] == 0xFF
}

fn grow_gpt(gpt: &mut Gpt, end: u64, notes: &mut Vec<SpliceNote>) {
    let before: Vec<_> = gpt.entries.iter().flatten().copied().collect();
    for (number, partition) in (1..).zip(&mut gpt.entries) {
        let Some(partition) =
            partition.as_mut().filter(|entry| entry.first <= VOLUME && entry.last >= VOLUME)
        else {
            continue;
        };
        if before.iter().any(|other| other.first > partition.last) {
            notes.push(SpliceNote::PartitionKept { table: PartitionTable::Gpt, number });
            continue;
        }
        partition.last = end - 1;
        let sectors = end - partition.first;
        notes.push(SpliceNote::PartitionGrown { table: PartitionTable::Gpt, number, sectors });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{GptPartition, Guid, MbrPartition};

    fn mbr(partitions: &[(u8, u32, u32)]) -> Mbr {
        let mut mbr = Mbr { code: [1; 440], disk_id: 2, reserved: [0; 2], partitions: Default::default() };
        for (to, (kind, first, sectors)) in mbr.partitions.iter_mut().zip(partitions) {
            *to = MbrPartition::new(*kind, *first, *sectors);
        }
        mbr
    }

    #[test]
    fn a_partition_grows_when_it_ends_last_and_stays_when_another_follows() {
        let mut notes = Vec::new();
        let mut hybrid = mbr(&[(0x17, 0, 4096), (0xEF, 148, 2880)]);
        grow_mbr(&mut hybrid, 8192, &mut notes);
        assert_eq!(hybrid.partitions[0], MbrPartition::new(0x17, 0, 8192));
        assert_eq!(hybrid.partitions[1], MbrPartition::new(0xEF, 148, 2880));
        let mut appended = mbr(&[(0xCD, 64, 3000), (0xEF, 3064, 2880)]);
        let before = appended.clone();
        grow_mbr(&mut appended, 8192, &mut notes);
        assert_eq!(appended, before);
        assert_eq!(
            notes,
            [
                SpliceNote::PartitionGrown { table: PartitionTable::Mbr, number: 1, sectors: 8192 },
                SpliceNote::PartitionKept { table: PartitionTable::Mbr, number: 1 }
            ]
        );
    }

    #[test]
    fn a_chs_address_beyond_all_cylinders_keeps_its_form() {
        let mut protective = mbr(&[(0xEE, 1, 4_194_303)]);
        protective.partitions[0].last_chs = [0xFF; 3];
        grow_mbr(&mut protective, 8_388_608, &mut Vec::new());
        assert_eq!(
            (protective.partitions[0].last_chs, protective.partitions[0].sectors),
            ([0xFF; 3], 8_388_607)
        );
    }

    #[test]
    fn the_partition_of_the_volume_grows_in_a_gpt_of_248_entries() {
        let entry =
            |first, last| GptPartition::new(Guid::EFI_SYSTEM, Guid::custom([1; 16]), first, last, "x");
        let mut gpt = Gpt::new(Guid::default(), 4096, 64, vec![entry(0, 4000), entry(148, 3027)]);
        gpt.entries.resize(248, None);
        grow_gpt(&mut gpt, 8000, &mut Vec::new());
        let lasts: Vec<u64> = gpt.entries.iter().flatten().map(|entry| entry.last).collect();
        assert_eq!(lasts, [7999, 3027]);
        let mut appended = Gpt::new(Guid::default(), 8192, 64, vec![entry(64, 3227), entry(3228, 6107)]);
        let mut notes = Vec::new();
        grow_gpt(&mut appended, 8000, &mut notes);
        assert_eq!(notes, [SpliceNote::PartitionKept { table: PartitionTable::Gpt, number: 1 }]);
    }
}
