//! Splice: adds a few files to an image by referencing the original's bytes.
//!
//! ```text
//! original  | system area | descriptors | path tables | root directories | directories | data ...        |
//!                |              |              |              |                |
//! new       |MBR,GPT grown| patched     | zeros       | one entry more   | same; `..`  | same ...          | added
//!                                                                          counts links                     |
//!   added:  for each tree: L table, M table, [root, when it had no room], /task | files | zeros | backup GPT <'
//! ```
//!
//! The original is read through [`ReadAt`], and only its descriptors, path tables, root directories, the first sectors
//! of their children and the partition tables: planning takes milliseconds and kilobytes for any size of image. The
//! plan references the original's bytes and does not copy them.
//!
//! Invariants: every tree (plain or Rock Ridge, Joliet, enhanced) shows the directory. No extent of the original moves,
//! so boot entries, boot info tables and hybrid boot code stay valid. Labels and dates of the volume stay unchanged,
//! because boot loaders search for them. Bytes that are no longer referenced are zeroed. Equal original, files and
//! options result in equal bytes. The original is treated as hostile: every read has a budget and every loop a bound.
//!
//! Refused, with the reason: a UDF tree beside ISO 9660 (Linux mounts UDF), trees in unknown character sets, images
//! shorter than their volume, overlapping structures, an existing directory.
//!
//! References: ECMA-119, Joliet, SUSP and RRIP as in the rest of the crate; partition tables in [`crate::partition`].

mod budget;
mod continuation;
mod dialect;
mod error;
mod graft;
mod hybrid;
mod names;
mod original;
mod overlay;
mod path_table;
mod records;
mod replace;
mod report;
mod tree_kind;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SECTOR_SIZE;
use crate::ecma119::date::Date;
use crate::eltorito::Platform;
use crate::error::{PlanError, ReadError};
use crate::plan::{ImagePlan, NewPiece};
use crate::source::ReadAt;
use crate::tree::{Content, Tree};

use budget::Budget;
use graft::Graft;
use hybrid::Disk;
use original::Original;
use overlay::Overlay;
use replace::Located;

pub use error::SpliceError;
pub use report::{PartitionTable, SpliceNote};

/// The longest file of one record: 32 bits of length in whole sectors.
const MAX_LENGTH: u64 = 0xFFFF_F800;

/// The options of a splice.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SpliceOptions {
    /// The directory below the root that receives the files.
    pub directory: String,
    /// The date of added entries, in seconds since 1970-01-01 00:00 UTC.
    pub epoch: i64,
    /// The handling of an existing directory of this name.
    pub existing: ExistingDirectory,
    /// Files of the image that get new contents: paths from the root, by their Rock Ridge or Joliet names.
    pub replace: Vec<(String, Content)>,
    /// The largest number of bytes of the original that planning may read.
    pub read_limit: u64,
}

/// The handling of an existing directory of the same name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ExistingDirectory {
    /// The existing directory is an error.
    #[default]
    Refuse,
    /// The new directory replaces the existing one, which must have no subdirectories.
    Replace,
}

impl SpliceOptions {
    /// 1 MiB: enough for thousands of directories. An image that needs more must be allowed explicitly.
    pub const READ_LIMIT: u64 = 1 << 20;

    /// Returns options for a new directory `task` and no replaced files.
    pub fn new(epoch: i64) -> SpliceOptions {
        SpliceOptions {
            directory: "task".to_owned(),
            epoch,
            existing: ExistingDirectory::Refuse,
            replace: Vec::new(),
            read_limit: SpliceOptions::READ_LIMIT,
        }
    }

    setters! {
        with_directory directory: impl Into<String>;
        with_existing existing: ExistingDirectory;
        with_replace replace: Vec<(String, Content)>;
        with_read_limit read_limit: u64;
    }
}

/// A planned splice.
#[derive(Debug)]
#[non_exhaustive]
pub struct Spliced {
    /// The new image.
    pub plan: ImagePlan,
    /// The other changes, and the differences that some readers see.
    pub notes: Vec<SpliceNote>,
    /// The number of bytes of the original that planning read.
    pub bytes_read: u64,
}

