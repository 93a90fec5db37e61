//! Where old signatures can be on a disk: RAID, LVM, ZFS, bcache, Btrfs and partition tables.
//!
//! ```text
//!  whole disk and every old partition
//!  ┌───────┬──────── … ────────┬──────┬────── … ──────┬───────┐
//!  │ 4 MiB │      64 MiB: 4 KiB│ Btrfs│ 256 GiB: 4 KiB│ 4 MiB │
//!  └───────┴──────── … ────────┴──────┴────── … ──────┴───────┘
//! ```
//!
//! Stale members of arrays stop installations: the next kernel assembles them again. Zeroing both ends covers md
//! 0.90, 1.0, 1.1 and 1.2, DDF and other RAID metadata, LVM, all four ZFS labels, bcache, GPT and file systems. Btrfs keeps
//! copies of its superblock at 64 MiB and 256 GiB. Nothing between is touched, so this takes no hours.
//!
//! Invariant: every range is inside the disk.

use std::{collections::BTreeSet, io, ops::Range};

use crate::device::{Disk, merged};
use crate::disk_image::is_zero;
use crate::gpt;

/// Bytes that are read at once.
const BLOCK: usize = 1024 * 1024;
const EDGE: u64 = 4 * 1024 * 1024;
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];
const BTRFS_SUPERBLOCK: u64 = 4096;
/// Boot records that are read of an extended partition.
const MAX_LOGICAL: usize = 256;

/// Returns the ranges to be zeroed on a disk of `size` bytes with the old partitions `parts`.
#[must_use]
pub fn ranges(size: u64, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    for part in parts.iter().chain(std::iter::once(&(0..size))) {
        let (start, end) = (part.start.min(size), part.end.min(size));
        if start >= end {
            continue;
        }
        all.push(start..start.saturating_add(EDGE).min(end));
        all.push(end.saturating_sub(EDGE).max(start)..end);
        for copy in BTRFS_COPIES {
            let at = start.saturating_add(copy);
            let after = at.saturating_add(BTRFS_SUPERBLOCK);
            if after <= end {
                all.push(at..after);
            }
        }
    }
    merged(all)
}

/// Returns `ranges` without the bytes of `kept`.
#[must_use]
pub fn without(ranges: Vec<Range<u64>>, kept: &[Range<u64>]) -> Vec<Range<u64>> {
    kept.iter().fold(ranges, |ranges, kept| {
        let parts = ranges
            .into_iter()
            .flat_map(|range| [range.start..range.end.min(kept.start), range.start.max(kept.end)..range.end]);
        parts.filter(|part| part.start < part.end).collect()
    })
}

/// Returns whether the places of signatures on a disk are zero, but for those of its partition table, which may be torn. `new` are
/// partitions that it is to have.
///
/// # Errors
/// Returns the error of the medium.
pub fn is_wiped(disk: &dyn Disk, new: &[Range<u64>]) -> io::Result<bool> {
    let old = old_partitions(disk)?;
    let mut block = vec![0; BLOCK];
    for range in without(ranges(disk.size(), &[&old[..], new].concat()), &gpt::Table::written(disk)) {
        let mut at = range.start;
        while at < range.end {
            let length = usize::try_from(range.end - at).unwrap_or(BLOCK).min(BLOCK);
            disk.read_at(at, &mut block[..length])?;
            if !is_zero(&block[..length]) {
                return Ok(false);
            }
            at += length as u64;
        }
    }
    Ok(true)
}

/// Returns the partitions that the tables on the disk name, from GPT copies of either sector size and the MBR. A damaged
/// table gives what is readable.
///
/// # Errors
/// Returns the error of the medium.
pub fn old_partitions(disk: &dyn Disk) -> io::Result<Vec<Range<u64>>> {
    let mut parts = gpt::partitions_of_any_table(disk)?;
    parts.extend(mbr_partitions(disk)?);
    parts.retain(|part| part.start < part.end && part.end <= disk.size());
    parts.sort_by_key(|part| (part.start, part.end));
    parts.dedup();
    Ok(parts)
}

fn mbr_partitions(disk: &dyn Disk) -> io::Result<Vec<Range<u64>>> {
    let sector = disk.sector();
    let entries = boot_record(disk, 0)?;
    let mut parts = Vec::new();
    for entry in &entries {
        parts.push(entry.range(0, sector));
        if entry.is_extended() {
            parts.extend(logical_partitions(disk, u64::from(entry.start))?);
        }
    }
    Ok(parts)
}

/// An entry of a boot record, in sectors.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u32,
    length: u32,
}

impl Entry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn range(&self, base: u64, sector: u64) -> Range<u64> {
        let start = (base + u64::from(self.start)) * sector;
        start..start + u64::from(self.length) * sector
    }
}

