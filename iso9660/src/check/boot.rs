//! The El Torito boot catalog, the images of its entries, and the boot info table.
//!
//! ```text
//! validation | default entry | header 90/91, entries [44 extensions] | ... | zeros       32 bytes each, one sector
//!
//! El Torito image   8 first descriptor (16) | 12 own sector | 16 own length | 20 sum of its words from byte 64
//! ```
//!
//! A table is treated as a boot info table when two of its first three numbers are right; then all must be right.

use super::descriptors::Volume;
use super::extents::ExtentUse;
use super::walk::Hierarchy;
use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::ecma119::field::array;
use crate::eltorito::UNIT;
use crate::error::ReadError;

/// The size of every entry in bytes.
const ENTRY: usize = 32;
const BOOTABLE: u8 = 0x88;
const NOT_BOOTABLE: u8 = 0x00;
const EXTENSION: u8 = 0x44;
const MORE_HEADERS: u8 = 0x90;
const LAST_HEADER: u8 = 0x91;
/// The known platforms: 80x86, PowerPC, Mac, UEFI.
const PLATFORMS: [u8; 4] = [0x00, 0x01, 0x02, 0xEF];
/// The offset where the checksummed range of a boot info table begins.
const INFO_TABLE_END: usize = 64;

/// Checks the boot catalog and the El Torito images of its entries.
pub(super) fn check(
    checker: &mut Checker<'_>,
    volume: &Volume,
    hierarchies: &[Hierarchy],
) -> Result<(), ReadError> {
    let Some((record, number)) = volume.catalog else { return Ok(()) };
    let offset = u64::from(number) * SECTOR_SIZE;
    let Some(sector) = checker.sector(u64::from(number))? else {
        checker.find(Rule::BootCatalogOutside, record + 71, format_args!("sector {number}"));
        return Ok(());
    };
    checker.claims.claim(offset, SECTOR_SIZE, ExtentUse::Catalog);
    if !validation(checker, &sector[..ENTRY], offset) {
        return Ok(());
    }
    let mut files: Vec<(u64, u64)> = (hierarchies.iter())
        .flat_map(|hierarchy| hierarchy.files.iter().map(|(offset, length, _)| (*offset, *length)))
        .collect();
    files.sort_unstable();
    for (at, entry, platform) in entries(checker, &sector, offset) {
        checker.counts.boot_entries += 1;
        fields(checker, entry, at, at == offset + ENTRY as u64);
        image(checker, entry, at, platform, &files)?;
    }
    Ok(())
}

/// Checks the validation entry (2.1). Returns whether the sector is a boot catalog.
fn validation(checker: &mut Checker<'_>, entry: &[u8], offset: u64) -> bool {
    let sum = entry
        .chunks_exact(2)
        .fold(0, |sum: u16, word| sum.wrapping_add(u16::from_le_bytes([word[0], word[1]])));
    let right = entry[0] == 1 && entry[30..] == [0x55, 0xAA];
    if !right || sum != 0 {
        let message = format_args!("{:02x?}, sum {sum:#06x}", [entry[0], entry[30], entry[31]]);
        checker.find(Rule::BootCatalogValidation, offset, message);
    } else if !PLATFORMS.contains(&entry[1]) || entry[2..4] != [0, 0] {
        checker.find(Rule::BootCatalogEntry, offset + 1, format_args!("{:02x?}", &entry[1..4]));
    }
    right
}

/// Returns the offsets of the boot entries, with their platforms.
fn entries<'a>(checker: &mut Checker<'_>, sector: &'a [u8; SECTOR], offset: u64) -> Vec<(u64, &'a [u8], u8)> {
    let mut platform = sector[1];
    let mut found = Vec::new();
    // The default entry, then the number of entries in each header.
    let (mut wanted, mut last, mut ended) = (1_u16, false, false);
    let mut header = None;
    for (index, entry) in sector.chunks_exact(ENTRY).enumerate().skip(1) {
        let at = offset + (index * ENTRY) as u64;
        let zero = entry.iter().all(|byte| *byte == 0);
        match entry[0] {
            _ if ended || last && wanted == 0 || zero && wanted == 0 => {
                ended = true;
                checker.zeros(Rule::BootCatalogEntry, at, entry, "a byte after the last entry");
            }
            BOOTABLE | NOT_BOOTABLE if wanted > 0 => {
                wanted -= 1;
                found.push((at, entry, platform));
            }
            EXTENSION if index > 2 => {}
            MORE_HEADERS | LAST_HEADER if wanted == 0 => {
                last = entry[0] == LAST_HEADER;
                header = Some(at);
                platform = entry[1];
                wanted = u16::from_le_bytes([entry[2], entry[3]]);
                if !PLATFORMS.contains(&platform) || wanted == 0 {
                    let message = format_args!("platform {platform:#04x} with {wanted} entries");
                    checker.find(Rule::BootCatalogEntry, at + 1, message);
                }
            }
            kind => {
                checker.find(Rule::BootCatalogEntry, at, format_args!("type {kind:#04x}"));
                ended = true;
            }
        }
    }
    if let (Some(at), false) = (header, last) {
        checker.find(Rule::BootCatalogEntry, at, format_args!("the last header declares another one"));
    }
    if !ended && wanted > 0 {
        let end = offset + SECTOR_SIZE - ENTRY as u64;
        checker.find(Rule::BootCatalogEntry, end, format_args!("{wanted} more entries do not fit"));
    }
    found
}

