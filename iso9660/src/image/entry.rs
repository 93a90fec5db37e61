//! Entries: what a namespace says about a file, whichever it is.

use crate::runs::{Run, Runs};
use crate::zisofs;

/// POSIX: the bits of a mode that say what kind of file it is, and the kinds known here.
pub(crate) const TYPE_MASK: u32 = 0o170_000;
pub(crate) const TYPE_FILE: u32 = 0o100_000;
pub(crate) const TYPE_DIRECTORY: u32 = 0o040_000;
pub(crate) const TYPE_SYMLINK: u32 = 0o120_000;

/// A contiguous range of an image, in bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// What an entry is.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(String),
    /// A device, a pipe or a socket.
    Other,
}

/// How the bytes of a file come out of its extents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Storage {
    /// They are those of the extents, one after another.
    #[default]
    Plain,
    /// Zeros stand between the extents.
    Sparse(Box<Runs>),
    /// The extents are compressed.
    Zisofs(zisofs::Parameters),
}

/// A child of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The name. `/`, NUL and control characters of a hostile image appear as U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// The number of bytes of a file.
    pub len: u64,
    /// Seconds since 1970, if there is a date.
    pub modified: Option<i64>,
    /// The POSIX mode, if Rock Ridge or UDF tells.
    pub mode: Option<u32>,
    /// Where the bytes are, as the records claim; [`super::Image::open_file`] checks it.
    pub extents: Vec<Extent>,
    pub(crate) storage: Storage,
}

impl Entry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// Whether the bytes of its extents, one after another, are its bytes. They are not when it is compressed with
    /// zisofs or has holes; [`super::Image::open_file`] reads it all the same.
    pub fn is_stored(&self) -> bool {
        self.storage == Storage::Plain
    }

    /// The directory or file at an extent.
    pub(crate) fn at(name: &str, kind: EntryKind, extent: Extent) -> Entry {
        Entry {
            name: name.to_owned(),
            kind,
            len: extent.len,
            modified: None,
            mode: None,
            extents: vec![extent],
            storage: Storage::Plain,
        }
    }

    /// Sets where the bytes are.
    pub(crate) fn set_runs(&mut self, runs: Runs) {
        let stored = |run: &Run| run.offset.map(|offset| Extent { offset, len: run.len });
        self.len = runs.len();
        self.extents = runs.as_slice().iter().filter_map(stored).collect();
        if self.extents.len() < runs.as_slice().len() {
            self.storage = Storage::Sparse(Box::new(runs));
        }
    }

    /// The first extent: of a directory of ISO 9660 the only one; of any directory what tells it apart.
    pub(crate) fn first_extent(&self) -> Extent {
        self.extents.first().copied().unwrap_or(Extent { offset: 0, len: 0 })
    }

    /// About how much memory it takes.
    pub(crate) fn footprint(&self) -> usize {
        let target = if let EntryKind::Symlink(target) = &self.kind { target.capacity() } else { 0 };
        let extents = self.extents.capacity() * size_of::<Extent>();
        let runs = match &self.storage {
            Storage::Sparse(runs) => runs.as_slice().len() * (size_of::<Run>() + size_of::<u64>()),
            Storage::Plain | Storage::Zisofs(_) => 0,
        };
        size_of::<Entry>() + self.name.capacity() + target + extents + runs
    }
}

/// Whether a name can be that of an entry, and the name as it is shown.
pub(crate) fn shown(name: &mut String) -> bool {
    // Printable ASCII is told apart quickly; it is nearly everything.
    let plain = name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/');
    if !plain && name.contains(|char: char| char == '/' || char.is_control()) {
        *name = name.replace(|char: char| char == '/' || char.is_control(), "\u{fffd}");
    }
    !matches!(name.as_str(), "" | "." | "..")
}
