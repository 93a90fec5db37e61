//! Layout: the first sector of every structure and file.
//!
//! ```text
//! 16 primary | 17 boot record | Joliet | enhanced | terminator | L, M of each hierarchy | directories of each hierarchy
//! | ER | boot catalog | files in order, shared contents once | zeros
//!
//! a directory: | records | its continuation area, if names or targets do not fit into the records |
//! ```
//!
//! A continuation area is directly after its directory, because libarchive reads it only there. If only the ER entry of
//! the root overflows, it comes after all directories instead, because readers need it only once.
//!
//! Directories are rendered twice: first with addresses of zero to measure them, then by `emit` with the real
//! addresses. Sizes do not depend on addresses, so one function determines both content and size of a directory. All
//! arithmetic on sectors is checked against 32 bits.

use crate::SECTOR_SIZE;
use crate::ecma119::date::Date;
use crate::ecma119::{FIRST_DESCRIPTOR, Hierarchy, record};
use crate::eltorito::NewEntry;
use crate::error::PlanError;
use crate::options::{ImageOptions, InterchangeLevel};

use super::boot::{BootFile, boot_entries};
use super::emit::Renderer;
use super::hierarchy::Named;
use super::hybrid;
use super::order::{Child, Nodes};

/// The longest text of a Joliet field of 128 bytes.
const TEXT_LIMIT: usize = 64;
/// The longest volume identifier of the primary descriptor.
const VOLUME_ID_LIMIT: usize = 32;

/// The addresses of a hierarchy.
pub(crate) struct Addressed {
    pub(crate) named: Named,
    pub(crate) descriptor: u32,
    pub(crate) path_table_size: u32,
    pub(crate) l_table: u32,
    pub(crate) m_table: u32,
    /// The location of each directory in [`Named::directories`].
    pub(crate) extents: Vec<DirectoryExtent>,
}

/// The location of a directory.
#[derive(Clone, Copy, Default)]
pub(crate) struct DirectoryExtent {
    pub(crate) sector: u32,
    pub(crate) length: u32,
    /// The length of the continuation area directly after the directory.
    pub(crate) continuation: u32,
}

/// All addresses of an image.
pub(crate) struct Layout {
    pub(crate) date: Date,
    pub(crate) hierarchies: Vec<Addressed>,
    pub(crate) boot_record: Option<u32>,
    pub(crate) terminator: u32,
    /// The first sector and the length of the root's continuation area, if it has only the ER entry; otherwise the
    /// length is 0.
    pub(crate) er_area: u32,
    pub(crate) er_area_length: u32,
    pub(crate) catalog: Option<(u32, Vec<NewEntry>)>,
    /// The first sector after the metadata.
    pub(crate) data: u32,
    /// The first sector of each file; that of an empty file is `data`. Files that share a content have one address.
    pub(crate) files: Vec<u32>,
    /// The size of the image.
    pub(crate) sectors: u32,
}

impl Layout {
    /// Assigns all addresses.
    pub(crate) fn new(nodes: &Nodes, options: &ImageOptions, boot: &[BootFile]) -> Result<Layout, PlanError> {
        check_texts(options)?;
        check_lengths(nodes, options.level)?;
        let date = Date::from_epoch(options.epoch).ok_or(PlanError::Epoch { epoch: options.epoch })?;

        let mut kinds = vec![Hierarchy::Primary];
        kinds.extend(options.joliet.then_some(Hierarchy::Joliet));
        kinds.extend(options.enhanced.then_some(Hierarchy::Enhanced));
        let mut next = Cursor(FIRST_DESCRIPTOR);
        let mut hierarchies = Vec::with_capacity(kinds.len());
        let mut boot_record = None;
        for kind in kinds {
            let named = Named::new(nodes, kind, options)?;
            let extents = vec![DirectoryExtent::default(); named.directories.len()];
            let descriptor = next.take(SECTOR_SIZE, String::new)?;
            if kind == Hierarchy::Primary && !boot.is_empty() {
                // El Torito 2.0 requires sector 17.
                boot_record = Some(next.take(SECTOR_SIZE, String::new)?);
            }
            hierarchies.push(Addressed {
                named,
                descriptor,
                path_table_size: 0,
                l_table: 0,
                m_table: 0,
                extents,
            });
        }
        let terminator = next.take(SECTOR_SIZE, String::new)?;

        let mut layout = Layout {
            date,
            hierarchies,
            boot_record,
            terminator,
            er_area: 0,
            er_area_length: 0,
            catalog: None,
            data: 0,
            files: vec![0; nodes.files.len()],
            sectors: 0,
        };
        layout.measure(nodes, options)?;
        layout.place_hierarchies(nodes, &mut next)?;
        layout.er_area = next.take(u64::from(layout.er_area_length), String::new)?;
        let catalog = if boot.is_empty() { None } else { Some(next.take(SECTOR_SIZE, String::new)?) };
        layout.place_files(nodes, options, &mut next)?;
        layout.catalog = catalog.map(|sector| (sector, boot_entries(nodes, boot, &layout.files)));
        Ok(layout)
    }

