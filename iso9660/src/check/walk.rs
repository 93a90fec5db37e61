//! The walk of one hierarchy: every directory, sector by sector, record by record.
//!
//! ```text
//! directories: 0 = root, then those of level 2, of level 3 ...: the order of path tables, when records are in order
//!
//! one directory   . self | .. parent | entries in order, sections of one file in sequence | 00 ... end of sector
//! ```
//!
//! Invariants: a directory is visited once, by its extent. All directories together have at most as many bytes as the
//! image. Names are kept for one directory at a time.

use std::collections::{BTreeSet, HashSet};

use super::descriptors::{Descriptor, HierarchyRules};
use super::extents::ExtentUse;
use super::identifier::{self, Identifier, Order};
use super::names::{self, Folding};
use super::record::{self, Parsed};
use super::report::shown;
use super::rock_ridge::Rock;
use super::susp::{self, Position, Susp};
use super::{Checker, Rule};
use crate::ecma119::SECTOR;
use crate::ecma119::record::{HEADER, PARENT, SELF};
use crate::error::ReadError;
use crate::{SECTOR_SIZE, joliet};

/// The deepest level of directories that is walked.
const MAX_LEVEL: usize = 255;

/// A directory found by the walk.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) identifier: Box<[u8]>,
    /// The index of the parent; the root is its own parent.
    pub(super) parent: usize,
    /// The level; the root is on level 1.
    pub(super) level: usize,
    /// The sum of the identifiers from the root to the directory, each with one byte more.
    path_length: usize,
    /// The first sector.
    pub(super) extent: u32,
    offset: u64,
    length: u32,
    /// The offset of the record that names the directory.
    pub(super) record: u64,
    /// The Rock Ridge values of the record that names it, of its record of itself, and of its record of its parent.
    pub(super) named: Rock,
    pub(super) itself: Rock,
    pub(super) above: Rock,
}

/// A record that represents a relocated directory.
#[derive(Debug)]
pub(super) struct ChildLink {
    pub(super) directory: usize,
    pub(super) target: u32,
    pub(super) offset: u64,
}

/// The result of the walk of a hierarchy.
#[derive(Debug)]
pub(super) struct Hierarchy {
    pub(super) kind: HierarchyRules,
    pub(super) rock_ridge: bool,
    pub(super) directories: Vec<Directory>,
    /// The extents of files that are not empty: offset, length, and the offset of the record.
    pub(super) files: Vec<(u64, u64, u64)>,
    pub(super) child_links: Vec<ChildLink>,
}

/// Walks the hierarchy of a descriptor.
pub(super) fn walk(checker: &mut Checker<'_>, descriptor: &Descriptor) -> Result<Hierarchy, ReadError> {
    let root = &descriptor.root;
    let mut walk = Walk {
        descriptor,
        visited: HashSet::from([root.extent]),
        bytes: 0,
        records: 0,
        susp: None,
        unknown: false,
        full: false,
        hierarchy: Hierarchy {
            kind: descriptor.kind,
            rock_ridge: false,
            directories: vec![Directory::new(root, SELF, 0, 1, 0, Rock::default())],
            files: Vec::new(),
            child_links: Vec::new(),
        },
    };
    let mut index = 0;
    while index < walk.hierarchy.directories.len() && !walk.full {
        walk.directory(checker, index)?;
        index += 1;
    }
    checker.counts.directories += walk.hierarchy.directories.len() as u64;
    walk.hierarchy.rock_ridge = walk.susp.as_ref().is_some_and(|susp| susp.finish(checker));
    Ok(walk.hierarchy)
}

struct Walk<'d> {
    descriptor: &'d Descriptor,
    visited: HashSet<u32>,
    bytes: u64,
    records: u64,
    susp: Option<Susp>,
    /// Whether unknown system use areas were reported.
    unknown: bool,
    /// Whether a budget is exhausted.
    full: bool,
    hierarchy: Hierarchy,
}

/// The state of one directory during the walk.
#[derive(Default)]
struct Scan {
    /// The index of the directory.
    index: usize,
    records: usize,
    order: Order,
    /// The identifiers, without further sections of files.
    names: Vec<(Vec<u8>, bool, u64)>,
    rock_names: Vec<(Vec<u8>, u64)>,
    /// The identifier of a file whose last section is missing so far, and its offset.
    open: Option<(Vec<u8>, u64)>,
}

impl Directory {
    fn new(
        record: &Parsed,
        identifier: &[u8],
        parent: usize,
        level: usize,
        path_length: usize,
        named: Rock,
    ) -> Directory {
        Directory {
            identifier: identifier.into(),
            parent,
            level,
            path_length,
            extent: record.extent,
            offset: record.data_offset(),
            length: record.data_length,
            record: record.offset,
            named,
            itself: Rock::default(),
            above: Rock::default(),
        }
    }
}

