//! Renders the metadata sectors.
//!
//! ```text
//! Renderer::directory(n) -> [. ..  entries ...] whole sectors           each record: ECMA-119 part + Rock Ridge area
//!                        -> [ER][NM NM][NM SL] continuation area        the area of one record never crosses a sector
//! ```
//!
//! A renderer is used twice, to measure and to emit (see `layout`): lengths do not depend on addresses.

use crate::SECTOR_SIZE;
use crate::ecma119::descriptor::{self, NewVolume};
use crate::ecma119::path_table::PathTableRecord;
use crate::ecma119::record::{DIRECTORY, NewRecord, PARENT, SELF, base_length};
use crate::ecma119::{FIRST_DESCRIPTOR, Hierarchy, SECTOR};
use crate::eltorito;
use crate::error::PlanError;
use crate::options::ImageOptions;
use crate::rockridge::{
    CONTINUATION_ENTRY, Posix, PosixFileType, Relocation, SystemUse, append_continuation,
};

use super::hierarchy::{Entry, RELOCATION, Target};
use super::layout::{Addressed, DirectoryExtent, Layout, sections};
use super::order::{Child, Nodes};
use super::{Body, Part, Piece};

/// The permissions of a symbolic link on Linux.
const LINK_MODE: u16 = 0o777;

/// Renders directories.
pub(crate) struct Renderer<'a> {
    nodes: &'a Nodes,
    options: &'a ImageOptions,
    date: [u8; 7],
    er_area: Option<u32>,
    /// The address of an empty file.
    nowhere: u32,
    files: &'a [u32],
}