/// Returns the entries of the boot record at a sector; none when there is no boot record.
fn boot_record(disk: &dyn Disk, at: u64) -> io::Result<Vec<Entry>> {
    let mut record = vec![0_u8; usize::try_from(disk.sector()).unwrap_or(4096)];
    let offset = at * disk.sector();
    if offset.saturating_add(disk.sector()) > disk.size() {
        return Ok(Vec::new());
    }
    disk.read_at(offset, &mut record)?;
    if record[510..512] != [0x55, 0xaa] {
        return Ok(Vec::new());
    }
    let field = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let entries = (0..4).map(|index| 446 + 16 * index).filter(|entry| record[entry + 4] != 0);
    Ok(entries
        .map(|entry| Entry { kind: record[entry + 4], start: field(entry + 8), length: field(entry + 12) })
        .collect())
}

/// Follows the chain of boot records in the extended partition at a sector. Each names a logical partition relative to itself, and
/// the next record relative to the extended partition. A chain that returns to a record ends there.
fn logical_partitions(disk: &dyn Disk, extended: u64) -> io::Result<Vec<Range<u64>>> {
    let (mut parts, mut seen, mut next) = (Vec::new(), BTreeSet::new(), Some(extended));
    while let Some(at) = next.filter(|at| seen.len() < MAX_LOGICAL && seen.insert(*at)) {
        let entries = boot_record(disk, at)?;
        let (links, logical): (Vec<Entry>, Vec<Entry>) =
            entries.iter().partition(|entry| entry.is_extended());
        parts.extend(logical.iter().map(|entry| entry.range(at, disk.sector())));
        next = links.first().map(|link| extended + u64::from(link.start));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::FileDisk;
    use crate::test_kit::disk_image;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn both_ends_of_disk_and_partitions_and_the_copies_of_btrfs_are_covered() {
        let ranges = ranges(1000 * GIB, std::slice::from_ref(&(GIB..600 * GIB)));
        let covers = |at: u64| ranges.iter().any(|range| range.contains(&at));
        assert!(covers(0) && covers(1000 * GIB - 1) && covers(GIB + 4096) && covers(600 * GIB - 1));
        assert!(
            covers(64 << 20) && covers(256 * GIB + 4095) && covers(GIB + (64 << 20)) && covers(257 * GIB)
        );
        assert!(!covers(EDGE) && !covers(600 * GIB) && !covers(256 * GIB + 4096));
        assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() < 20 << 20);
    }

    #[test]
    fn partitions_of_an_mbr_are_found_and_foreign_ones_beyond_the_disk_are_not() {
        let (_folder, path) = disk_image(8 << 20, 0);
        let disk = FileDisk::open(&path, 512).unwrap();
        let mut mbr = [0_u8; 512];
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        for (index, (start, length)) in [(2048_u32, 4096_u32), (8192, u32::MAX)].into_iter().enumerate() {
            let entry = 446 + 16 * index;
            mbr[entry + 4] = 0x83;
            mbr[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
            mbr[entry + 12..entry + 16].copy_from_slice(&length.to_le_bytes());
        }
        disk.write_at(0, &mbr).unwrap();
        let found = old_partitions(&disk).unwrap();
        assert_eq!((found.len(), found[0].clone()), (1, 2048 * 512..6144 * 512));
    }

    #[test]
    fn logical_partitions_are_found_and_a_chain_that_returns_to_itself_ends() {
        let (_folder, path) = disk_image(16 << 20, 0);
        let disk = FileDisk::open(&path, 512).unwrap();
        let record = |at: u64, entries: &[(u8, u32, u32)]| {
            let mut bytes = [0_u8; 512];
            bytes[510..].copy_from_slice(&[0x55, 0xaa]);
            for (index, (kind, start, length)) in entries.iter().enumerate() {
                let entry = 446 + 16 * index;
                bytes[entry + 4] = *kind;
                bytes[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
                bytes[entry + 12..entry + 16].copy_from_slice(&length.to_le_bytes());
            }
            disk.write_at(at * 512, &bytes).unwrap();
        };
        record(0, &[(0x83, 2048, 1024), (0x0f, 4096, 20480)]);
        record(4096, &[(0x83, 64, 1000), (0x05, 4096, 4096)]);
        record(8192, &[(0x8e, 64, 2000), (0x05, 0, 4096)]);
        let sectors = |range: &Range<u64>| range.start / 512..range.end / 512;
        let found: Vec<_> = old_partitions(&disk).unwrap().iter().map(sectors).collect();
        assert_eq!(found, [2048..3072, 4096..24576, 4160..5160, 8256..10256]);
    }

    proptest! {
        #[test]
        fn every_range_is_inside_the_disk(
            size in 0_u64..1 << 45,
            parts in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..8),
        ) {
            let parts: Vec<_> = parts.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
            for range in ranges(size, &parts) {
                prop_assert!(range.start < range.end && range.end <= size);
            }
        }
    }
}
