//! Entries of ISO 9660 directories, from directory records, Rock Ridge attributes and Joliet names.
//!
//! ```text
//! record (flag 80: continues) + record (same identifier) + ... = one file, one extent per record
//! record A.TXT;2, record A.TXT;1 = two versions of one file, shown as `a.txt` and `a.txt;1`
//! record + CL = a directory stored elsewhere        record + RE = shown elsewhere, not here
//! ```

use crate::ecma119::record::{ASSOCIATED, DIRECTORY, NOT_FINAL, PARENT, Record, SELF};
use crate::ecma119::{date, identifier};
use crate::error::ReadError;
use crate::escape::{escape_name, escape_target};
use crate::joliet;
use crate::rockridge::{self, Attributes};
use crate::source::ReadAt;

use super::directory::{Records, extent_of};
use super::entry::{Storage, TYPE_DIRECTORY, TYPE_FILE, TYPE_MASK, is_name};
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
    name: Name,
    /// The name of the previous record, and whether the record continues in the next one.
    previous: Name,
    continues: bool,
}

/// The name of a record.
#[derive(Default)]
struct Name {
    text: String,
    /// The length of the text without the version, which is shown only by an entry that has the name of the previous one: a
    /// further version of the file, or a file after a directory of its name.
    stem: usize,
    version: Option<u16>,
}

impl Name {
    fn stem(&self) -> &str {
        &self.text[..self.stem]
    }

    fn set(&mut self, text: &str, version: Option<u16>) {
        self.text.clear();
        self.text.push_str(text);
        (self.stem, self.version) = (text.len(), version);
    }
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
        let (attributes, name, previous) = Default::default();
        Ok(Entries { source, records, namespace, skip, limits, attributes, name, previous, continues: false })
    }

    /// Returns the next entry whose name and version `accept` accepts. Only then the rest of the entry is parsed.
    pub(crate) fn next(
        &mut self,
        mut accept: impl FnMut(&str, Option<u16>) -> bool,
    ) -> Result<Option<Entry>, ReadError> {
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
            std::mem::swap(&mut self.name, &mut self.previous);
            name(&record, self.namespace, &self.attributes, &mut self.name)?;
            if self.name.stem() == self.previous.stem() {
                let continued = std::mem::replace(&mut self.continues, record.flags & NOT_FINAL != 0);
                if continued && self.name.version == self.previous.version {
                    // A further section of a file that was not accepted.
                    continue;
                }
                // Versions of one file follow each other, the highest first (9.3).
                if let Some(version) = self.name.version {
                    self.name.text.push_str(&format!(";{version}"));
                }
            }
            self.continues = record.flags & NOT_FINAL != 0;
            if !accept(&self.name.text, self.name.version) {
                continue;
            }
            self.continues = false;
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
    matches!(byte, b' '..=b'~') && !matches!(byte, b';' | b'/' | b'\\')
}

/// Writes the name of a record to `name`.
fn name(
    record: &Record<'_>,
    namespace: Namespace,
    attributes: &Attributes,
    name: &mut Name,
) -> Result<(), ReadError> {
    let invalid = |rule| ReadError::Invalid { offset: record.offset, rule };
    match namespace {
        Namespace::RockRidge if !attributes.name.is_empty() => {
            name.set(&escape_name(&attributes.name), None);
        }
        Namespace::Joliet if !record.identifier.len().is_multiple_of(2) => {
            return Err(invalid("a Joliet identifier has an even number of bytes"));
        }
        // Most identifiers are ASCII; these take no allocation, because a directory may have very many.
        Namespace::Joliet
            if record.identifier.chunks_exact(2).all(|unit| unit[0] == 0 && is_simple(unit[1])) =>
        {
            name.set("", None);
            name.text.extend(record.identifier.chunks_exact(2).map(|unit| char::from(unit[1])));
            name.stem = name.text.len();
        }
        Namespace::Joliet => {
            let (text, version) = joliet::name_and_version(record.identifier);
            name.set(&text, version);
        }
        _ => {
            let (_, version) = identifier::split_version(record.identifier);
            name.set(&identifier::plain_name(record.identifier), version);
        }
    }
    match is_name(&name.text) {
        true => Ok(()),
        false => Err(invalid("the name of an entry is not empty, `.` or `..`")),
    }
}

/// Returns the entry of the first record of a file or directory.
fn build(
    source: &dyn ReadAt,
    record: &Record<'_>,
    name: &Name,
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
        (Some(target), _) => EntryKind::Symlink(escape_target(target).into_owned()),
        (None, None | Some(TYPE_FILE)) => EntryKind::File,
        // If the mode contradicts the directory flag of the record, the flag decides.
        (None, Some(TYPE_DIRECTORY)) => EntryKind::File,
        (None, Some(_)) => EntryKind::Other,
    };
    let mut entry = Entry::at(&name.text, kind, extent);
    entry.version = name.version;
    entry.modified = attributes.modified.or_else(|| date::parse_record(record.date));
    entry.mode = attributes.mode;
    Ok(entry)
}