/// A directory with the addresses that its records need.
pub(crate) struct Rendered {
    pub(crate) records: Vec<u8>,
    pub(crate) continuation: Vec<u8>,
    /// The first sector of the continuation area.
    continuation_sector: u32,
    /// Whether the continuation area has only the ER entry of the root.
    pub(crate) announces_only: bool,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(nodes: &'a Nodes, options: &'a ImageOptions, layout: &'a Layout) -> Renderer<'a> {
        Renderer {
            nodes,
            options,
            date: layout.date.record(),
            er_area: (layout.er_area_length > 0).then_some(layout.er_area),
            nowhere: layout.data,
            files: &layout.files,
        }
    }

    /// Returns the bytes of a directory in whole sectors, and of its continuation area.
    ///
    /// # Errors
    /// Only errors that naming the hierarchy returned already.
    pub(crate) fn directory(&self, addressed: &Addressed, index: usize) -> Result<Rendered, PlanError> {
        let rock_ridge = addressed.named.hierarchy == Hierarchy::Primary && self.options.rock_ridge;
        let directory = &addressed.named.directories[index];
        let parent = directory.parent as usize;
        let DirectoryExtent { sector, length, .. } = addressed.extents[index];
        let behind = sector.saturating_add(length / SECTOR as u32);
        let mut rendered = Rendered {
            records: Vec::new(),
            continuation: Vec::new(),
            continuation_sector: self.er_area.filter(|_| index == 0).unwrap_or(behind),
            announces_only: false,
        };
        let area = rock_ridge.then(|| {
            let posix = self.directory_posix(addressed, index);
            if index == 0 {
                SystemUse::root(&posix)
            } else {
                SystemUse::unnamed(&posix, Relocation::Ordinary)
            }
        });
        rendered.append(&directory_record(addressed, index, SELF, self.date), area);
        let er_seen = rendered.continuation.len();
        let area = rock_ridge.then(|| match directory.moved_from {
            Some(origin) => {
                let place = Relocation::MovedFrom(addressed.extents[origin as usize].sector);
                SystemUse::unnamed(&self.directory_posix(addressed, origin as usize), place)
            }
            None => SystemUse::unnamed(&self.directory_posix(addressed, parent), Relocation::Ordinary),
        });
        rendered.append(&directory_record(addressed, parent, PARENT, self.date), area);
        for entry in addressed.named.entries(self.nodes, self.options, index)? {
            self.entry(&mut rendered, addressed, &entry, rock_ridge);
        }
        rendered.announces_only = er_seen > 0 && rendered.continuation.len() == er_seen;
        rendered.records.resize(rendered.records.len().next_multiple_of(SECTOR), 0);
        Ok(rendered)
    }

    /// Appends the record of an entry, or the records of a file with several sections.
    fn entry(&self, rendered: &mut Rendered, addressed: &Addressed, entry: &Entry, rock_ridge: bool) {
        let identifier = entry.identifier.as_slice();
        let base = base_length(identifier.len());
        let date = self.date;
        let nothing = NewRecord { extent: self.nowhere, data_length: 0, date, flags: 0, identifier };
        match entry.target {
            Target::Directory(child) => {
                let child = child as usize;
                let directory = &addressed.named.directories[child];
                let area = rock_ridge.then(|| {
                    let hidden = directory.node.is_none() || directory.moved_from.is_some();
                    let place = if hidden { Relocation::Hidden } else { Relocation::Ordinary };
                    let name =
                        directory.node.map_or(RELOCATION, |node| self.nodes.name(Child::Directory(node)));
                    SystemUse::named(&self.directory_posix(addressed, child), place, name, None, base)
                });
                rendered.append(&directory_record(addressed, child, identifier, date), area);
            }
            Target::Moved(node) => {
                let area = addressed.named.relocated.get(&node).map(|child| {
                    let child = *child as usize;
                    let place = Relocation::MovedTo(addressed.extents[child].sector);
                    let name = self.nodes.name(Child::Directory(node));
                    SystemUse::named(&self.directory_posix(addressed, child), place, name, None, base)
                });
                rendered.append(&nothing, area);
            }
            Target::Link(link) => {
                let serial = serial(self.nodes.directories.len() + self.nodes.files.len() + link as usize);
                let posix =
                    Posix { kind: PosixFileType::Link, permissions: LINK_MODE, links: 1, serial, date };
                let (name, target) = (self.nodes.name(Child::Link(link)), self.nodes.target(link));
                let area = SystemUse::named(&posix, Relocation::Ordinary, name, Some(target), base);
                rendered.append(&nothing, Some(area));
            }
            Target::File(file) => {
                let len = self.nodes.files[file as usize].len;
                for (extent, data_length, flags) in sections(self.files[file as usize], len) {
                    let area = rock_ridge.then(|| {
                        let name = self.nodes.name(Child::File(file));
                        SystemUse::named(&self.file_posix(file), Relocation::Ordinary, name, None, base)
                    });
                    let record = NewRecord { extent, data_length, date, flags, identifier };
                    rendered.append(&record, area);
                }
            }
        }
    }

    fn directory_posix(&self, addressed: &Addressed, index: usize) -> Posix {
        let nodes = self.nodes;
        let (subdirectories, serial) = match addressed.named.directories[index].node {
            Some(node) => (nodes.directories[node as usize].subdirectories, serial(node as usize)),
            // The serial numbers after those of the tree.
            None => {
                let last = nodes.directories.len() + nodes.files.len() + nodes.links.len();
                (u32::try_from(addressed.named.relocated.len()).unwrap_or(u32::MAX), serial(last))
            }
        };
        Posix {
            kind: PosixFileType::Directory,
            permissions: self.options.directory_mode,
            links: subdirectories.saturating_add(2),
            serial,
            date: self.date,
        }
    }

    fn file_posix(&self, file: u32) -> Posix {
        let owner = self.nodes.owner(file);
        let mode = self.options.file_mode;
        let executable = self.nodes.is_executable(file);
        Posix {
            kind: PosixFileType::File,
            permissions: if executable { mode | (mode & 0o444) >> 2 } else { mode },
            links: self.nodes.names_of_content(file),
            serial: serial(self.nodes.directories.len() + owner as usize),
            date: self.date,
        }
    }
}

impl Rendered {
    /// Appends a record. The overflow of its area goes to the continuation area.
    fn append(&mut self, record: &NewRecord<'_>, area: Option<SystemUse>) {
        let Some(SystemUse { mut inline, overflow }) = area else {
            return record.append(&mut self.records, &[]);
        };
        if !overflow.is_empty() {
            if self.continuation.len() % SECTOR + overflow.len() > SECTOR {
                self.continuation.resize(self.continuation.len().next_multiple_of(SECTOR), 0);
            }
            let at = self.continuation.len();
            // Sizes of areas have 32 bits; `layout` refuses a larger area after measuring.
            let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            let block = self.continuation_sector.saturating_add(small(at / SECTOR));
            let before = inline.len();
            append_continuation(&mut inline, block, small(at % SECTOR), small(overflow.len()));
            debug_assert_eq!(inline.len(), before + CONTINUATION_ENTRY);
            self.continuation.extend_from_slice(&overflow);
        }
        record.append(&mut self.records, &inline);
    }
}

/// Serial numbers follow the order of the nodes: directories from 1, then files, then symbolic links.
fn serial(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// Returns a record of directory `of` with an identifier.
fn directory_record<'a>(
    addressed: &Addressed,
    of: usize,
    identifier: &'a [u8],
    date: [u8; 7],
) -> NewRecord<'a> {
    let extent = addressed.extents[of];
    NewRecord { extent: extent.sector, data_length: extent.length, date, flags: DIRECTORY, identifier }
}