    /// Measures the directories and their continuation areas.
    fn measure(&mut self, nodes: &Nodes, options: &ImageOptions) -> Result<(), PlanError> {
        let mut measured = Vec::with_capacity(self.hierarchies.len());
        let mut er_area_length = 0;
        let renderer = Renderer::new(nodes, options, self);
        for addressed in &self.hierarchies {
            let mut of_hierarchy = Vec::with_capacity(addressed.extents.len());
            for (index, directory) in addressed.named.directories.iter().enumerate() {
                let rendered = renderer.directory(addressed, index)?;
                let length = |bytes: &[u8]| {
                    let too_large = |_| PlanError::TooLarge { path: path_of(nodes, directory.node) };
                    u32::try_from(bytes.len()).map_err(too_large)
                };
                let (sector, length, mut continuation) =
                    (0, length(&rendered.records)?, length(&rendered.continuation)?);
                if rendered.announces_only {
                    er_area_length = std::mem::take(&mut continuation);
                }
                of_hierarchy.push(DirectoryExtent { sector, length, continuation });
            }
            measured.push(of_hierarchy);
        }
        self.er_area_length = er_area_length;
        for (addressed, extents) in self.hierarchies.iter_mut().zip(measured) {
            addressed.extents = extents;
            let sizes = addressed
                .named
                .directories
                .iter()
                .map(|directory| directory.identifier.len().next_multiple_of(2) + 8);
            // At most 65,535 directories of at most 216 bytes each.
            addressed.path_table_size = u32::try_from(sizes.sum::<usize>()).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    fn place_hierarchies(&mut self, nodes: &Nodes, next: &mut Cursor) -> Result<(), PlanError> {
        for addressed in &mut self.hierarchies {
            addressed.l_table = next.take(u64::from(addressed.path_table_size), String::new)?;
            addressed.m_table = next.take(u64::from(addressed.path_table_size), String::new)?;
        }
        for addressed in &mut self.hierarchies {
            for index in addressed.named.placement(nodes) {
                let extent = &mut addressed.extents[index];
                let directory = &addressed.named.directories[index];
                let path = || path_of(nodes, directory.node);
                extent.sector = next.take(u64::from(extent.length), path)?;
                next.take(u64::from(extent.continuation), path)?;
            }
        }
        Ok(())
    }

    fn place_files(
        &mut self,
        nodes: &Nodes,
        options: &ImageOptions,
        next: &mut Cursor,
    ) -> Result<(), PlanError> {
        self.data = next.0;
        for (index, file) in nodes.files.iter().enumerate() {
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            let owner = nodes.owner(number);
            self.files[index] = match file.len {
                // The address of an empty file has no meaning, but a sector that exists is safe for every reader.
                0 => self.data,
                _ if owner != number => self.files[owner as usize],
                len => next.take(len, || nodes.path(Child::File(number)))?,
            };
        }
        let floor = u32::try_from(options.min_size.div_ceil(SECTOR_SIZE));
        let floor = floor.map_err(|_| PlanError::TooLarge { path: String::new() })?;
        // At least one sector follows, so the address of an empty file is inside the image.
        let used = if next.0 == self.data { next.0.saturating_add(1) } else { next.0 };
        self.sectors = match options.hybrid {
            None => used.max(floor),
            Some(_) => hybrid::sectors(used, floor).ok_or(PlanError::TooLarge { path: String::new() })?,
        };
        Ok(())
    }
}

/// The next free sector.
struct Cursor(u32);

impl Cursor {
    /// Reserves the sectors for `length` bytes and returns the first one. `path` is for the error.
    fn take(&mut self, length: u64, path: impl FnOnce() -> String) -> Result<u32, PlanError> {
        let first = self.0;
        let end =
            u32::try_from(length.div_ceil(SECTOR_SIZE)).ok().and_then(|sectors| first.checked_add(sectors));
        match end {
            Some(end) => {
                self.0 = end;
                Ok(first)
            }
            None => Err(PlanError::TooLarge { path: path() }),
        }
    }
}

/// Returns the path of a directory of a hierarchy.
fn path_of(nodes: &Nodes, node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| nodes.path(Child::Directory(node)))
}

/// Checks that no single file ends after the last sector, so its number of records is small, and that each file has the
/// sections that the level allows.
fn check_lengths(nodes: &Nodes, level: InterchangeLevel) -> Result<(), PlanError> {
    for (file, number) in nodes.files.iter().zip(0..) {
        if file.len > u64::from(u32::MAX) * SECTOR_SIZE {
            return Err(PlanError::TooLarge { path: nodes.path(Child::File(number)) });
        }
        if level != InterchangeLevel::Three && sections(0, file.len).count() > 1 {
            let path = nodes.path(Child::File(number));
            return Err(PlanError::NeedsLevelThree { path, length: file.len });
        }
    }
    Ok(())
}

/// Checks the texts of the descriptors: they must be legal in all descriptors, so none is truncated or replaced
/// silently.
fn check_texts(options: &ImageOptions) -> Result<(), PlanError> {
    let error = |field, value: &str, rule| Err(PlanError::Text { field, value: value.to_owned(), rule });
    let volume_id = &options.volume_id;
    if volume_id.is_empty() || volume_id.len() > VOLUME_ID_LIMIT {
        return error("volume_id", volume_id, "it must have 1 to 32 characters");
    }
    // More than the d-characters of 8.4.7: installers look for labels such as `cidata` and `config-2`.
    if !volume_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)) {
        return error("volume_id", volume_id, "only A-Z a-z 0-9 _ - . are allowed");
    }
    let fields = [
        ("publisher", &options.publisher),
        ("preparer", &options.preparer),
        ("application", &options.application),
    ];
    for (field, value) in fields {
        if value.len() > TEXT_LIMIT {
            return error(field, value, "it must have at most 64 characters");
        }
        let legal = |byte: u8| {
            byte.is_ascii_uppercase() || byte.is_ascii_digit() || b" !\"%&'()+,-._<=>".contains(&byte)
        };
        if !value.bytes().all(legal) {
            return error(field, value, "only A-Z 0-9 space ! \" % & ' ( ) + , - . _ < = > are allowed");
        }
    }
    Ok(())
}

