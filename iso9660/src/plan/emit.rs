//! The metadata sectors.
//!
//! ```text
//! Renderer::directory(n) -> [. ..  entries ...] whole sectors           each record: ECMA-119 part + Rock Ridge area
//!          `-> continuation area grows: [ER][NM NM][NM] ...             none crosses a sector
//! ```
//!
//! A renderer is used twice, to measure and to emit (see `layout`); it visits the directories in the same order both
//! times, so that the places in the continuation area agree.

use crate::SECTOR_SIZE;
use crate::ecma119::descriptor::{self, NewVolume};
use crate::ecma119::path_table::PathTableRecord;
use crate::ecma119::record::{DIRECTORY, NewRecord, PARENT, SELF, base_length};
use crate::ecma119::{FIRST_DESCRIPTOR, Hierarchy, SECTOR};
use crate::eltorito;
use crate::options::Options;
use crate::rockridge::{CONTINUATION_ENTRY, Posix, SystemUse, append_continuation};

use super::hierarchy::Target;
use super::layout::{Addressed, Layout, sections};
use super::order::Nodes;
use super::{Body, Part, Piece};

/// Renders directories.
pub(crate) struct Renderer<'a> {
    nodes: &'a Nodes,
    options: &'a Options,
    date: [u8; 7],
    continuation_sector: u32,
    files: &'a [u32],
    continuation: Vec<u8>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(nodes: &'a Nodes, options: &'a Options, layout: &'a Layout) -> Renderer<'a> {
        Renderer {
            nodes,
            options,
            date: layout.date.record(),
            continuation_sector: layout.continuation,
            files: &layout.files,
            continuation: Vec::new(),
        }
    }

    /// The bytes of a directory, whole sectors.
    pub(crate) fn directory(&mut self, addressed: &Addressed, index: usize) -> Vec<u8> {
        let directories = &addressed.named.directories;
        let rock_ridge = addressed.named.hierarchy == Hierarchy::Primary && self.options.rock_ridge;
        let mut bytes = Vec::new();
        for (of, identifier) in [(index, SELF), (directories[index].parent, PARENT)] {
            let area = rock_ridge.then(|| {
                let posix = self.directory_posix(directories[of].node);
                if index == 0 && identifier == SELF {
                    SystemUse::root(&posix)
                } else {
                    SystemUse::unnamed(&posix)
                }
            });
            self.append(&mut bytes, &directory_record(addressed, of, identifier, self.date), area);
        }
        for entry in &directories[index].entries {
            let base = base_length(entry.identifier.len());
            match entry.target {
                Target::Directory(child) => {
                    let area = rock_ridge.then(|| {
                        let node = directories[child].node;
                        SystemUse::named(
                            &self.directory_posix(node),
                            &self.nodes.directories[node].name,
                            base,
                        )
                    });
                    self.append(
                        &mut bytes,
                        &directory_record(addressed, child, &entry.identifier, self.date),
                        area,
                    );
                }
                Target::File(file) => {
                    for (extent, data_length, flags) in sections(self.files[file], self.nodes.files[file].len)
                    {
                        let area = rock_ridge.then(|| {
                            SystemUse::named(&self.file_posix(file), &self.nodes.files[file].name, base)
                        });
                        let (identifier, date) = (&*entry.identifier, self.date);
                        self.append(
                            &mut bytes,
                            &NewRecord { extent, data_length, date, flags, identifier },
                            area,
                        );
                    }
                }
            }
        }
        bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
        bytes
    }

    /// The continuation area that the directories rendered so far need.
    pub(crate) fn continuation(&self) -> &[u8] {
        &self.continuation
    }

    /// Appends a record; what overflows its area goes to the continuation area.
    fn append(&mut self, directory: &mut Vec<u8>, record: &NewRecord<'_>, area: Option<SystemUse>) {
        let Some(SystemUse { mut inline, overflow }) = area else {
            return record.append(directory, &[]);
        };
        if !overflow.is_empty() {
            if self.continuation.len() % SECTOR + overflow.len() > SECTOR {
                self.continuation.resize(self.continuation.len().next_multiple_of(SECTOR), 0);
            }
            let at = self.continuation.len();
            // Sizes of areas have 32 bits: `layout` refuses a larger one after measuring.
            let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            let block = self.continuation_sector.saturating_add(small(at / SECTOR));
            let before = inline.len();
            append_continuation(&mut inline, block, small(at % SECTOR), small(overflow.len()));
            debug_assert_eq!(inline.len(), before + CONTINUATION_ENTRY);
            self.continuation.extend_from_slice(&overflow);
        }
        record.append(directory, &inline);
    }

    fn directory_posix(&self, node: usize) -> Posix {
        Posix {
            directory: true,
            permissions: self.options.directory_mode,
            links: 2 + self.nodes.directories[node].subdirectories,
            serial: serial(node),
            date: self.date,
        }
    }

    fn file_posix(&self, file: usize) -> Posix {
        let (permissions, serial) = (self.options.file_mode, serial(self.nodes.directories.len() + file));
        Posix { directory: false, permissions, links: 1, serial, date: self.date }
    }
}

