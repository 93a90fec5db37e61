//! Replaces the contents of existing files.
//!
//! ```text
//! tree:  root --walk--> directory --> record  extent, length, dates   becomes   new extent, new length, epoch
//! ```
//!
//! The record stays in place, so no directory changes its size. Files that firmware boots, files with several extents
//! and compressed files are refused: another record or table would still refer to the old bytes or contain wrong
//! values.

use crate::SECTOR_SIZE;
use crate::ecma119::field::put;
use crate::error::ReadError;
use crate::rockridge;

use super::budget::Budget;
use super::dialect;
use super::error::SpliceError;
use super::graft::Graft;
use super::original::{Original, Tree};
use super::overlay::Overlay;
use super::records::{self, RawRecord};
use super::tree_kind::TreeKind;
use super::{File, names};

/// The record of a file in one tree.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    record: RawRecord,
    /// The offset of the directory with the record.
    directory: u64,
}

/// Finds a file in every tree and checks that it may be replaced.
pub(crate) fn locate(
    original: &Original,
    path: &str,
    source: &Budget<'_>,
) -> Result<Vec<Located>, SpliceError> {
    let mut found: Vec<Located> = Vec::with_capacity(original.trees.len());
    for tree in &original.trees {
        let refuse = |reason| SpliceError::Replace { path: path.to_owned(), tree: tree.kind.name(), reason };
        let located = find(tree, path, source)?;
        let RawRecord { data_offset, data_length, .. } = located.record;
        if let Some(first) = found.first() {
            let same = first.record.data_length == data_length
                && (data_length == 0 || first.record.data_offset == data_offset);
            if !same {
                return Err(refuse("it is not the file that the primary tree has"));
            }
        }
        let boots = original.boot.as_ref().is_some_and(|(catalog, entries)| {
            let sectors = entries.iter().map(|entry| u64::from(entry.sector) * SECTOR_SIZE);
            let end = data_offset + u64::from(data_length);
            sectors.chain([*catalog]).any(|offset| (data_offset..end).contains(&offset))
        });
        if boots {
            return Err(refuse(
                "firmware boots it, and would still boot the old bytes; create the image again",
            ));
        }
        found.push(located);
    }
    Ok(found)
}

/// Points the record of a file to its new content.
pub(crate) fn apply(
    graft: &mut Graft,
    located: &Located,
    file: &File<'_>,
    date: [u8; 7],
    source: &Budget<'_>,
    overlay: &mut Overlay,
) -> Result<(), SpliceError> {
    let skip = graft.tree.skip();
    let change = |record: &mut RawRecord| {
        record.lead_to(file.sector, file.length);
        record.set_date(date);
        dialect::set_modified(record, skip, date);
    };
    let offset = located.record.offset;
    // If the root moves, the moved records are changed.
    if located.directory == graft.tree.root_offset {
        graft.tree.records.iter_mut().filter(|record| record.offset == offset).for_each(change);
        return Ok(());
    }
    let start = offset / SECTOR_SIZE * SECTOR_SIZE;
    if overlay.replaced(start).is_none() {
        let sector = source.sector(start, "a directory lies inside the image")?;
        overlay.replace(start, sector.to_vec(), graft.part_at(located.directory))?;
    }
    if let Some(sector) = overlay.replaced(start) {
        let mut record = located.record.clone();
        change(&mut record);
        // The parser has checked that a record is inside its sector.
        put(sector, usize::try_from(offset - start).unwrap_or(0), &record.bytes);
    }
    Ok(())
}

/// Finds a file in one tree.
fn find(tree: &Tree, path: &str, source: &Budget<'_>) -> Result<Located, SpliceError> {
    let refuse = |reason| SpliceError::Replace { path: path.to_owned(), tree: tree.kind.name(), reason };
    let mut components = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    let (mut directory, mut records) = (tree.root_offset, tree.records.clone());
    while let Some(component) = components.next() {
        let index = child(tree, &records, component, source)?.ok_or(refuse("the file does not exist"))?;
        let record = records[index].clone();
        if components.peek().is_some() {
            if !record.is_directory() {
                return Err(refuse("its path goes through a file or a relocated directory"));
            }
            directory = record.data_offset;
            let length = u64::from(record.data_length);
            let bytes = source.bytes(directory, length, "a directory lies inside the image")?;
            records = records::split(&bytes, directory)?;
            continue;
        }
        if record.is_directory() {
            return Err(refuse("it is a directory"));
        }
        let same = records.iter().filter(|other| other.identifier() == record.identifier()).count();
        if record.is_odd() || same > 1 {
            return Err(refuse("it has several extents"));
        }
        let attributes = attributes(tree, &record, source)?;
        if attributes.compressed.is_some() {
            return Err(refuse("it is compressed with zisofs"));
        }
        if attributes.symlink.is_some() || attributes.relocated_to.is_some() {
            return Err(refuse("it is not a regular file"));
        }
        return Ok(Located { record, directory });
    }
    Err(refuse("the file does not exist"))
}

/// Returns the index of the child with a name.
fn child(
    tree: &Tree,
    records: &[RawRecord],
    name: &str,
    source: &Budget<'_>,
) -> Result<Option<usize>, SpliceError> {
    for (index, record) in records.iter().enumerate().skip(2) {
        let attributes = attributes(tree, record, source)?;
        let called = if attributes.name.is_empty() {
            names::is_called(record.identifier(), name, tree.kind)
        } else {
            attributes.name == name.as_bytes()
        };
        if called {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn attributes(
    tree: &Tree,
    record: &RawRecord,
    source: &Budget<'_>,
) -> Result<rockridge::Attributes, SpliceError> {
    if tree.kind == TreeKind::Joliet || tree.rock_ridge.is_none() {
        return Ok(rockridge::Attributes::default());
    }
    let area = record.system_use().get(tree.skip()..).unwrap_or_default();
    let parsed: Result<_, ReadError> = rockridge::parse(source, area, record.offset);
    parsed.map_err(|error| source.error(error))
}