/// Returns the metadata from the first descriptor to the data, and its pieces.
pub(crate) fn emit(
    nodes: &Nodes,
    options: &ImageOptions,
    layout: &Layout,
) -> Result<(Vec<u8>, Vec<Piece>), PlanError> {
    let sectors = usize::try_from(layout.data - FIRST_DESCRIPTOR).unwrap_or(0);
    let mut metadata = Metadata { bytes: Vec::with_capacity(sectors * SECTOR), pieces: Vec::new() };
    for addressed in &layout.hierarchies {
        let hierarchy = addressed.named.hierarchy;
        let root = directory_record(addressed, 0, SELF, layout.date.record()).to_bytes(&[]);
        let volume = NewVolume {
            hierarchy,
            volume_id: &options.volume_id,
            publisher: &options.publisher,
            preparer: &options.preparer,
            application: &options.application,
            sectors: layout.sectors,
            path_table_size: addressed.path_table_size,
            l_table: addressed.l_table,
            m_table: addressed.m_table,
            root: &root,
            date: layout.date,
        };
        metadata.add(addressed.descriptor, Part::VolumeDescriptor(hierarchy), &volume.to_sector());
        if let (Hierarchy::Primary, Some(at), Some((catalog, _))) =
            (hierarchy, layout.boot_record, &layout.catalog)
        {
            metadata.add(at, Part::BootRecord, &eltorito::boot_record(*catalog));
        }
    }
    metadata.add(layout.terminator, Part::Terminator, &descriptor::terminator());
    for addressed in &layout.hierarchies {
        let hierarchy = addressed.named.hierarchy;
        let (little, big) = path_tables(addressed);
        metadata.add(addressed.l_table, Part::PathTableL(hierarchy), &little);
        metadata.add(addressed.m_table, Part::PathTableM(hierarchy), &big);
    }
    let renderer = Renderer::new(nodes, options, layout);
    let mut er_area = Vec::new();
    for addressed in &layout.hierarchies {
        for index in addressed.named.placement(nodes) {
            let part = Part::Directory(addressed.named.hierarchy, serial(index));
            let rendered = renderer.directory(addressed, index)?;
            metadata.add(addressed.extents[index].sector, part, &rendered.records);
            if rendered.announces_only {
                er_area = rendered.continuation;
            } else {
                metadata.add(rendered.continuation_sector, Part::Continuation, &rendered.continuation);
            }
        }
    }
    metadata.add(layout.er_area, Part::Continuation, &er_area);
    if let Some((sector, entries)) = &layout.catalog {
        metadata.add(*sector, Part::BootCatalog, &eltorito::catalog(entries));
    }
    Ok((metadata.bytes, metadata.pieces))
}

/// The metadata while it is built, without gaps between sectors.
struct Metadata {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Metadata {
    /// Adds a structure at its sector, which is the next free one, and pads its last sector.
    fn add(&mut self, sector: u32, part: Part, structure: &[u8]) {
        if structure.is_empty() {
            return;
        }
        let start = self.bytes.len();
        let offset = u64::from(sector) * SECTOR_SIZE;
        debug_assert_eq!(offset, u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE + start as u64);
        self.bytes.extend_from_slice(structure);
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR), 0);
        self.pieces.push(Piece { offset, part, body: Body::Metadata(start..self.bytes.len()) });
    }
}

/// Returns the L and M tables of a hierarchy.
fn path_tables(addressed: &Addressed) -> (Vec<u8>, Vec<u8>) {
    let (mut little, mut big) = (Vec::new(), Vec::new());
    for (directory, extent) in addressed.named.directories.iter().zip(&addressed.extents) {
        // Numbers begin at 1 and were limited to 16 bits when the hierarchy was named.
        let parent = u16::try_from(directory.parent + 1).unwrap_or(u16::MAX);
        let identifier = &*directory.identifier;
        PathTableRecord { identifier, extent: extent.sector, parent }.append(&mut little, &mut big);
    }
    (little, big)
}
