//! Path tables (9.4) against the walk of their hierarchy.
//!
//! ```text
//! 0 length of the identifier | 1 EAR | 2 sector | 6 number of the parent | 8 identifier | 00 when its length is odd
//! ```
//!
//! Both tables and their optional copies are compared with the directories of the walk, so tables without findings are
//! equal. At most as much of a table is read as the largest number of directories needs.

use std::collections::HashMap;

use super::descriptors::{Descriptor, HierarchyRules, PathTableLocation};
use super::extents::ExtentUse;
use super::identifier::path_table_order;
use super::report::shown;
use super::walk::Hierarchy;
use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::ecma119::field::array;
use crate::ecma119::path_table::MAX_DIRECTORIES;
use crate::error::ReadError;

/// The number of bytes before the identifier.
const HEADER: usize = 8;
/// The size of the largest table: the largest number of directories with the longest identifiers.
const MAX_SIZE: usize = MAX_DIRECTORIES * (HEADER + 256);

/// A record of a table.
struct Entry<'a> {
    offset: u64,
    identifier: &'a [u8],
    extent: u32,
    parent: usize,
}

/// Checks the path tables of a hierarchy.
pub(super) fn check(
    checker: &mut Checker<'_>,
    descriptor: &Descriptor,
    hierarchy: &Hierarchy,
) -> Result<(), ReadError> {
    let sizes = hierarchy
        .directories
        .iter()
        .map(|directory| HEADER as u64 + directory.identifier.len().next_multiple_of(2) as u64);
    let wanted: u64 = sizes.sum();
    let size = u64::from(descriptor.path_table_size);
    if size != wanted {
        let message = format_args!("{size} bytes, the directories need {wanted}");
        checker.find(Rule::PathTableSize, descriptor.offset + 132, message);
    }
    for table in &descriptor.tables {
        let offset = u64::from(table.sector) * SECTOR_SIZE;
        if offset + size > descriptor.space || !checker.holds(offset, size) {
            let message = format_args!("{} has {size} bytes in sector {}", table.name, table.sector);
            checker.find(Rule::PathTableOutside, table.field, message);
            continue;
        }
        checker.claims.claim(offset, size, ExtentUse::Structure("a path table"));
        let mut bytes = vec![0; usize::try_from(size).map_or(MAX_SIZE, |size| size.min(MAX_SIZE))];
        checker.fill(offset, &mut bytes)?;
        let entries = parse(checker, table, &bytes, offset);
        checker.counts.path_table_records += entries.len() as u64;
        compare(checker, table, &entries, hierarchy);
        order(checker, table, &entries, descriptor.kind == HierarchyRules::Joliet);
    }
    Ok(())
}

fn parse<'a>(
    checker: &mut Checker<'_>,
    table: &PathTableLocation,
    bytes: &'a [u8],
    offset: u64,
) -> Vec<Entry<'a>> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < bytes.len() && entries.len() < MAX_DIRECTORIES {
        let place = offset + at as u64;
        let length = usize::from(bytes[at]);
        let end = at + HEADER + length;
        let (Some(extent), Some(parent), Some(identifier)) =
            (array(bytes, at + 2), array(bytes, at + 6), bytes.get(at + HEADER..end).filter(|_| length > 0))
        else {
            let message = format_args!("{}: an identifier of {length} bytes", table.name);
            checker.find(Rule::PathTableRecord, place, message);
            return entries;
        };
        if bytes[at + 1] != 0 {
            let message = format_args!("{}: {} sectors of attributes", table.name, bytes[at + 1]);
            checker.find(Rule::PathTableRecord, place + 1, message);
        }
        if !length.is_multiple_of(2) && bytes.get(end).is_some_and(|byte| *byte != 0) {
            let message = format_args!("{}: the padding byte is not zero", table.name);
            checker.find(Rule::PathTableRecord, offset + end as u64, message);
        }
        let (extent, parent) = match table.big {
            true => (u32::from_be_bytes(extent), u16::from_be_bytes(parent)),
            false => (u32::from_le_bytes(extent), u16::from_le_bytes(parent)),
        };
        entries.push(Entry { offset: place, identifier, extent, parent: usize::from(parent) });
        at = end + length % 2;
    }
    entries
}

fn compare(
    checker: &mut Checker<'_>,
    table: &PathTableLocation,
    entries: &[Entry<'_>],
    hierarchy: &Hierarchy,
) {
    let directories = &hierarchy.directories;
    let mut missing: HashMap<u32, usize> =
        directories.iter().enumerate().map(|(index, directory)| (directory.extent, index)).collect();
    for (index, entry) in entries.iter().enumerate() {
        let name = shown(entry.identifier);
        let Some(number) = missing.remove(&entry.extent) else {
            let message =
                format_args!("{}: {name} in sector {} is not a directory", table.name, entry.extent);
            checker.find(Rule::PathTableDirectory, entry.offset, message);
            continue;
        };
        let directory = &directories[number];
        if *directory.identifier != *entry.identifier {
            let message = format_args!(
                "{}: {name} is named {} in its directory",
                table.name,
                shown(&directory.identifier)
            );
            checker.find(Rule::PathTableDirectory, entry.offset + HEADER as u64, message);
        }
        // A parent comes before its children; the root is its own parent.
        let parent = (entry.parent >= 1 && entry.parent <= index.max(1)).then(|| &entries[entry.parent - 1]);
        let wanted = directories[directory.parent].extent;
        if parent.is_none_or(|parent| parent.extent != wanted) {
            let message = format_args!("{}: {name} has the parent {}", table.name, entry.parent);
            checker.find(Rule::PathTableParent, entry.offset + 6, message);
        }
    }
    let mut missing: Vec<usize> = missing.into_values().collect();
    missing.sort_unstable();
    for number in missing {
        let directory = &directories[number];
        let message = format_args!(
            "{} lacks {} in sector {}",
            table.name,
            shown(&directory.identifier),
            directory.extent
        );
        checker.find(Rule::PathTableDirectory, table.field, message);
    }
}

fn order(checker: &mut Checker<'_>, table: &PathTableLocation, entries: &[Entry<'_>], joliet: bool) {
    for pair in entries.windows(2).skip(1) {
        let (left, right) = (&pair[0], &pair[1]);
        let order = left
            .parent
            .cmp(&right.parent)
            .then_with(|| path_table_order(left.identifier, right.identifier, joliet));
        if order.is_gt() {
            let message = format_args!(
                "{}: {} of parent {} follows {} of parent {}",
                table.name,
                shown(right.identifier),
                right.parent,
                shown(left.identifier),
                left.parent
            );
            checker.find(Rule::PathTableOrder, right.offset, message);
        }
    }
}