/// Serial numbers follow the order of the nodes: directories from 1, then files.
fn serial(index: usize) -> u32 {
    u32::try_from(index + 1).unwrap_or(u32::MAX)
}

/// A record of directory `of`, under an identifier.
fn directory_record<'a>(
    addressed: &Addressed,
    of: usize,
    identifier: &'a [u8],
    date: [u8; 7],
) -> NewRecord<'a> {
    let extent = addressed.extents[of];
    NewRecord { extent: extent.sector, data_length: extent.length, date, flags: DIRECTORY, identifier }
}

/// The metadata from the first descriptor to the data, and all pieces of the image.
pub(crate) fn emit(nodes: &Nodes, options: &Options, layout: &Layout) -> (Vec<u8>, Vec<Piece>) {
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
    let mut renderer = Renderer::new(nodes, options, layout);
    for addressed in &layout.hierarchies {
        for (index, extent) in addressed.extents.iter().enumerate() {
            let part = Part::Directory(addressed.named.hierarchy, serial(index));
            metadata.add(extent.sector, part, &renderer.directory(addressed, index));
        }
    }
    metadata.add(layout.continuation, Part::Continuation, renderer.continuation());
    if let Some((sector, entries)) = &layout.catalog {
        metadata.add(*sector, Part::BootCatalog, &eltorito::catalog(entries));
    }
    let Metadata { bytes, mut pieces } = metadata;
    pieces.extend(nodes.files.iter().enumerate().filter(|(_, file)| file.len > 0).map(|(index, file)| {
        Piece {
            offset: u64::from(layout.files[index]) * SECTOR_SIZE,
            len: file.len,
            part: Part::File(index),
            body: Body::File(index),
        }
    }));
    (bytes, pieces)
}

/// The metadata while it grows, without gaps between its sectors.
struct Metadata {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Metadata {
    /// Adds a structure at its sector, which is the next free one, and fills its last sector.
    fn add(&mut self, sector: u32, part: Part, structure: &[u8]) {
        if structure.is_empty() {
            return;
        }
        let start = self.bytes.len();
        let offset = u64::from(sector) * SECTOR_SIZE;
        debug_assert_eq!(offset, u64::from(FIRST_DESCRIPTOR) * SECTOR_SIZE + start as u64);
        self.bytes.extend_from_slice(structure);
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR), 0);
        let len = (self.bytes.len() - start) as u64;
        self.pieces.push(Piece { offset, len, part, body: Body::Metadata(start..self.bytes.len()) });
    }
}

/// The L and M tables of a hierarchy.
fn path_tables(addressed: &Addressed) -> (Vec<u8>, Vec<u8>) {
    let (mut little, mut big) = (Vec::new(), Vec::new());
    for (directory, extent) in addressed.named.directories.iter().zip(&addressed.extents) {
        // Numbers begin at 1 and were limited to 16 bits when the hierarchy was named.
        let parent = u16::try_from(directory.parent + 1).unwrap_or(u16::MAX);
        PathTableRecord { identifier: &directory.identifier, extent: extent.sector, parent }
            .append(&mut little, &mut big);
    }
    (little, big)
}
