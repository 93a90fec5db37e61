//! Adds one directory to one tree.
//!
//! ```text
//! prepare   root records: [. ..  A  B  TASK  Z]   path table: numbers shift     sizes do not depend on addresses
//! place     L, M, task  <- sectors at the end of the image; the root too, when it has no room for one more record
//! apply     descriptors, root, `..` of A B Z: changed in the original; old path tables zeroed; new ones: pieces
//! ```
//!
//! A root that stays is preferred: libarchive reads an image from its beginning to its end and cannot list directories
//! before the directory that points to them. A root that moves takes its continuation areas along.
//!
//! Invariants: records of the original are changed only where a value must differ. The directories of the original stay
//! in place, so only the first level is changed, whose `..` refers to the root and contains its link count.

use crate::SECTOR_SIZE;
use crate::ecma119::Hierarchy;
use crate::ecma119::field::{both_u32, put};
use crate::ecma119::record::{DIRECTORY, MAX_LENGTH, NewRecord, PARENT, SELF, base_length};
use crate::error::ReadError;
use crate::plan::{NewPiece, Part};
use crate::rockridge;

use super::budget::Budget;
use super::continuation::Areas;
use super::dialect::{self, Node};
use super::error::SpliceError;
use super::original::Tree;
use super::overlay::Overlay;
use super::records::{self, RawRecord};
use super::tree_kind::TreeKind;
use super::{Added, Cursor, ExistingDirectory, SpliceNote, names, path_table};

/// The application use area of a descriptor, and the text that `implantisomd5` writes there.
const APPLICATION_USE: std::ops::Range<usize> = 883..1395;
const MEDIA_CHECK: &[u8] = b"ISO MD5SUM = ";

/// A tree in which the place of the directory is determined.
pub(crate) struct Graft {
    pub(crate) tree: Tree,
    /// The index of the directory's record among those of the root.
    entry: usize,
    /// The number of the directory in the path table.
    number: u16,
    /// The previous link count of the root, when the directory is new.
    links: Option<u32>,
    /// The length of the directory in bytes.
    directory: u32,
    /// The continuation areas of the root's records, when the root must move.
    moved: Option<Areas>,
    /// The identifiers of the files in order, with their indices.
    files: Vec<(Vec<u8>, usize)>,
    places: Places,
}

#[derive(Clone, Copy, Default)]
struct Places {
    l_table: u32,
    m_table: u32,
    root: u32,
    root_length: u32,
    areas: u32,
    directory: u32,
}

impl Graft {
    /// Determines the place of the directory.
    pub(crate) fn prepare(
        mut tree: Tree,
        added: &Added<'_>,
        source: &Budget<'_>,
        overlay: &mut Overlay,
        notes: &mut Vec<SpliceNote>,
    ) -> Result<Graft, SpliceError> {
        let kind = tree.kind;
        let existing = find_existing(&tree, added.directory, source, overlay)?;
        let skip = tree.skip();
        let mut links = None;
        let directory = added.directory;
        let (entry, number) = match *existing {
            [_, ..] if added.existing == ExistingDirectory::Refuse => {
                return Err(SpliceError::Exists { directory: directory.to_owned(), tree: kind.name() });
            }
            [SameName { index: entry, by_all: true }] => {
                retire(&tree, entry, added.directory, source, overlay)?;
                notes.push(SpliceNote::DirectoryReplaced { tree: kind.name() });
                let number = tree.path_table.child(tree.records[entry].identifier());
                let rule = "the path table lists every directory of the root";
                (entry, number.ok_or(ReadError::Invalid { offset: tree.root_offset, rule })?)
            }
            [_, ..] => {
                let reason = "some readers show other entries under this name; choose another directory";
                return Err(SpliceError::Replace { path: directory.to_owned(), tree: kind.name(), reason });
            }
            [] => {
                links = dialect::links(&tree.records[0], skip);
                insert(&mut tree, added, links)?
            }
        };
        let files = names::files(&added.names(), kind)?;
        for (identifier, index) in &files {
            let node = Node { directory: false, serial: 0, name: Some(added.files[*index].name) };
            expect_room(&tree, identifier, &node)?;
        }
        let places = Places::default();
        let mut graft = Graft { tree, entry, number, links, directory: 0, moved: None, files, places };
        let bytes = graft.directory_bytes(added).len();
        // At most 1000 records of 254 bytes.
        graft.directory = u32::try_from(bytes).unwrap_or(u32::MAX);
        let root = u32::try_from(graft.root_bytes().len()).map_err(|_| SpliceError::TooManySectors)?;
        if root <= graft.tree.root_length {
            let sector = graft.tree.root_offset / SECTOR_SIZE;
            graft.places.root = u32::try_from(sector).map_err(|_| SpliceError::TooManySectors)?;
            graft.places.root_length = graft.tree.root_length;
        } else {
            graft.places.root_length = root;
            graft.moved = Some(match graft.tree.rock_ridge {
                Some(_) => Areas::take(&graft.tree.records, skip, source, overlay)?,
                None => Areas::default(),
            });
        }
        Ok(graft)
    }