/// The planner of splices.
#[derive(Debug)]
pub struct Splice;

/// A file to be added.
struct File<'a> {
    name: &'a str,
    length: u32,
    sector: u32,
}

/// The values that every tree needs.
struct Added<'a> {
    directory: &'a str,
    existing: ExistingDirectory,
    date: [u8; 7],
    /// The first serial number that no entry of the original uses.
    first_serial: u32,
    /// The added files in the order of their names.
    files: Vec<File<'a>>,
    /// The replaced files of the original, in the order of their paths.
    replaced: Vec<File<'a>>,
}

impl Added<'_> {
    fn names(&self) -> Vec<&str> {
        self.files.iter().map(|file| file.name).collect()
    }

    /// Returns the serial number of a new entry. The original uses numbers from 1, or sector numbers, so it uses no
    /// number this large.
    fn serial(&self, index: usize) -> u32 {
        self.first_serial.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl Added<'_> {
    /// The sectors of all contents, by path.
    fn places(&self) -> BTreeMap<String, u32> {
        let files = self.files.iter().map(|file| (format!("{}/{}", self.directory, file.name), file.sector));
        let path = |file: &File<'_>| file.name.strip_prefix('/').unwrap_or(file.name).to_owned();
        files.chain(self.replaced.iter().map(|file| (path(file), file.sector))).collect()
    }
}

/// The next free sector.
struct Cursor(u32);

impl Cursor {
    /// Reserves the sectors for `length` bytes and returns the first one.
    fn take(&mut self, length: u64) -> Result<u32, SpliceError> {
        let first = self.0;
        let sectors = u32::try_from(length.div_ceil(SECTOR_SIZE)).ok();
        self.0 = sectors.and_then(|sectors| first.checked_add(sectors)).ok_or(SpliceError::TooManySectors)?;
        Ok(first)
    }
}

impl Splice {
    /// Plans an image with the original's files and the given ones in [`SpliceOptions::directory`].
    ///
    /// # Errors
    /// [`SpliceError`] when the original is invalid, unsupported or cannot be extended, or when a name or content
    /// cannot be represented.
    pub fn plan<N: AsRef<str>>(
        source: Arc<dyn ReadAt>,
        files: &[(N, Content)],
        options: &SpliceOptions,
    ) -> Result<Spliced, SpliceError> {
        names::check(&options.directory, files.iter().map(|(name, _)| name.as_ref()))?;
        let date = Date::from_epoch(options.epoch).ok_or(PlanError::Epoch { epoch: options.epoch })?.record();
        let contents = contents(files, options)?;
        let directory = options.directory.as_str();
        let files = sorted(files.iter().map(|(name, content)| file(name.as_ref(), content, directory)))?;
        let replaced = sorted(options.replace.iter().map(|(path, content)| file(path, content, "")))?;

        let budget = Budget::new(&*source, options.read_limit);
        let mut notes = Vec::new();
        let original = Original::read(&budget)?;
        let disk = Disk::read(&budget, &mut notes)?;
        let mut overlay = Overlay::new(source.len());
        note_boot(&original, &mut overlay, &mut notes);
        for tag in &original.tags {
            overlay.zero(*tag, SECTOR_SIZE)?;
        }
        if !original.tags.is_empty() {
            notes.push(SpliceNote::ChecksumTagsBlanked);
        }

        let mut cursor = Cursor(0);
        cursor.take(source.len())?;
        let added =
            Added { directory, existing: options.existing, date, first_serial: cursor.0, files, replaced };
        let new = Change { added, cursor, disk, budget: &budget, overlay: &mut overlay, notes: &mut notes }
            .make(original)?;
        notes.push(SpliceNote::OrphansZeroed { bytes: overlay.zeroed() });

        let mut pieces =
            overlay.pieces(&source).map_err(|source| ReadError::Io { offset: 0, length: 0, source })?;
        pieces.extend(new.pieces);
        let place = |path: &str| new.places.get(path).copied().unwrap_or(0);
        let plan = ImagePlan::assembled(&contents, pieces, place, new.backup, new.len)?;
        Ok(Spliced { plan, notes, bytes_read: budget.used() })
    }
}

