//! Splice: an image with a few files more, made of the original's bytes and a little that is new.
//!
//! ```text
//! original  | system area | descriptors | path tables | root directories | directories | data ...        |
//!                |              |              |              |                |
//! new       |MBR,GPT grown| patched     | zeros       | one entry more   | same; `..`  | same ...          | added
//!                                                                          counts links                     |
//!   added:  for each tree: L table, M table, [root, when it had no room], /task | files | zeros | backup GPT <'
//! ```
//!
//! The original is seen through [`ReadAt`] only, and of it only the descriptors, path tables, root directories, the first
//! sectors of their children and the partition tables: planning costs milliseconds and kilobytes, whatever its size. Its
//! bytes are referenced by the plan, never copied.
//!
//! Invariants: every tree (plain or Rock Ridge, Joliet, enhanced) shows the directory; no extent of the original moves,
//! so boot entries, boot info tables and hybrid boot code stay valid; labels and dates of the volume stay, because boot
//! loaders search for them; what nothing leads to any more is zero. The same original, files and options give the same
//! bytes. The original is hostile until shown otherwise: all reading is budgeted, every loop bounded.
//!
//! Refused, with the reason: a UDF tree beside ISO 9660 (Linux mounts that one), trees in unknown character sets, images
//! that are shorter than they claim, structures that lie over each other, a directory that is there already.
//!
//! ECMA-119, Joliet, SUSP and RRIP as elsewhere; partition tables in [`crate::partition`].

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

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SECTOR_SIZE;
use crate::ecma119::date::Date;
use crate::eltorito::Platform;
use crate::error::{PlanError, ReadError};
use crate::plan::{NewPiece, ImagePlan};
use crate::source::ReadAt;
use crate::tree::{Content, Tree};

use budget::Budget;
use graft::Graft;
use hybrid::Disk;
use original::Original;
use overlay::Overlay;
use replace::Located;

pub use error::SpliceError;
pub use report::{SpliceNote, PartitionTable};

/// The longest file that one record can describe: 32 bits of length in whole sectors.
const MAX_LENGTH: u64 = 0xFFFF_F800;

/// What decides a splice beside the original and the files.
#[derive(Clone, Debug)]
pub struct SpliceOptions {
    /// The directory of the root that the files are put into.
    pub directory: String,
    /// Seconds since 1970-01-01 00:00 UTC: the date of what is added.
    pub epoch: i64,
    /// What to do when the image has the directory already.
    pub existing: ExistingDirectory,
    /// Files of the image that get other contents: paths from the root, as Rock Ridge or Joliet name them.
    pub replace: Vec<(String, Content)>,
    /// The most bytes of the original that planning may read.
    pub read_limit: u64,
}

/// What to do when the image has the directory already.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ExistingDirectory {
    /// An error.
    #[default]
    Refuse,
    /// The new directory takes its place, if there are no directories in the old one.
    Replace,
}

impl SpliceOptions {
    /// 1 MiB: enough for thousands of directories; an image that needs more costs more to splice and must be meant.
    pub const READ_LIMIT: u64 = 1 << 20;

    /// A new directory `task`, nothing replaced.
    pub fn new(epoch: i64) -> SpliceOptions {
        SpliceOptions {
            directory: "task".to_owned(),
            epoch,
            existing: ExistingDirectory::Refuse,
            replace: Vec::new(),
            read_limit: SpliceOptions::READ_LIMIT,
        }
    }
}

/// A planned splice.
#[derive(Debug)]
pub struct Spliced {
    /// The new image.
    pub plan: ImagePlan,
    /// What was changed besides, and what others may see differently.
    pub notes: Vec<SpliceNote>,
    /// How many bytes of the original were read.
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

/// What is added to every tree.
struct Added<'a> {
    directory: &'a str,
    existing: ExistingDirectory,
    date: [u8; 7],
    /// Serial numbers from here on are of no entry of the original.
    first_serial: u32,
    /// In the order of their names.
    files: Vec<File<'a>>,
    /// Files of the original with new contents, in the order of their paths.
    replaced: Vec<File<'a>>,
}

impl Added<'_> {
    fn names(&self) -> Vec<&str> {
        self.files.iter().map(|file| file.name).collect()
    }

    /// The serial number of a new entry. The original counts its own from 1, or names sectors of its own: it cannot have
    /// come this far.
    fn serial(&self, index: usize) -> u32 {
        self.first_serial.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl Added<'_> {
    /// The sectors of all contents by their paths.
    fn places(&self) -> BTreeMap<String, u32> {
        let files = self.files.iter().map(|file| (format!("{}/{}", self.directory, file.name), file.sector));
        let path = |file: &File<'_>| file.name.strip_prefix('/').unwrap_or(file.name).to_owned();
        files.chain(self.replaced.iter().map(|file| (path(file), file.sector))).collect()
    }
}

/// The next free sector.
struct Cursor(u32);

impl Cursor {
    /// Takes as many sectors as `length` bytes need; answers the first.
    fn take(&mut self, length: u64) -> Result<u32, SpliceError> {
        let first = self.0;
        let sectors = u32::try_from(length.div_ceil(SECTOR_SIZE)).ok();
        self.0 = sectors.and_then(|sectors| first.checked_add(sectors)).ok_or(SpliceError::TooManySectors)?;
        Ok(first)
    }
}

impl Splice {
    /// Plans the image that has the original's files and those given, in [`SpliceOptions::directory`].
    ///
    /// # Errors
    /// When the original cannot be understood or extended, or a name or content cannot be written; see [`SpliceError`].
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

/// Everything a splice changes while it is planned.
struct Change<'a, 'b> {
    added: Added<'a>,
    cursor: Cursor,
    disk: Disk,
    budget: &'b Budget<'b>,
    overlay: &'b mut Overlay,
    notes: &'b mut Vec<SpliceNote>,
}

/// What comes behind the original.
struct New {
    pieces: Vec<NewPiece>,
    /// The sectors of the files by their paths.
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
        // A sector of zeros follows, so that the address of an empty file lies inside the volume.
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

/// Protects what firmware looks at and says which boot images have no end of their own.
fn note_boot(original: &Original, overlay: &mut Overlay, notes: &mut Vec<SpliceNote>) {
    let Some((catalog, entries)) = &original.boot else { return };
    overlay.protect(*catalog);
    for (number, entry) in entries.iter().enumerate() {
        if entry.platform == Platform::Efi && entry.units < 2 {
            notes.push(SpliceNote::BootImageReachesFurther { number });
        }
    }
}

/// The contents as a tree, which also checks the paths.
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