    /// Reserves sectors for the new structures.
    pub(crate) fn place(&mut self, next: &mut Cursor) -> Result<(), SpliceError> {
        let table = u64::from(self.tree.path_table.size());
        self.places.l_table = next.take(table)?;
        self.places.m_table = next.take(table)?;
        if let Some(areas) = &self.moved {
            self.places.root = next.take(self.places.root_length.into())?;
            self.places.areas = next.take(areas.len())?;
        }
        self.places.directory = next.take(self.directory.into())?;
        Ok(())
    }

    /// Applies the changes. Returns the new pieces in order.
    pub(crate) fn apply(
        mut self,
        added: &Added<'_>,
        sectors: u32,
        source: &Budget<'_>,
        overlay: &mut Overlay,
        notes: &mut Vec<SpliceNote>,
    ) -> Result<Vec<NewPiece>, SpliceError> {
        let Places { l_table, m_table, root, root_length, areas, directory } = self.places;
        for record in &mut self.tree.records[..2] {
            record.lead_to(root, root_length);
        }
        let entry = &mut self.tree.records[self.entry];
        entry.lead_to(directory, self.directory);
        entry.set_date(added.date);
        self.tree.path_table.place(path_table::ROOT, root);
        self.tree.path_table.place(self.number, directory);

        let hierarchy = self.tree.kind.hierarchy();
        let at = |sector: u32| u64::from(sector) * SECTOR_SIZE;
        let (little, big) = self.tree.path_table.to_bytes();
        let mut pieces = vec![
            NewPiece::bytes(at(l_table), Part::PathTableL(hierarchy), little),
            NewPiece::bytes(at(m_table), Part::PathTableM(hierarchy), big),
        ];
        let of_root = Part::Directory(hierarchy, path_table::ROOT.into());
        match self.moved.take() {
            Some(moved) => {
                let moved = moved.link(areas, &mut self.tree.records);
                overlay.zero(self.tree.root_offset, self.tree.root_length.into())?;
                pieces.push(NewPiece::bytes(at(root), of_root, self.root_bytes()));
                pieces.push(NewPiece::bytes(at(areas), Part::Continuation, moved));
                notes.push(SpliceNote::RootMoved { tree: self.tree.kind.name() });
                self.patch_children(source, overlay)?;
            }
            None => {
                let mut bytes = self.root_bytes();
                bytes.resize(bytes.len().max(root_length as usize), 0);
                overlay.replace(self.tree.root_offset, bytes, of_root)?;
                if self.links.is_some() {
                    self.patch_children(source, overlay)?;
                }
            }
        }
        self.patch_descriptors(sectors, overlay, notes)?;
        let of_directory = Part::Directory(hierarchy, self.number.into());
        pieces.push(NewPiece::bytes(at(directory), of_directory, self.directory_bytes(added)));
        pieces.retain(|piece| piece.len() > 0);
        Ok(pieces)
    }

    fn root_bytes(&self) -> Vec<u8> {
        records::pack(self.tree.records.iter().map(|record| record.bytes.as_slice()))
    }