/// The state of a splice during planning.
struct Change<'a, 'b> {
    added: Added<'a>,
    cursor: Cursor,
    disk: Disk,
    budget: &'b Budget<'b>,
    overlay: &'b mut Overlay,
    notes: &'b mut Vec<SpliceNote>,
}

/// The pieces after the original.
struct New {
    pieces: Vec<NewPiece>,
    /// The sectors of the files, by path.
    places: BTreeMap<String, u32>,
    backup: Option<NewPiece>,
    /// The length of the image.
    len: u64,
}

impl Change<'_, '_> {
    fn make(mut self, original: Original) -> Result<New, SpliceError> {
        let budget = self.budget;
        let located: Vec<Vec<Located>> = (self.added.replaced.iter())
            .map(|file| replace::locate(&original, file.name, budget))
            .collect::<Result<_, _>>()?;
        let mut grafts: Vec<Graft> = (original.trees.into_iter())
            .map(|tree| Graft::prepare(tree, &self.added, self.budget, self.overlay, self.notes))
            .collect::<Result<_, _>>()?;
        for graft in &mut grafts {
            graft.place(&mut self.cursor)?;
        }
        for file in self.added.files.iter_mut().chain(&mut self.added.replaced) {
            file.sector = self.cursor.take(file.length.into())?;
        }
        // A sector of zeros follows, so the address of an empty file is inside the volume.
        self.cursor.take(1)?;
        let end = u64::from(self.cursor.0) * SECTOR_SIZE;
        let len = self.disk.image_len(end);
        let sectors = u32::try_from(len / SECTOR_SIZE).map_err(|_| SpliceError::TooManySectors)?;

        for (file, located) in self.added.replaced.iter().zip(&located) {
            self.notes.push(SpliceNote::FileReplaced { path: file.name.to_owned() });
            for (graft, located) in grafts.iter_mut().zip(located) {
                replace::apply(graft, located, file, self.added.date, self.budget, self.overlay)?;
            }
        }
        let mut pieces: Vec<NewPiece> = Vec::new();
        for graft in grafts {
            pieces.extend(graft.apply(&self.added, sectors, self.budget, self.overlay, self.notes)?);
        }
        let backup = self.disk.grow(end, len, self.overlay, self.notes)?;
        Ok(New { pieces, places: self.added.places(), backup, len })
    }
}

/// Protects the sectors that firmware reads, and reports El Torito images without a length.
fn note_boot(original: &Original, overlay: &mut Overlay, notes: &mut Vec<SpliceNote>) {
    let Some((catalog, entries)) = &original.boot else { return };
    overlay.protect(*catalog);
    for (number, entry) in entries.iter().enumerate() {
        if entry.platform == Platform::Efi && entry.units < 2 {
            notes.push(SpliceNote::BootImageReachesFurther { number });
        }
    }
}

/// Returns the contents as a tree, which checks the paths too.
fn contents<N: AsRef<str>>(files: &[(N, Content)], options: &SpliceOptions) -> Result<Tree, SpliceError> {
    let mut tree = Tree::new();
    for (name, content) in files {
        tree.add_file(&format!("{}/{}", options.directory, name.as_ref()), content.clone())?;
    }
    for (path, content) in &options.replace {
        tree.add_file(path, content.clone())?;
    }
    Ok(tree)
}

fn file<'a>(name: &'a str, content: &Content, directory: &str) -> Result<File<'a>, SpliceError> {
    let length = content.len();
    match u32::try_from(length) {
        Ok(small) if length <= MAX_LENGTH => Ok(File { name, length: small, sector: 0 }),
        _ => Err(SpliceError::TooLarge { path: format!("{directory}/{name}"), length, limit: MAX_LENGTH }),
    }
}

fn sorted<'a>(
    files: impl Iterator<Item = Result<File<'a>, SpliceError>>,
) -> Result<Vec<File<'a>>, SpliceError> {
    let mut files: Vec<File<'a>> = files.collect::<Result<_, _>>()?;
    files.sort_by_key(|file| file.name);
    Ok(files)
}
