//! One namespace of an image: its root, and how directories below it are read.
//!
//! ```text
//! Rock Ridge, Joliet, plain   a record is complete: a child is an entry
//! UDF                         a name points to a file entry elsewhere: read only for accepted names
//! ```

use crate::error::ReadError;
use crate::runs::{Run, Runs};
use crate::source::ReadAt;
use crate::udf::{FileEntry, FileKind, Identifier, Identifiers, Udf};

use super::directory::Root;
use super::entry::{TYPE_DIRECTORY, TYPE_FILE, TYPE_SYMLINK, is_name};
use super::iso::Entries;
use super::{Entry, EntryKind, Extent, Namespace, ReadLimits};

/// A namespace of an image.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) root: Entry,
    kind: ViewKind,
}

#[derive(Debug)]
enum ViewKind {
    Iso { namespace: Namespace, skip: usize },
    Udf(Box<Udf>),
}

/// A child of a directory, as far as it was read.
#[derive(Clone, Debug)]
pub(crate) enum Child {
    Entry(Entry),
    Udf(Identifier),
}

impl Child {
    /// Returns the version of the file, see [`Entry::version`].
    pub(crate) fn version(&self) -> Option<u16> {
        match self {
            Child::Entry(entry) => entry.version,
            Child::Udf(_) => None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Child::Entry(entry) => &entry.name,
            Child::Udf(identifier) => &identifier.name,
        }
    }

    /// Returns the approximate memory size in bytes.
    pub(crate) fn footprint(&self) -> usize {
        match self {
            Child::Entry(entry) => entry.footprint(),
            Child::Udf(identifier) => size_of::<Child>() + identifier.name.capacity(),
        }
    }
}

/// Reads the children of a directory.
#[expect(
    clippy::large_enum_variant,
    reason = "one lives for each directory on the way, so a box saves nothing"
)]
pub(crate) enum Children<'a> {
    Iso(Entries<'a>),
    Udf(Identifiers<'a>),
}

impl Children<'_> {
    /// Returns the next child whose name and version `accept` accepts.
    pub(crate) fn next(
        &mut self,
        mut accept: impl FnMut(&str, Option<u16>) -> bool,
    ) -> Result<Option<Child>, ReadError> {
        match self {
            Children::Iso(entries) => Ok(entries.next(accept)?.map(Child::Entry)),
            Children::Udf(identifiers) => {
                while let Some(identifier) = identifiers.next()? {
                    if !is_name(&identifier.name) {
                        let rule = "the name of an entry is not empty, `.` or `..`";
                        return Err(ReadError::Invalid { offset: identifier.offset, rule });
                    }
                    if accept(&identifier.name, None) {
                        return Ok(Some(Child::Udf(identifier)));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl View {
    pub(crate) fn iso(namespace: Namespace, root: &Root) -> View {
        let entry = Entry::at("", EntryKind::Directory, root.extent);
        View { root: entry, kind: ViewKind::Iso { namespace, skip: root.skip } }
    }

    /// Returns the view of a UDF file system, if its root is readable.
    pub(crate) fn udf(udf: Udf, source: &dyn ReadAt, limits: &ReadLimits) -> Result<View, ReadError> {
        let root = Identifier { name: String::new(), address: udf.root, offset: udf.root_from };
        let root = udf_entry(&udf, source, root)?;
        let view = View { root, kind: ViewKind::Udf(Box::new(udf)) };
        view.children(source, &view.root, limits)?.next(|_, _| true)?;
        Ok(view)
    }

    pub(crate) fn namespace(&self) -> Namespace {
        match self.kind {
            ViewKind::Iso { namespace, .. } => namespace,
            ViewKind::Udf(_) => Namespace::Udf,
        }
    }

    /// Starts reading a directory.
    pub(crate) fn children<'a>(
        &self,
        source: &'a dyn ReadAt,
        directory: &Entry,
        limits: &'a ReadLimits,
    ) -> Result<Children<'a>, ReadError> {
        let extent = directory.first_extent();
        match &self.kind {
            ViewKind::Iso { namespace, skip } => {
                Entries::new(source, extent, *namespace, *skip, limits).map(Children::Iso)
            }
            ViewKind::Udf(_) => {
                let invalid = |rule| ReadError::Invalid { offset: extent.offset, rule };
                if directory.extents.is_empty() || !directory.is_stored() {
                    return Err(invalid("a UDF directory is recorded"));
                }
                if directory.len > limits.directory_bytes {
                    let what = "bytes in one directory";
                    return Err(ReadError::Limit { what, limit: limits.directory_bytes });
                }
                let mut runs = Runs::default();
                for Extent { offset, len } in directory.extents.iter().copied() {
                    if offset.checked_add(len).is_none_or(|end| end > source.len()) {
                        return Err(invalid("a directory lies inside the image"));
                    }
                    runs.push(Run { offset: Some(offset), len });
                }
                Ok(Children::Udf(Identifiers::new(source, runs)))
            }
        }
    }

    /// Returns the complete entry of a child.
    pub(crate) fn entry(&self, source: &dyn ReadAt, child: Child) -> Result<Entry, ReadError> {
        match (child, &self.kind) {
            (Child::Entry(entry), _) => Ok(entry),
            (Child::Udf(identifier), ViewKind::Udf(udf)) => udf_entry(udf, source, identifier),
            (Child::Udf(Identifier { offset, .. }), ViewKind::Iso { .. }) => {
                Err(ReadError::Invalid { offset, rule: "only UDF directories have UDF names" })
            }
        }
    }
}

/// Reads the entry of a UDF name.
fn udf_entry(udf: &Udf, source: &dyn ReadAt, identifier: Identifier) -> Result<Entry, ReadError> {
    let Identifier { name, address, offset } = identifier;
    let file = FileEntry::read(&udf.layout, source, address, offset)?;
    let (kind, type_bits) = match file.kind() {
        FileKind::File => (EntryKind::File, TYPE_FILE),
        FileKind::Directory => (EntryKind::Directory, TYPE_DIRECTORY),
        FileKind::Symlink => (EntryKind::Symlink(file.target(&udf.layout, source)?), TYPE_SYMLINK),
        FileKind::Other => (EntryKind::Other, 0),
    };
    let mut entry = Entry::at(&name, kind, Extent { offset: file.offset, len: 0 });
    entry.modified = file.modified;
    entry.mode = Some(type_bits | file.permissions);
    if entry.kind != EntryKind::Other {
        entry.set_runs(file.runs(&udf.layout, source)?);
    }
    Ok(entry)
}
