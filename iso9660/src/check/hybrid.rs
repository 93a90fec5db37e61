//! The system area: empty, or the partition tables of a hybrid image.
//!
//! ```text
//! sectors of 512 bytes   0 MBR   1 GPT header   2.. GPT entries   64.. the volume ...   backup entries   backup header
//! ```
//!
//! Partitions of an isohybrid contain each other and the volume by design, so only their ends are checked. Allowances:
//! a protective partition may end anywhere after the image. A GPT without a backup is reported under its own rule.
//! Apple partition maps are not checked.

use super::descriptors::Volume;
use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::ecma119::FIRST_DESCRIPTOR;
use crate::error::ReadError;
use crate::partition::{self, Gpt, Mbr, MbrPartition};

/// The sector of the primary GPT header.
const PRIMARY: u64 = 1;
/// The offsets in a GPT header of the address of its entries and of their checksum.
const ENTRIES: [u64; 2] = [72, 88];

/// The result of reading the sector of a GPT header.
enum Found {
    PathTableLocation(Gpt),
    /// A table with a wrong checksum or address.
    Broken,
    Nothing,
}

/// Checks the system area. Returns whether it has a partition table.
pub(super) fn check(checker: &mut Checker<'_>, volume: &Volume) -> Result<bool, ReadError> {
    let space = volume.space.map_or(0, |(_, space)| space);
    let mut area = vec![0; (u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE) as usize];
    if !checker.holds(0, area.len() as u64) {
        return Ok(false);
    }
    checker.fill(0, &mut area)?;
    let mbr = area.first_chunk().and_then(Mbr::parse);
    let gpt = read(checker, PRIMARY, Rule::GptHeader)?;
    if let Some(mbr) = &mbr {
        mbr_partitions(checker, mbr, space);
    } else if let Some(at) = area.iter().position(|byte| *byte != 0) {
        let message = format_args!("the area is not empty and has no MBR");
        checker.find(Rule::SystemAreaUnknown, at as u64, message);
    }
    match &gpt {
        Found::PathTableLocation(gpt) => {
            partitions(checker, gpt, space);
            backup(checker, gpt)?;
        }
        Found::Nothing if mbr.as_ref().is_some_and(Mbr::is_protective) => {
            checker.find(
                Rule::GptHeader,
                PRIMARY * partition::SECTOR_SIZE,
                format_args!("the GPT header is missing"),
            );
        }
        Found::Nothing | Found::Broken => {}
    }
    Ok(mbr.is_some() || matches!(gpt, Found::PathTableLocation(_)))
}

/// Returns the end of the image in sectors of 512 bytes.
fn sectors(checker: &Checker<'_>) -> u64 {
    checker.len / partition::SECTOR_SIZE
}

fn mbr_partitions(checker: &mut Checker<'_>, mbr: &Mbr, space: u64) {
    let end = sectors(checker);
    for (index, partition) in mbr.partitions.iter().enumerate() {
        if *partition == MbrPartition::default() {
            continue;
        }
        checker.counts.partitions += 1;
        appended(checker, u64::from(partition.first), partition.end(), space);
        let status = partition.status & !MbrPartition::ACTIVE == 0;
        let protective = partition.kind == MbrPartition::PROTECTIVE;
        let inside = u64::from(partition.first) < end && (partition.end() <= end || protective);
        if !status || !inside || partition.sectors == 0 {
            let message = format_args!(
                "status {:#04x}, type {:#04x}, sectors {} to {} of {end}",
                partition.status,
                partition.kind,
                partition.first,
                partition.end()
            );
            checker.find(Rule::MbrPartition, 446 + 16 * index as u64, message);
        }
    }
}

/// A partition after the volume marks its bytes as used; a partition that contains the volume does not.
fn appended(checker: &mut Checker<'_>, first: u64, end: u64, space: u64) {
    let start = first.saturating_mul(partition::SECTOR_SIZE);
    if start >= space {
        checker.claims.cover(start, end.saturating_sub(first).saturating_mul(partition::SECTOR_SIZE));
    }
}

/// Reads the table whose header is in a sector, and reports its errors.
fn read(checker: &mut Checker<'_>, sector: u64, rule: Rule) -> Result<Found, ReadError> {
    match Gpt::read(checker.source, sector) {
        Ok(Some(table)) => Ok(Found::PathTableLocation(table)),
        Ok(None) => Ok(Found::Nothing),
        Err(ReadError::Invalid { offset, rule: text } | ReadError::Unsupported { offset, feature: text }) => {
            let entries = ENTRIES.contains(&(offset % partition::SECTOR_SIZE)) && rule == Rule::GptHeader;
            let rule = if entries { Rule::GptEntries } else { rule };
            checker.find(rule, offset, format_args!("broken rule: {text}"));
            Ok(Found::Broken)
        }
        Err(error) => Err(error),
    }
}

fn partitions(checker: &mut Checker<'_>, gpt: &Gpt, space: u64) {
    let end = sectors(checker);
    let at = gpt.entries_sector * partition::SECTOR_SIZE;
    if gpt.first_usable > gpt.last_usable || gpt.last_usable >= end {
        let message = format_args!("usable are {} to {} of {end}", gpt.first_usable, gpt.last_usable);
        checker.find(Rule::GptHeader, PRIMARY * partition::SECTOR_SIZE + 40, message);
    }
    checker.claims.cover(at, gpt.entries_sectors() * partition::SECTOR_SIZE);
    for (index, entry) in gpt.entries.iter().enumerate() {
        let Some(entry) = entry else { continue };
        checker.counts.partitions += 1;
        appended(checker, entry.first, entry.last.saturating_add(1), space);
        // The volume begins with the system area, so a partition that contains the volume begins before the usable
        // range.
        if entry.first > entry.last || entry.last > gpt.last_usable {
            let message =
                format_args!("partition {} has sectors {} to {}", index + 1, entry.first, entry.last);
            checker.find(Rule::GptEntries, at + 128 * index as u64, message);
        }
    }
}

fn backup(checker: &mut Checker<'_>, gpt: &Gpt) -> Result<(), ReadError> {
    let backup = match read(checker, gpt.alternate, Rule::GptBackup)? {
        Found::PathTableLocation(backup) => backup,
        Found::Broken => return Ok(()),
        Found::Nothing => {
            let message = format_args!("sector {} has no GPT header", gpt.alternate);
            checker.find(Rule::GptBackup, PRIMARY * partition::SECTOR_SIZE + 32, message);
            return Ok(());
        }
    };
    let offset = gpt.alternate * partition::SECTOR_SIZE;
    checker.claims.cover(offset, partition::SECTOR_SIZE);
    let entries = backup.entries_sector * partition::SECTOR_SIZE;
    checker.claims.cover(entries, backup.entries_sectors() * partition::SECTOR_SIZE);
    // The location of the backup entries is free, as long as they are readable.
    let same = Gpt { entries_sector: backup.entries_sector, ..gpt.backup() };
    if same != backup {
        checker.find(Rule::GptBackup, offset, format_args!("it differs from the primary table"));
    }
    Ok(())
}
