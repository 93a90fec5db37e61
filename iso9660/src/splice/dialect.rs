//! The Rock Ridge version and style of an image, and new entries in it.
//!
//! ```text
//! root "."   SP  [RR]  PX (36: RRIP 1.09 | 44: 1.12)  TF (flags)  CE
//!             |    |    |                              `- new entries have these dates
//!             |    |    `- with or without serial number
//!             |    `- written by RRIP 1.09 programs: which entries follow
//!             `- how many bytes come before the entries of other records
//! new        [RR]  PX  TF  NM
//! ```
//!
//! References: SUSP 1.12 section 5, RRIP 1.12 section 4, RRIP 1.09 section 4.1.

use std::ops::Range;

use crate::SECTOR_SIZE;
use crate::ecma119::field::{both_u32, put, read_both_u32};
use crate::rockridge;

use super::records::RawRecord;

/// RR (RRIP 1.09): flags for the PX, NM and TF entries of a record.
const HAS_PX: u8 = 0x01;
const HAS_NM: u8 = 0x08;
const HAS_TF: u8 = 0x80;
/// TF: modification date only, for an image whose root has no dates or long dates.
const MODIFICATION: u8 = 0x02;
/// TF: dates have 17 bytes.
const LONG_FORM: u8 = 0x80;
/// POSIX file types.
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;
/// The permissions of added files.
const FILE_MODE: u32 = 0o444;
const DIRECTORY_MODE: u32 = 0o555;

/// The Rock Ridge style of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Dialect {
    pub(crate) skip: usize,
    serials: bool,
    announces: bool,
    /// Whether directories count their links. xorriso writes 1, which on POSIX systems means "not counted".
    counts: bool,
    dates: u8,
}

/// The attributes of a new record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) directory: bool,
    pub(crate) serial: u32,
    /// The Rock Ridge name; `None` for the record that a directory has of itself.
    pub(crate) name: Option<&'a str>,
}

/// Returns the system use entries of an area with their ranges. An area with an SP entry begins with it.
fn entries(area: &[u8], skip: usize) -> impl Iterator<Item = ([u8; 2], Range<usize>)> {
    let mut at = if area.starts_with(b"SP") { 0 } else { skip };
    std::iter::from_fn(move || {
        let header = area.get(at..at.checked_add(4)?)?;
        let length = usize::from(header[2]);
        let range = at..at + length;
        if length < 4 || range.end > area.len() || header[..2] == *b"ST" {
            return None;
        }
        at = range.end;
        Some(([header[0], header[1]], range))
    })
}

/// Returns the position and the value of the link count of a record, if its own area has one.
fn link_count(record: &RawRecord, skip: usize) -> Option<(usize, u32)> {
    let area = record.system_use();
    let (_, range) = entries(area, skip).find(|(signature, _)| signature == b"PX")?;
    let links = read_both_u32(&area[range.clone()], 12)?;
    Some((record.system_use_at() + range.start + 12, links))
}

/// Returns the link count of a directory record, if directories are counted: 1 means "not counted".
pub(crate) fn links(record: &RawRecord, skip: usize) -> Option<u32> {
    link_count(record, skip).map(|(_, links)| links).filter(|links| *links > 1)
}

/// Adds one to the link count of a record if it has the expected value, because only then it is a count of this
/// directory.
pub(crate) fn add_link(record: &mut RawRecord, skip: usize, expected: Option<u32>) {
    if let Some((at, links)) = link_count(record, skip).filter(|(_, links)| Some(*links) == expected) {
        put(&mut record.bytes, at, &both_u32(links.saturating_add(1)));
    }
}

/// Writes the modification date of a record, if its own area has a short date.
pub(crate) fn set_modified(record: &mut RawRecord, skip: usize, date: [u8; 7]) {
    let start = record.system_use_at();
    let found = entries(record.system_use(), skip).find(|(signature, _)| signature == b"TF");
    let Some((_, range)) = found else { return };
    let entry = &record.system_use()[range.clone()];
    let flags = entry.get(4).copied().unwrap_or(LONG_FORM);
    let at = 5 + 7 * usize::from(flags & 0x01);
    if flags & (LONG_FORM | MODIFICATION) == MODIFICATION && at + 7 <= entry.len() {
        put(&mut record.bytes, start + range.start + at, &date);
    }
}

/// A CE entry: its position in its area, and the location of the continuation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Continuation {
    pub(crate) at: usize,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// Returns the CE entry of an area.
pub(crate) fn continuation(area: &[u8], skip: usize) -> Option<Continuation> {
    let (_, range) = entries(area, skip).find(|(signature, _)| signature == b"CE")?;
    let field = |at| read_both_u32(&area[range.clone()], at);
    let offset = u64::from(field(4)?) * SECTOR_SIZE + u64::from(field(12)?);
    Some(Continuation { at: range.start, offset, length: field(20)? })
}

/// Sets the location of the CE entry at `at`; its length stays unchanged.
pub(crate) fn continue_at(bytes: &mut [u8], at: usize, block: u32, offset: u32) {
    put(bytes, at + 4, &[both_u32(block), both_u32(offset)].concat());
}