    /// Returns the sectors of the directory.
    fn directory_bytes(&self, added: &Added<'_>) -> Vec<u8> {
        let date = added.date;
        let dialect = self.tree.rock_ridge;
        let own = Node { directory: true, serial: added.serial(0), name: None };
        let heads = [
            (self.places.directory, self.directory, SELF, dialect.map(|dialect| dialect.area(&own, date))),
            (
                self.places.root,
                self.places.root_length,
                PARENT,
                dialect.map(|dialect| dialect.parent_area(&self.tree.records[0])),
            ),
        ];
        let mut all: Vec<Vec<u8>> = heads
            .into_iter()
            .map(|(extent, data_length, identifier, area)| {
                NewRecord { extent, data_length, date, flags: DIRECTORY, identifier }
                    .to_bytes(&area.unwrap_or_default())
            })
            .collect();
        all.extend(self.files.iter().map(|(identifier, index)| {
            let file = &added.files[*index];
            let node = Node { directory: false, serial: added.serial(index + 1), name: Some(file.name) };
            let area = dialect.map(|dialect| dialect.area(&node, date)).unwrap_or_default();
            NewRecord { extent: file.sector, data_length: file.length, date, flags: 0, identifier }
                .to_bytes(&area)
        }));
        records::pack(all.iter().map(Vec::as_slice))
    }

    /// Updates the records that the root's children have of their parent.
    fn patch_children(&self, source: &Budget<'_>, overlay: &mut Overlay) -> Result<(), SpliceError> {
        let Places { root, root_length, .. } = self.places;
        let children = self.tree.records.iter().enumerate().skip(2);
        for (_, child) in children.filter(|(index, child)| *index != self.entry && child.is_directory()) {
            let offset = child.data_offset;
            if overlay.replaced(offset).is_none() {
                let sector = source.sector(offset, "a directory lies inside the image")?;
                overlay.replace(offset, sector.to_vec(), self.part_at(offset))?;
            }
            let Some(sector) = overlay.replaced(offset) else { continue };
            let mut parent = records::parent(sector, offset)?;
            if parent.data_offset == self.tree.root_offset {
                parent.lead_to(root, root_length);
                dialect::add_link(&mut parent, self.tree.skip(), self.links);
                let at = usize::from(sector[0]);
                put(sector, at, &parent.bytes);
            }
        }
        Ok(())
    }

    fn patch_descriptors(
        &mut self,
        sectors: u32,
        overlay: &mut Overlay,
        notes: &mut Vec<SpliceNote>,
    ) -> Result<(), SpliceError> {
        let Places { l_table, m_table, root, root_length, .. } = self.places;
        for descriptor in &mut self.tree.descriptors {
            for (offset, length) in descriptor.path_tables()? {
                overlay.zero(offset, length)?;
            }
            let sector = &mut descriptor.sector;
            put(sector, 80, &both_u32(sectors));
            put(sector, 132, &both_u32(self.tree.path_table.size()));
            put(sector, 140, &[l_table.to_le_bytes(), [0; 4]].concat());
            put(sector, 148, &[m_table.to_be_bytes(), [0; 4]].concat());
            put(sector, 158, &both_u32(root));
            put(sector, 166, &both_u32(root_length));
            let application = &mut sector[APPLICATION_USE];
            if application.windows(MEDIA_CHECK.len()).any(|window| window == MEDIA_CHECK) {
                application.fill(b' ');
                notes.push(SpliceNote::MediaCheckBlanked);
            }
            let part = Part::VolumeDescriptor(descriptor.kind.hierarchy());
            overlay.replace(descriptor.offset, sector.to_vec(), part)?;
        }
        Ok(())
    }

    /// Returns the part of the directory at byte `offset`.
    pub(crate) fn part_at(&self, offset: u64) -> Part {
        let sector = u32::try_from(offset / SECTOR_SIZE).unwrap_or(u32::MAX);
        let number = self.tree.path_table.number_at(sector).unwrap_or(0);
        Part::Directory(self.tree.kind.hierarchy(), number.into())
    }
}

impl Tree {
    /// Returns the number of bytes before the Rock Ridge entries of a record.
    pub(crate) fn skip(&self) -> usize {
        self.rock_ridge.map_or(0, |dialect| dialect.skip)
    }
}

impl TreeKind {
    /// Returns the hierarchy for the segments of the plan.
    pub(crate) fn hierarchy(self) -> Hierarchy {
        match self {
            TreeKind::Primary => Hierarchy::Primary,
            TreeKind::Joliet => Hierarchy::Joliet,
            TreeKind::Enhanced => Hierarchy::Enhanced,
        }
    }
}