/// Returns the sections of a file: each length has 32 bits, and all sections but the last are whole sectors (6.5.1).
pub(crate) fn sections(sector: u32, len: u64) -> impl Iterator<Item = (u32, u32, u8)> {
    const LONGEST: u32 = u32::MAX - (SECTOR_SIZE as u32 - 1);
    let count = len.div_ceil(u64::from(LONGEST)).max(1);
    (0..count).map(move |index| {
        let skipped = index * u64::from(LONGEST);
        let length = (len - skipped).min(u64::from(LONGEST));
        let flags = if index + 1 == count { 0 } else { record::NOT_FINAL };
        // The cursor has checked the last sector of the file.
        let sector = u64::from(sector) + skipped / SECTOR_SIZE;
        (u32::try_from(sector).unwrap_or(u32::MAX), u32::try_from(length).unwrap_or(u32::MAX), flags)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_over_four_gibibytes_takes_sections_of_whole_sectors() {
        let all: Vec<_> = sections(33, 4_831_838_208).collect();
        assert_eq!(all, [(33, 4_294_965_248, 0x80), (33 + 2_097_151, 536_872_960, 0)]);
        assert_eq!(sections(9, 0).collect::<Vec<_>>(), [(9, 0, 0)]);
        assert_eq!(sections(9, 4_294_965_248).count(), 1);
        assert_eq!(sections(9, 4_294_965_249).count(), 2);
    }
}