impl Dialect {
    /// Returns the dialect of the root's record of itself, if it declares Rock Ridge.
    pub(crate) fn of(root: &RawRecord) -> Option<Dialect> {
        let area = root.system_use();
        let skip = rockridge::root_skip(area)?;
        let (mut serials, mut announces, mut dates) = (false, false, MODIFICATION);
        let counts = links(root, skip).is_some();
        for (signature, range) in entries(area, skip) {
            match &signature {
                b"PX" => serials = range.len() >= 44,
                b"RR" => announces = true,
                b"TF" => {
                    let flags = area.get(range.start + 4).copied().unwrap_or(0);
                    let usable = flags & LONG_FORM == 0 && flags & MODIFICATION != 0;
                    dates = if usable { flags } else { MODIFICATION };
                }
                _ => {}
            }
        }
        Some(Dialect { skip, serials, announces, counts, dates })
    }

    /// Returns the area of a new record.
    pub(crate) fn area(&self, node: &Node<'_>, date: [u8; 7]) -> Vec<u8> {
        let mut area = vec![0; self.skip];
        if self.announces {
            let name = if node.name.is_some() { HAS_NM } else { 0 };
            append(&mut area, b"RR", &[HAS_PX | HAS_TF | name]);
        }
        let (mode, links) = if node.directory {
            (TYPE_DIRECTORY | DIRECTORY_MODE, 1 + u32::from(self.counts))
        } else {
            (TYPE_FILE | FILE_MODE, 1)
        };
        let mut numbers = [mode, links, 0, 0].map(both_u32).concat();
        if self.serials {
            numbers.extend_from_slice(&both_u32(node.serial));
        }
        append(&mut area, b"PX", &numbers);
        let dates = date.repeat(self.dates.count_ones() as usize);
        append(&mut area, b"TF", &[&[self.dates], dates.as_slice()].concat());
        if let Some(name) = node.name {
            append(&mut area, b"NM", &[&[0], name.as_bytes()].concat());
        }
        area
    }

    /// Returns the area of the record that a directory has of its parent, the root: the root's own area without the
    /// entries that only the root has.
    pub(crate) fn parent_area(&self, root: &RawRecord) -> Vec<u8> {
        let area = root.system_use();
        let mut parent = vec![0; self.skip];
        for (signature, range) in entries(area, self.skip) {
            if matches!(&signature, b"RR" | b"PX" | b"TF") {
                parent.extend_from_slice(&area[range]);
            }
        }
        parent
    }
}

fn append(area: &mut Vec<u8>, signature: &[u8; 2], data: &[u8]) {
    area.extend_from_slice(signature);
    // Names have at most 64 bytes and dates 49, so an entry is far below 255 bytes.
    area.extend_from_slice(&[u8::try_from(data.len() + 4).unwrap_or(u8::MAX), 1]);
    area.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecma119::record::{DIRECTORY, NewRecord, PARENT, SELF};
    use crate::splice::records::{pack, split};

    fn root(area: &[u8]) -> RawRecord {
        let record = |identifier, area: &[u8]| {
            NewRecord { extent: 20, data_length: 2048, date: [0; 7], flags: DIRECTORY, identifier }
                .to_bytes(area)
        };
        let bytes = pack([record(SELF, area).as_slice(), record(PARENT, b"").as_slice()]);
        split(&bytes, 0).unwrap().remove(0)
    }

    fn px(serial: bool) -> Vec<u8> {
        let numbers = [0o040_755, 3, 0, 0, 9].map(both_u32).concat();
        let mut area = Vec::new();
        append(&mut area, b"PX", &numbers[..if serial { 40 } else { 32 }]);
        area
    }

    const FILE: Node<'_> = Node { directory: false, serial: 77, name: Some("job.json") };
    const DATE: [u8; 7] = [123, 11, 14, 22, 13, 20, 0];

    #[test]
    fn both_versions_of_rock_ridge_are_recognised_and_kept() {
        let sp = b"SP\x07\x01\xbe\xef\x00".as_slice();
        let dates = [b"TF\x1a\x01\x0e".as_slice(), &[0; 21]].concat();
        let old = Dialect::of(&root(&[sp, b"RR\x05\x01\x81", &px(false), &dates].concat())).unwrap();
        assert_eq!(old, Dialect { skip: 0, serials: false, announces: true, counts: true, dates: 0x0E });
        let area = old.area(&FILE, DATE);
        assert!(area.starts_with(b"RR\x05\x01\x89PX\x24\x01"));
        assert!(area.ends_with(b"NM\x0d\x01\x00job.json"));
        assert_eq!(area.windows(7).filter(|bytes| *bytes == DATE).count(), 3);
        let new = Dialect::of(&root(&[sp, &px(true)].concat())).unwrap();
        assert!(new.area(&FILE, DATE).starts_with(b"PX\x2c\x01"));
        assert_eq!(Dialect::of(&root(&px(true))), None);
    }

    #[test]
    fn link_counts_grow_only_in_records_with_the_expected_count() {
        let mut root = root(&[b"SP\x07\x01\xbe\xef\x00".as_slice(), &px(true)].concat());
        add_link(&mut root, 0, Some(7));
        assert_eq!(links(&root, 0), Some(3));
        add_link(&mut root, 0, Some(3));
        assert_eq!(links(&root, 0), Some(4));
        let dialect = Dialect::of(&root).unwrap();
        let parent = dialect.parent_area(&root);
        assert!(parent.starts_with(b"PX\x2c\x01") && parent.len() == 44);
    }

    #[test]
    fn the_modification_date_after_the_creation_date_is_found() {
        let dates = [b"TF\x13\x01\x03".as_slice(), &[1; 7], &[2; 7]].concat();
        let mut record = root(&dates);
        set_modified(&mut record, 0, DATE);
        assert_eq!(record.system_use()[5..19], [[1; 7].as_slice(), &DATE].concat());
    }
}
