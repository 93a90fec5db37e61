//! Entries: the attributes of a file, for every namespace.

use std::borrow::Cow;

use crate::escape::unescape;
use crate::runs::{Run, Runs};
use crate::zisofs;

/// The file type bits of a POSIX mode, and the known types.
pub(crate) const TYPE_MASK: u32 = 0o170_000;
pub(crate) const TYPE_FILE: u32 = 0o100_000;
pub(crate) const TYPE_DIRECTORY: u32 = 0o040_000;
pub(crate) const TYPE_SYMLINK: u32 = 0o120_000;

/// A contiguous range of an image, in bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// The offset from the start of the image.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

/// The type of an entry.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link to this target. Bytes that are not UTF-8 and control characters are escaped as in a name.
    Symlink(String),
    /// A device, a pipe or a socket.
    Other,
}

/// The relation between a file's bytes and its extents.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Storage {
    /// The bytes of the extents, concatenated.
    #[default]
    Plain,
    /// The bytes of the extents, with zeros between them.
    Sparse(Box<Runs>),
    /// The decompressed bytes of the extents.
    Zisofs(zisofs::Parameters),
}

/// A named child of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The name as text, by which [`super::Image::lookup`] finds the entry. Bytes that are not UTF-8, control characters
    /// and `/` are escaped, such as `caf\xE9`: see [`crate::escape_name`]. If a directory has several versions of one
    /// file, the first has the name alone, and the others end with their version, such as `a.txt;1`.
    pub name: String,
    /// The version of the file, if its name comes from an identifier of ISO 9660 or Joliet that has one.
    pub version: Option<u16>,
    /// The type.
    pub kind: EntryKind,
    /// The number of bytes of a file.
    pub len: u64,
    /// The modification time in seconds since 1970, if the entry has a valid date.
    pub modified: Option<i64>,
    /// The POSIX mode, if Rock Ridge or UDF provides it.
    pub mode: Option<u32>,
    /// The extents that the records claim; [`super::Image::open_file`] checks them.
    pub extents: Vec<Extent>,
    pub(crate) storage: Storage,
}

impl Entry {
    /// Returns whether the entry is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Returns whether the entry is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// Returns whether the bytes of the file are those of its extents, concatenated. They differ when the file is
    /// compressed with zisofs or has holes; [`super::Image::open_file`] reads such files too.
    pub fn is_stored(&self) -> bool {
        self.storage == Storage::Plain
    }

    /// Returns the bytes of the name in the image: those of the name in Rock Ridge, UTF-8 in the other namespaces.
    pub fn name_bytes(&self) -> Cow<'_, [u8]> {
        unescape(&self.name)
    }

    /// Returns an entry for the directory or file at an extent.
    pub(crate) fn at(name: &str, kind: EntryKind, extent: Extent) -> Entry {
        Entry {
            name: name.to_owned(),
            version: None,
            kind,
            len: extent.len,
            modified: None,
            mode: None,
            extents: vec![extent],
            storage: Storage::Plain,
        }
    }

    /// Sets the extents of the entry.
    pub(crate) fn set_runs(&mut self, runs: Runs) {
        let stored = |run: &Run| run.offset.map(|offset| Extent { offset, len: run.len });
        self.len = runs.len();
        self.extents = runs.as_slice().iter().filter_map(stored).collect();
        if self.extents.len() < runs.as_slice().len() {
            self.storage = Storage::Sparse(Box::new(runs));
        }
    }

    /// Returns the first extent, which identifies a directory. A directory of ISO 9660 has only one extent.
    pub(crate) fn first_extent(&self) -> Extent {
        self.extents.first().copied().unwrap_or(Extent { offset: 0, len: 0 })
    }

    /// Returns the approximate memory size in bytes.
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

/// Returns whether a text can be the name of an entry.
pub(crate) fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}