/// A record of the root that at least one reader shows under the name of the directory.
#[derive(Clone, Copy, Debug)]
struct SameName {
    index: usize,
    /// Whether every reader does, by identifier and by Rock Ridge name.
    by_all: bool,
}

/// Returns the records of the root that readers show under the name of the directory. Directories to which relocation
/// records of the root point are protected from zeroing.
fn find_existing(
    tree: &Tree,
    name: &str,
    source: &Budget<'_>,
    overlay: &mut Overlay,
) -> Result<Vec<SameName>, SpliceError> {
    let mut found = Vec::new();
    for (index, record) in tree.records.iter().enumerate().skip(2) {
        let identified = names::is_called(record.identifier(), name, tree.kind);
        let (mut named, mut elsewhere) = (identified, false);
        if tree.rock_ridge.is_some() {
            let area = record.system_use().get(tree.skip()..).unwrap_or_default();
            let attributes =
                rockridge::parse(source, area, record.offset).map_err(|error| source.error(error))?;
            if let Some(block) = attributes.relocated_to {
                overlay.protect(u64::from(block) * SECTOR_SIZE);
            }
            elsewhere = attributes.relocated || attributes.relocated_to.is_some();
            if !attributes.name.is_empty() {
                named = attributes.name == name.as_bytes();
            }
        }
        if identified || named {
            found.push(SameName { index, by_all: identified && named && !elsewhere });
        }
    }
    Ok(found)
}

/// A record has a length of one byte, and the skip length of the original determines the space for attributes.
fn expect_room(tree: &Tree, identifier: &[u8], node: &Node<'_>) -> Result<(), SpliceError> {
    let area = tree.rock_ridge.map_or(0, |dialect| dialect.area(node, [0; 7]).len());
    if base_length(identifier.len()) + area <= MAX_LENGTH {
        return Ok(());
    }
    let what = "bytes in the record of an added file, because of the skip length in the SP entry";
    Err(SpliceError::Limit { what, limit: MAX_LENGTH as u64 })
}

/// Adds a record for the directory to the root, increases its link count to `links` + 1, and adds a path table row.
/// Returns the index of the record and the number of the directory.
fn insert(tree: &mut Tree, added: &Added<'_>, links: Option<u32>) -> Result<(usize, u16), SpliceError> {
    let (kind, skip, date) = (tree.kind, tree.skip(), added.date);
    let identifier = names::directory(added.directory, kind)?;
    let node = Node { directory: true, serial: added.serial(0), name: Some(added.directory) };
    expect_room(tree, &identifier, &node)?;
    let area = tree.rock_ridge.map(|dialect| dialect.area(&node, date)).unwrap_or_default();
    let record = NewRecord { extent: 0, data_length: 0, date, flags: DIRECTORY, identifier: &identifier }
        .to_bytes(&area);
    let entry = records::place(&tree.records, &identifier, kind);
    tree.records.insert(entry, RawRecord::parse(&record, 0)?);
    for record in &mut tree.records[..2] {
        dialect::add_link(record, skip, links);
    }
    Ok((entry, tree.path_table.insert(&identifier, kind.name())?))
}

/// Zeroes a directory that is to be replaced.
fn retire(
    tree: &Tree,
    entry: usize,
    directory: &str,
    source: &Budget<'_>,
    overlay: &mut Overlay,
) -> Result<(), SpliceError> {
    let record = &tree.records[entry];
    let refuse = |reason| {
        let (path, tree) = (directory.to_owned(), tree.kind.name());
        Err(SpliceError::Replace { path, tree, reason })
    };
    if !record.is_directory() || record.is_odd() {
        return refuse("it is a file in the image; choose another directory");
    }
    let (offset, length) = (record.data_offset, u64::from(record.data_length));
    let bytes = source.bytes(offset, length, "a directory lies inside the image")?;
    if records::split(&bytes, offset)?.iter().skip(2).any(RawRecord::is_directory) {
        return refuse("its subdirectories would be lost; choose another directory");
    }
    overlay.zero(offset, length)
}
