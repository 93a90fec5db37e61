//! Entries: what directory records and attributes say about a file, joined.
//!
//! ```text
//! record (flag 80: continues) + record (same identifier) + ... = one file, one extent per record
//! record + CL = a directory that is elsewhere        record + RE = shown elsewhere, not here
//! ```

use crate::ecma119::record::{ASSOCIATED, DIRECTORY, NOT_FINAL, PARENT, Record, SELF};
use crate::ecma119::{date, identifier};
use crate::error::ReadError;
use crate::joliet;
use crate::rockridge::{self, Attributes};
use crate::source::ReadAt;

use super::directory::{Records, extent_of};
use super::{Limits, Namespace};

/// POSIX: the bits of a mode that say what kind of file it is, and the kinds known here.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

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
    /// The POSIX mode, if Rock Ridge tells.
    pub mode: Option<u32>,
    /// Where the bytes are, as the records claim; [`super::Image::open_file`] checks it.
    pub extents: Vec<Extent>,
    /// The bytes are compressed with zisofs, which this reader does not undo.
    pub compressed: bool,
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

    /// The directory at an extent.
    pub(crate) fn directory(name: &str, extent: Extent) -> Entry {
        Entry {
            name: name.to_owned(),
            kind: EntryKind::Directory,
            len: extent.len,
            modified: None,
            mode: None,
            extents: vec![extent],
            compressed: false,
        }
    }
}

/// The entries of a directory being read.
pub(crate) struct Entries<'a> {
    source: &'a dyn ReadAt,
    records: Records<'a>,
    namespace: Namespace,
    skip: usize,
    limits: &'a Limits,
}

impl<'a> Entries<'a> {
    /// Begins to read the entries of a directory.
    pub(crate) fn new(
        source: &'a dyn ReadAt,
        extent: Extent,
        namespace: Namespace,
        skip: usize,
        limits: &'a Limits,
    ) -> Result<Entries<'a>, ReadError> {
        Ok(Entries { source, records: Records::new(source, extent, limits)?, namespace, skip, limits })
    }

    /// The next entry.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        loop {
            let Some(record) = self.records.next()? else { return Ok(None) };
            if record.identifier == SELF || record.identifier == PARENT || record.flags & ASSOCIATED != 0 {
                continue;
            }
            let entry = build(self.source, &record, self.namespace, self.skip, self.limits)?;
            if record.flags & NOT_FINAL == 0 {
                match entry {
                    Some(entry) => return Ok(Some(entry)),
                    None => continue,
                }
            }
            let (offset, identifier) = (record.offset, record.identifier.to_vec());
            let invalid = |offset, rule| ReadError::Invalid { offset, rule };
            let mut entry = entry
                .filter(|entry| !entry.is_dir())
                .ok_or(invalid(offset, "only the records of files continue"))?;
            self.join(&mut entry, &identifier, offset)?;
            return Ok(Some(entry));
        }
    }

    /// Adds the remaining sections of a file.
    fn join(&mut self, entry: &mut Entry, identifier: &[u8], first: u64) -> Result<(), ReadError> {
        loop {
            let record = self.records.next()?;
            let Some(record) = record.filter(|record| record.identifier == identifier) else {
                let rule = "a record that is not the last of its file is followed by the next one";
                return Err(ReadError::Invalid { offset: first, rule });
            };
            let len = u64::from(record.data_length);
            // At most two million records per directory, of 32 bits each: no overflow.
            entry.len += len;
            entry.extents.push(Extent { offset: record.data_offset, len });
            if record.flags & NOT_FINAL == 0 {
                return Ok(());
            }
        }
    }
}

/// The entry of a first record, unless it is not to be shown.
fn build(
    source: &dyn ReadAt,
    record: &Record<'_>,
    namespace: Namespace,
    skip: usize,
    limits: &Limits,
) -> Result<Option<Entry>, ReadError> {
    let invalid = |rule| ReadError::Invalid { offset: record.offset, rule };
    let attributes = match namespace {
        Namespace::RockRidge => {
            rockridge::parse(source, record.system_use.get(skip..).unwrap_or_default(), record.offset)?
        }
        Namespace::Joliet | Namespace::Plain => Attributes::default(),
    };
    if attributes.relocated {
        return Ok(None);
    }
    let name = match namespace {
        Namespace::RockRidge if !attributes.name.is_empty() => {
            String::from_utf8_lossy(&attributes.name).into_owned()
        }
        Namespace::RockRidge | Namespace::Plain => identifier::plain_name(record.identifier),
        Namespace::Joliet if !record.identifier.len().is_multiple_of(2) => {
            return Err(invalid("a Joliet identifier has an even number of bytes"));
        }
        Namespace::Joliet => joliet::name(record.identifier),
    };
    if matches!(name.as_str(), "" | "." | "..") {
        return Err(invalid("the name of an entry is not empty, `.` or `..`"));
    }
    let mut extent = Extent { offset: record.data_offset, len: u64::from(record.data_length) };
    let mut directory = record.flags & DIRECTORY != 0;
    if let Some(block) = attributes.relocated_to {
        extent = extent_of(source, block, limits)?;
        directory = true;
    }
    let kind = match (&attributes.symlink, attributes.mode.map(|mode| mode & TYPE_MASK)) {
        _ if directory => EntryKind::Directory,
        (Some(target), _) => EntryKind::Symlink(String::from_utf8_lossy(target).into_owned()),
        (None, None | Some(TYPE_FILE)) => EntryKind::File,
        // A mode that calls a file a directory is a contradiction that the record's flag decides.
        (None, Some(TYPE_DIRECTORY)) => EntryKind::File,
        (None, Some(_)) => EntryKind::Other,
    };
    Ok(Some(Entry {
        name: name
            .chars()
            .map(|char| if char == '/' || char.is_control() { '\u{fffd}' } else { char })
            .collect(),
        kind,
        len: extent.len,
        modified: attributes.modified.or_else(|| date::parse_record(record.date)),
        mode: attributes.mode,
        extents: vec![extent],
        compressed: attributes.compressed,
    }))
}