impl Walk<'_> {
    fn directory(&mut self, checker: &mut Checker<'_>, index: usize) -> Result<(), ReadError> {
        let Directory { offset, length, record, .. } = self.hierarchy.directories[index];
        let length = u64::from(length);
        if length == 0 || !length.is_multiple_of(SECTOR_SIZE) {
            checker.find(Rule::DirectoryLength, record + 10, format_args!("{length} bytes"));
        }
        let end = offset.saturating_add(length.next_multiple_of(SECTOR_SIZE));
        if length == 0 {
            return Ok(());
        }
        if end > self.descriptor.space || end > checker.len {
            let message = format_args!("{length} bytes in sector {}", offset / SECTOR_SIZE);
            checker.find(Rule::DirectoryOutside, record + 2, message);
            if end > checker.len {
                return Ok(());
            }
        }
        self.bytes = self.bytes.saturating_add(length);
        if length > checker.options.directory_bytes || self.bytes > checker.len {
            return self.stop(
                checker,
                record,
                "the directories have more bytes than the budget or the image",
            );
        }
        checker.claims.claim(offset, length, ExtentUse::Structure("a directory"));
        let mut scan = Scan { index, ..Scan::default() };
        let mut at = offset;
        while at < end && !self.full {
            let mut sector = [0; SECTOR];
            checker.fill(at, &mut sector)?;
            self.sector(checker, &mut scan, &sector, at)?;
            at += SECTOR_SIZE;
        }
        self.finish(checker, scan, offset);
        Ok(())
    }

    fn stop(&mut self, checker: &mut Checker<'_>, offset: u64, why: &str) -> Result<(), ReadError> {
        checker.find(Rule::CheckIncomplete, offset, format_args!("{why}"));
        self.full = true;
        Ok(())
    }

    /// Reads the records of one sector.
    fn sector(
        &mut self,
        checker: &mut Checker<'_>,
        scan: &mut Scan,
        sector: &[u8; SECTOR],
        offset: u64,
    ) -> Result<(), ReadError> {
        let mut at = 0;
        while at < SECTOR && sector[at] != 0 {
            let place = offset + at as u64;
            self.records += 1;
            if self.records > checker.options.entries {
                return self.stop(checker, place, "the directories have more records than the budget allows");
            }
            let Some(record) = record::parse(checker, &sector[at..], place) else {
                // The next record can be found if this one has a length.
                let length = usize::from(sector[at]);
                if length <= HEADER || at + length > SECTOR {
                    return Ok(());
                }
                at += length;
                scan.records += 1;
                continue;
            };
            let bytes = &sector[at..at + record.length];
            record::check(checker, &record, bytes);
            match scan.records {
                0 => self.itself(checker, scan.index, &record, bytes)?,
                1 => self.parent(checker, scan.index, &record, bytes)?,
                _ => self.entry(checker, scan, &record, bytes)?,
            }
            scan.records += 1;
            at += record.length;
        }
        checker.zeros(Rule::DirectoryPadding, offset + at as u64, &sector[at..], "the rest of the sector");
        Ok(())
    }

    /// Checks the record of the directory itself.
    fn itself(
        &mut self,
        checker: &mut Checker<'_>,
        index: usize,
        record: &Parsed,
        bytes: &[u8],
    ) -> Result<(), ReadError> {
        let Directory { extent, length, .. } = self.hierarchy.directories[index];
        let same = (record.extent, record.data_length) == (extent, length);
        if !same || record.identifier(bytes) != SELF || !record.directory() {
            let message = format_args!(
                "{} of {} bytes in sector {}, the directory has {length} in sector {extent}",
                shown(record.identifier(bytes)),
                record.data_length,
                record.extent
            );
            checker.find(Rule::SelfRecord, record.offset, message);
        }
        let (area, at) = record.system_use(bytes);
        if index == 0 {
            self.susp = Susp::start(area);
            if self.susp.is_none() && susp::resembles(area) {
                let message = format_args!("the area begins with {}", shown(&area[..area.len().min(7)]));
                checker.find(Rule::SuspStart, at, message);
                self.unknown = true;
            }
        }
        let position = if index == 0 { Position::Root } else { Position::Itself };
        let rock = self.system_use(checker, record, bytes, position)?;
        self.hierarchy.directories[index].itself = rock;
        Ok(())
    }

    /// Checks the record of the parent.
    fn parent(
        &mut self,
        checker: &mut Checker<'_>,
        index: usize,
        record: &Parsed,
        bytes: &[u8],
    ) -> Result<(), ReadError> {
        let Directory { extent, length, .. } =
            self.hierarchy.directories[self.hierarchy.directories[index].parent];
        let same = (record.extent, record.data_length) == (extent, length);
        if !same || record.identifier(bytes) != PARENT || !record.directory() {
            let message = format_args!(
                "{} of {} bytes in sector {}, the parent has {length} in sector {extent}",
                shown(record.identifier(bytes)),
                record.data_length,
                record.extent
            );
            let itself = self.hierarchy.directories[index].extent == record.extent
                && record.identifier(bytes) == PARENT
                && record.directory();
            let rule = if itself { Rule::ParentRecordItself } else { Rule::ParentRecord };
            checker.find(rule, record.offset, message);
        }
        let rock = self.system_use(checker, record, bytes, Position::Parent)?;
        self.hierarchy.directories[index].above = rock;
        Ok(())
    }

    /// Reads the system use entries of a record.
    fn system_use(
        &mut self,
        checker: &mut Checker<'_>,
        record: &Parsed,
        bytes: &[u8],
        position: Position,
    ) -> Result<Rock, ReadError> {
        let (area, offset) = record.system_use(bytes);
        let Some(susp) = &mut self.susp else {
            if !self.unknown && !area.is_empty() {
                let message = format_args!("{} bytes from {}", area.len(), shown(&area[..area.len().min(4)]));
                checker.find(Rule::SystemUseUnknown, offset, message);
                self.unknown = true;
            }
            return Ok(Rock::default());
        };
        let rock = susp.record(checker, area, offset, position, self.descriptor.space)?;
        if susp.exhausted {
            self.full = true;
        }
        rock.check(checker, record);
        Ok(rock)
    }

    /// Checks any other record.
    fn entry(
        &mut self,
        checker: &mut Checker<'_>,
        scan: &mut Scan,
        record: &Parsed,
        bytes: &[u8],
    ) -> Result<(), ReadError> {
        let identifier = record.identifier(bytes);
        let rock = self.system_use(checker, record, bytes, Position::Entry)?;
        let further = self.section(checker, scan, record, identifier);
        if !further {
            let kind = self.hierarchy.kind;
            let named = Identifier {
                bytes: identifier,
                offset: record.offset,
                directory: record.directory(),
                child_link: rock.child_link.is_some(),
            };
            named.check(checker, kind, self.descriptor.relaxed);
            scan.order.next(kind, &named);
            scan.names.push((identifier.to_vec(), record.associated(), record.offset));
            if let Some(name) = rock.name().filter(|_| !record.associated()) {
                scan.rock_names.push((name.to_vec(), record.offset));
            }
            self.path_length(checker, scan.index, record, identifier);
        }
        if let Some(target) = rock.child_link {
            let (directory, offset) = (scan.index, record.offset);
            self.hierarchy.child_links.push(ChildLink { directory, target, offset });
            checker.counts.files += 1;
        } else if record.directory() {
            self.subdirectory(checker, scan.index, record, identifier, rock);
        } else {
            checker.counts.files += 1;
            self.file(checker, record, identifier);
        }
        Ok(())
    }

    /// Returns whether a record is a further section of the previous file.
    fn section(
        &mut self,
        checker: &mut Checker<'_>,
        scan: &mut Scan,
        record: &Parsed,
        identifier: &[u8],
    ) -> bool {
        let open = scan.open.take();
        let further = match &open {
            Some((first, _)) if first == identifier => true,
            Some((first, offset)) => {
                let message = format_args!("the last section of {} does not follow", shown(first));
                checker.find(Rule::FileSections, *offset, message);
                false
            }
            None => false,
        };
        if !record.last_section() && !record.directory() {
            if !u64::from(record.data_length).is_multiple_of(SECTOR_SIZE) {
                let message = format_args!("a section of {} bytes is not the last", record.data_length);
                checker.find(Rule::FileSections, record.offset, message);
            }
            scan.open = Some((identifier.to_vec(), record.offset));
            checker.counts.level = checker.counts.level.max(3);
        }
        further
    }

    fn path_length(&mut self, checker: &mut Checker<'_>, index: usize, record: &Parsed, identifier: &[u8]) {
        let length = self.hierarchy.directories[index].path_length + identifier.len();
        if self.hierarchy.kind == HierarchyRules::Primary && !self.descriptor.relaxed && length > 255 {
            let message = format_args!("{length} bytes to {}", shown(identifier));
            checker.find(Rule::PathLength, record.offset, message);
        }
    }

    fn subdirectory(
        &mut self,
        checker: &mut Checker<'_>,
        parent: usize,
        record: &Parsed,
        identifier: &[u8],
        rock: Rock,
    ) {
        if !self.visited.insert(record.extent) {
            let message =
                format_args!("{} is the directory in sector {} again", shown(identifier), record.extent);
            return checker.find(Rule::DirectoryLoop, record.offset, message);
        }
        let level = self.hierarchy.directories[parent].level + 1;
        if level == 9 && self.hierarchy.kind == HierarchyRules::Primary && !self.descriptor.relaxed {
            let message = format_args!("{} is on level {level}", shown(identifier));
            checker.find(Rule::PathDepth, record.offset, message);
        }
        if level > MAX_LEVEL {
            let message = format_args!("{} is on level {level}", shown(identifier));
            return checker.find(Rule::CheckIncomplete, record.offset, message);
        }
        let path_length = self.hierarchy.directories[parent].path_length + identifier.len() + 1;
        let directory = Directory::new(record, identifier, parent, level, path_length, rock);
        self.hierarchy.directories.push(directory);
    }

    fn file(&mut self, checker: &mut Checker<'_>, record: &Parsed, identifier: &[u8]) {
        let (offset, length) = (record.data_offset(), u64::from(record.data_length));
        if length == 0 {
            return;
        }
        if offset + length > self.descriptor.space {
            let message =
                format_args!("{} has {length} bytes from sector {}", shown(identifier), record.extent);
            checker.find(Rule::ExtentOutside, record.offset, message);
        }
        // An extended attribute record is part of the extent.
        let extent = u64::from(record.extent) * SECTOR_SIZE;
        checker.claims.claim(extent, offset + length - extent, ExtentUse::File);
        self.hierarchy.files.push((offset, length, record.offset));
    }

    /// Runs the checks that need all records of a directory.
    fn finish(&mut self, checker: &mut Checker<'_>, scan: Scan, offset: u64) {
        if scan.records < 2 && !self.full {
            let rule = if scan.records == 0 { Rule::SelfRecord } else { Rule::ParentRecord };
            checker.find(rule, offset, format_args!("the record is missing"));
        }
        if let Some((identifier, offset)) = &scan.open {
            let message = format_args!("the last section of {} does not follow", shown(identifier));
            checker.find(Rule::FileSections, *offset, message);
        }
        scan.order.finish(checker);
        let Scan { mut names, mut rock_names, .. } = scan;
        names.sort_unstable();
        for pair in names.windows(2) {
            if (&pair[0].0, pair[0].1) == (&pair[1].0, pair[1].1) {
                let message = format_args!("{} occurs twice", shown(&pair[1].0));
                checker.find(Rule::IdentifierDuplicate, pair[1].2, message);
            }
        }
        rock_names.sort_unstable();
        for pair in rock_names.windows(2) {
            if pair[0].0 == pair[1].0 {
                let message = format_args!("{} occurs twice", shown(&pair[1].0));
                checker.find(Rule::RockRidgeDuplicate, pair[1].1, message);
            }
        }
        names.dedup_by(|right, left| right.0 == left.0);
        rock_names.dedup_by(|right, left| right.0 == left.0);
        let joliet = self.hierarchy.kind == HierarchyRules::Joliet;
        let readable = |identifier: &[u8]| match joliet {
            true => joliet::name(identifier),
            false => identifier::without_version(identifier),
        };
        let names = names.iter().map(|(name, _, offset)| (readable(name), *offset)).collect();
        names::fold(checker, names, Folding::All);
        let text = |(name, offset): (Vec<u8>, u64)| (String::from_utf8_lossy(&name).into_owned(), offset);
        names::fold(checker, rock_names.into_iter().map(text).collect(), Folding::Unicode);
    }
}

/// Checks that all hierarchies refer to equal extents.
pub(super) fn compare(checker: &mut Checker<'_>, hierarchies: &[Hierarchy]) {
    let Some((first, others)) = hierarchies.split_first() else { return };
    let extents = |hierarchy: &Hierarchy| -> BTreeSet<(u64, u64)> {
        hierarchy.files.iter().map(|(offset, length, _)| (*offset, *length)).collect()
    };
    let known = extents(first);
    for other in others {
        let theirs = extents(other);
        for (hierarchy, there, name) in [(other, &known, "the first"), (first, &theirs, "another")] {
            for (offset, length, record) in &hierarchy.files {
                if !there.contains(&(*offset, *length)) {
                    let sector = offset / SECTOR_SIZE;
                    let message =
                        format_args!("{length} bytes in sector {sector} are not in {name} hierarchy");
                    checker.find(Rule::HierarchiesDiffer, *record, message);
                }
            }
        }
    }
}
