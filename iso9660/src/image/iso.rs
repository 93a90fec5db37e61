//! Entries of ISO 9660 directories, from directory records, Rock Ridge attributes and Joliet names.
//!
//! ```text
//! record (flag 80: continues) + record (same identifier) + ... = one file, one extent per record
//! record + CL = a directory stored elsewhere        record + RE = shown elsewhere, not here
//! ```

use crate::ecma119::record::{ASSOCIATED, DIRECTORY, NOT_FINAL, PARENT, Record, SELF};
use crate::ecma119::{date, identifier};
use crate::error::ReadError;
use crate::joliet;
use crate::rockridge::{self, Attributes};
use crate::source::ReadAt;

use super::directory::{Records, extent_of};
use super::entry::{Storage, TYPE_DIRECTORY, TYPE_FILE, TYPE_MASK, shown};
use super::{Entry, EntryKind, Extent, Namespace, ReadLimits};

/// Reads the entries of a directory.
pub(crate) struct Entries<'a> {
    source: &'a dyn ReadAt,
    records: Records<'a>,
    namespace: Namespace,
    skip: usize,
    limits: &'a ReadLimits,
    /// The attributes of the current record; kept to reuse their allocations.
    attributes: Attributes,
    name: String,
}

impl<'a> Entries<'a> {
    /// Starts reading the entries of a directory.
    pub(crate) fn new(
        source: &'a dyn ReadAt,
        extent: Extent,
        namespace: Namespace,
        skip: usize,
        limits: &'a ReadLimits,
    ) -> Result<Entries<'a>, ReadError> {
        let records = Records::new(source, extent, limits)?;
        let (attributes, name) = Default::default();
        Ok(Entries { source, records, namespace, skip, limits, attributes, name })
    }

    /// Returns the next entry whose name `accept` accepts. Only then the rest of the entry is parsed.
    pub(crate) fn next(&mut self, mut accept: impl FnMut(&str) -> bool) -> Result<Option<Entry>, ReadError> {
        loop {
            let Some(record) = self.records.next()? else { return Ok(None) };
            if record.identifier == SELF || record.identifier == PARENT || record.flags & ASSOCIATED != 0 {
                continue;
            }
            if self.namespace == Namespace::RockRidge {
                let system_use = record.system_use.get(self.skip..).unwrap_or_default();
                rockridge::parse_into(self.source, system_use, record.offset, &mut self.attributes)?;
            }
            if self.attributes.relocated {
                continue;
            }
            name(&record, self.namespace, &self.attributes, &mut self.name)?;
            if !accept(&self.name) {
                continue;
            }
            let mut entry = build(self.source, &record, &self.name, &self.attributes, self.limits)?;
            if record.flags & NOT_FINAL != 0 {
                let (offset, identifier) = (record.offset, record.identifier.to_vec());
                if entry.is_dir() {
                    return Err(ReadError::Invalid { offset, rule: "only the records of files continue" });
                }
                self.join(&mut entry, &identifier, offset)?;
            }
            if let Some(parameters) = self.attributes.compressed.filter(|_| entry.is_file()) {
                entry.len = u64::from(parameters.len);
                entry.storage = Storage::Zisofs(parameters);
            }
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
            // A directory has at most two million records with 32 bits of length each, so this does not overflow.
            entry.len += len;
            entry.extents.push(Extent { offset: record.data_offset, len });
            if record.flags & NOT_FINAL == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns whether a character of an identifier is used unchanged in a name.
fn is_simple(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b';'
}

/// Writes the name of a record to `name`.
fn name(
    record: &Record<'_>,
    namespace: Namespace,
    attributes: &Attributes,
    name: &mut String,
) -> Result<(), ReadError> {
    let invalid = |rule| ReadError::Invalid { offset: record.offset, rule };
    name.clear();
    match namespace {
        Namespace::RockRidge if !attributes.name.is_empty() => {
            name.push_str(&String::from_utf8_lossy(&attributes.name));
        }
        Namespace::Joliet if !record.identifier.len().is_multiple_of(2) => {
            return Err(invalid("a Joliet identifier has an even number of bytes"));
        }
        // Most identifiers are ASCII; these take no allocation, because a directory may have very many.
        Namespace::Joliet
            if record.identifier.chunks_exact(2).all(|unit| unit[0] == 0 && is_simple(unit[1])) =>
        {
            name.extend(record.identifier.chunks_exact(2).map(|unit| char::from(unit[1])));
        }
        Namespace::Joliet => name.push_str(&joliet::name(record.identifier)),
        _ => name.push_str(&identifier::plain_name(record.identifier)),
    }
    match shown(name) {
        true => Ok(()),
        false => Err(invalid("the name of an entry is not empty, `.` or `..`")),
    }
}

/// Returns the entry of the first record of a file or directory.
fn build(
    source: &dyn ReadAt,
    record: &Record<'_>,
    name: &str,
    attributes: &Attributes,
    limits: &ReadLimits,
) -> Result<Entry, ReadError> {
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
        // If the mode contradicts the directory flag of the record, the flag decides.
        (None, Some(TYPE_DIRECTORY)) => EntryKind::File,
        (None, Some(_)) => EntryKind::Other,
    };
    let mut entry = Entry::at(name, kind, extent);
    entry.modified = attributes.modified.or_else(|| date::parse_record(record.date));
    entry.mode = attributes.mode;
    Ok(entry)
}