fn fields(checker: &mut Checker<'_>, entry: &[u8], offset: u64, default: bool) {
    // In a section the upper bits have a meaning too, but known writers do not use them.
    if entry[1] > 4 {
        checker.find(Rule::BootCatalogEntry, offset + 1, format_args!("media {:#04x}", entry[1]));
    }
    checker.zeros(Rule::BootCatalogEntry, offset + 5, &entry[5..6], "a reserved byte");
    // A section entry may have vendor-specific selection criteria.
    if default || entry[12] == 0 {
        checker.zeros(Rule::BootCatalogEntry, offset + 12, &entry[12..], "a reserved byte");
    }
}

/// Checks the El Torito image of an entry. `files` are in order.
fn image(
    checker: &mut Checker<'_>,
    entry: &[u8],
    offset: u64,
    platform: u8,
    files: &[(u64, u64)],
) -> Result<(), ReadError> {
    let units = u64::from(u16::from_le_bytes([entry[6], entry[7]]));
    let sector = array(entry, 8).map(u32::from_le_bytes).unwrap_or_default();
    if entry[0] != BOOTABLE && sector == 0 {
        return Ok(());
    }
    let start = u64::from(sector) * SECTOR_SIZE;
    let around = files.partition_point(|(from, _)| *from <= start).checked_sub(1).map(|at| files[at]);
    let inside = around.filter(|(from, length)| start < from + length);
    let within = inside.is_some_and(|(from, _)| from != start);
    if sector < 17 || !checker.holds(start, (units * UNIT).max(UNIT)) || within {
        let what = if within { ", in the middle of a file" } else { "" };
        let message = format_args!("{units} units from sector {sector}{what}");
        checker.find(Rule::BootImageOutside, offset + 6, message);
        return Ok(());
    }
    checker.claims.cover(start, units * UNIT);
    if platform == 0 && entry[1] == 0 {
        info_table(checker, start, sector, inside.map(|(_, length)| length))?;
    }
    Ok(())
}

fn info_table(
    checker: &mut Checker<'_>,
    start: u64,
    sector: u32,
    length: Option<u64>,
) -> Result<(), ReadError> {
    let mut head = [0; INFO_TABLE_END];
    if !checker.holds(start, head.len() as u64) || length.is_some_and(|length| length < head.len() as u64) {
        return Ok(());
    }
    checker.fill(start, &mut head)?;
    let number = |at| array(&head, at).map(u32::from_le_bytes).unwrap_or_default();
    let claimed = u64::from(number(16));
    let right = [number(8) == 16, number(12) == sector, length.is_some_and(|length| length == claimed)];
    match right.iter().filter(|right| **right).count() {
        0 | 1 => return Ok(()),
        // A file that no hierarchy shows has the length in its table.
        2 if length.is_some() || !right[0] || !right[1] => {
            let message = format_args!("descriptor {}, sector {}, {claimed} bytes", number(8), number(12));
            checker.find(Rule::BootInfoTable, start + 8, message);
            return Ok(());
        }
        _ => {}
    }
    if claimed > checker.options.boot_image_bytes || !checker.holds(start, claimed) {
        return Ok(());
    }
    let sum = sum(checker, start + INFO_TABLE_END as u64, start + claimed)?;
    if sum != number(20) {
        let message = format_args!("the table has the sum {:#010x}, the words have {sum:#010x}", number(20));
        checker.find(Rule::BootInfoTable, start + 20, message);
    }
    Ok(())
}

/// Returns the sum of the little-endian words of a range, the last one padded with zeros.
fn sum(checker: &Checker<'_>, start: u64, end: u64) -> Result<u32, ReadError> {
    let mut sum = 0_u32;
    let mut at = start;
    let mut chunk = [0; SECTOR];
    while at < end {
        let length = usize::try_from(end - at).map_or(SECTOR, |left| left.min(SECTOR));
        chunk[length..].fill(0);
        checker.fill(at, &mut chunk[..length])?;
        for word in chunk[..length.next_multiple_of(4)].chunks_exact(4) {
            sum = sum.wrapping_add(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        }
        at += length as u64;
    }
    Ok(sum)
}
