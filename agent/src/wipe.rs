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

use std::{io, ops::Range};

use crate::device::{Disk, merged};
use crate::gpt;

const EDGE: u64 = 4 * 1024 * 1024;
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];
const BTRFS_SUPERBLOCK: u64 = 4096;

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
    let mut mbr = vec![0_u8; usize::try_from(disk.sector()).unwrap_or(4096)];
    disk.read_at(0, &mut mbr)?;
    if mbr[510..512] != [0x55, 0xaa] {
        return Ok(Vec::new());
    }
    let field = |at: usize| u64::from(u32::from_le_bytes([mbr[at], mbr[at + 1], mbr[at + 2], mbr[at + 3]]));
    let parts = (0..4).map(|index| 446 + 16 * index).filter(|entry| mbr[entry + 4] != 0).map(|entry| {
        let start = field(entry + 8) * disk.sector();
        start..start + field(entry + 12) * disk.sector()
    });
    Ok(parts.collect())
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
