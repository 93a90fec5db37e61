//! Directory records of the original, kept byte for byte and changed only where a value must differ.
//!
//! ```text
//! extent --split--> [record] [record] ...   --change, insert--   --pack--> extent, whole sectors
//!  2 extent (both 32)   10 data length (both 32)   18 date (7)   25 flags   32 identifier ... system use area
//! ```
//!
//! Invariants: the order is kept. A new record is inserted before the first record that sorts after it, so never
//! between the sections of a file. No record crosses a sector. ECMA-119 9.1 and 9.3.

use std::cmp::Ordering;

use crate::ecma119::SECTOR;
use crate::ecma119::field::{both_u32, put};
use crate::ecma119::record::{ASSOCIATED, DIRECTORY, HEADER, NOT_FINAL, PARENT, Record, SELF, base_length};
use crate::error::ReadError;

use super::tree_kind::TreeKind;

/// A record of the original.
#[derive(Clone, Debug)]
pub(crate) struct RawRecord {
    /// The offset in the original; unused for a new record.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) flags: u8,
    /// The offset of the data, in bytes from the start of the image.
    pub(crate) data_offset: u64,
    pub(crate) data_length: u32,
}

impl RawRecord {
    /// Parses the record at the start of `bytes`, which is at byte `offset` of the image.
    pub(crate) fn parse(bytes: &[u8], offset: u64) -> Result<RawRecord, ReadError> {
        let record = Record::parse(bytes, offset)?;
        let (flags, data_offset, data_length) = (record.flags, record.data_offset, record.data_length);
        let bytes = bytes[..usize::from(bytes[0])].to_vec();
        Ok(RawRecord { offset, bytes, flags, data_offset, data_length })
    }

    pub(crate) fn identifier(&self) -> &[u8] {
        &self.bytes[HEADER..HEADER + usize::from(self.bytes[32])]
    }

    pub(crate) fn system_use(&self) -> &[u8] {
        self.bytes.get(self.system_use_at()..).unwrap_or_default()
    }

    /// Returns the position of the system use area in the record.
    pub(crate) fn system_use_at(&self) -> usize {
        base_length(usize::from(self.bytes[32]))
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    /// Returns whether the record is an associated file or one of several sections.
    pub(crate) fn is_odd(&self) -> bool {
        self.flags & (ASSOCIATED | NOT_FINAL) != 0
    }

    /// Sets the extent of the record, without an extended attribute record.
    pub(crate) fn lead_to(&mut self, extent: u32, length: u32) {
        self.bytes[1] = 0;
        put(&mut self.bytes, 2, &both_u32(extent));
        put(&mut self.bytes, 10, &both_u32(length));
    }

    pub(crate) fn set_date(&mut self, date: [u8; 7]) {
        put(&mut self.bytes, 18, &date);
    }
}

/// Parses the records in the sectors of a directory that begins at byte `offset` of the image.
pub(crate) fn split(bytes: &[u8], offset: u64) -> Result<Vec<RawRecord>, ReadError> {
    let mut records = Vec::new();
    for (sector, start) in bytes.chunks(SECTOR).zip((offset..).step_by(SECTOR)) {
        let mut at = 0;
        while sector.get(at).is_some_and(|length| *length != 0) {
            let record = RawRecord::parse(&sector[at..], start + at as u64)?;
            at += record.bytes.len();
            records.push(record);
        }
    }
    check_head(&records, offset)?;
    Ok(records)
}

/// Parses the record that a directory has of its parent, from its first sector.
pub(crate) fn parent(sector: &[u8], offset: u64) -> Result<RawRecord, ReadError> {
    let own = RawRecord::parse(sector, offset)?;
    let at = own.bytes.len();
    let parent = RawRecord::parse(&sector[at..], offset + at as u64)?;
    check_head(&[own, parent.clone()], offset)?;
    Ok(parent)
}

fn check_head(records: &[RawRecord], offset: u64) -> Result<(), ReadError> {
    match records {
        [own, parent, ..]
            if own.identifier() == SELF
                && parent.identifier() == PARENT
                && own.is_directory()
                && parent.is_directory() =>
        {
            Ok(())
        }
        _ => {
            let rule = "a directory begins with the records of itself and of its parent";
            Err(ReadError::Invalid { offset, rule })
        }
    }
}

/// Returns the sectors of a directory with these records.
pub(crate) fn pack<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    for record in records {
        let room = SECTOR - bytes.len() % SECTOR;
        if record.len() > room {
            bytes.resize(bytes.len() + room, 0);
        }
        bytes.extend_from_slice(record);
    }
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
    bytes
}

/// Returns the index at which a record with this identifier belongs.
pub(crate) fn place(records: &[RawRecord], identifier: &[u8], kind: TreeKind) -> usize {
    let after = |record: &RawRecord| compare(record.identifier(), identifier, kind) == Ordering::Greater;
    // The first two records, of the directory itself and of its parent, stay first.
    records.iter().skip(2).position(after).map_or(records.len(), |index| index + 2)
}

/// Compares identifiers in the order of a directory: 9.3, in Joliet by bytes.
pub(crate) fn compare(left: &[u8], right: &[u8], kind: TreeKind) -> Ordering {
    if kind == TreeKind::Joliet {
        return left.cmp(right);
    }
    let parts = |identifier: &[u8]| {
        let name = identifier.iter().position(|byte| *byte == b';').unwrap_or(identifier.len());
        let stem = identifier[..name].iter().position(|byte| *byte == b'.').unwrap_or(name);
        (stem, (stem + 1).min(name)..name)
    };
    let ((left_stem, left_extension), (right_stem, right_extension)) = (parts(left), parts(right));
    padded(&left[..left_stem], &right[..right_stem])
        .then_with(|| padded(&left[left_extension], &right[right_extension]))
}

/// Compares as if the shorter text were padded with spaces.
fn padded(left: &[u8], right: &[u8]) -> Ordering {
    let length = left.len().max(right.len());
    let fill =
        |bytes: &[u8]| bytes.iter().copied().chain(std::iter::repeat(b' ')).take(length).collect::<Vec<_>>();
    fill(left).cmp(&fill(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ecma119::record::NewRecord;

    fn record(identifier: &[u8], flags: u8) -> Vec<u8> {
        NewRecord { extent: 30, data_length: 2048, date: [0; 7], flags, identifier }.to_bytes(b"")
    }

    fn directory(children: &[(&[u8], u8)]) -> Vec<u8> {
        let fixed = [(SELF, DIRECTORY), (PARENT, DIRECTORY)];
        let all: Vec<Vec<u8>> = fixed.iter().chain(children).map(|(id, flags)| record(id, *flags)).collect();
        pack(all.iter().map(Vec::as_slice))
    }

    #[test]
    fn records_split_and_pack_to_the_same_bytes() {
        let names: Vec<Vec<u8>> = (0..200).map(|index| format!("FILE{index:03}.;1").into_bytes()).collect();
        let children: Vec<(&[u8], u8)> = names.iter().map(|name| (name.as_slice(), 0)).collect();
        let bytes = directory(&children);
        let records = split(&bytes, 0).unwrap();
        assert_eq!(records.len(), 202);
        assert_eq!(pack(records.iter().map(|record| record.bytes.as_slice())), bytes);
        assert_eq!(records[201].offset as usize / SECTOR, bytes.len() / SECTOR - 1);
    }

    #[test]
    fn an_insertion_keeps_the_order_and_the_sections_of_a_file_together() {
        let bytes = directory(&[(b"A.;1", 0), (b"TASK.;1", NOT_FINAL), (b"TASK.;1", 0), (b"Z", DIRECTORY)]);
        let records = split(&bytes, 0).unwrap();
        let at = |identifier: &[u8]| place(&records, identifier, TreeKind::Primary);
        assert_eq!((at(b"0"), at(b"B"), at(b"TASK.A;1"), at(b"ZZ")), (2, 3, 5, 6));
    }

    #[test]
    fn identifiers_compare_by_padded_name_then_extension() {
        let order = |left: &str, right: &str| compare(left.as_bytes(), right.as_bytes(), TreeKind::Primary);
        assert_eq!(order("A.;1", "A-B.;1"), Ordering::Less);
        assert_eq!(order("AB", "A.ZZZ;1"), Ordering::Greater);
        assert_eq!(order("A.B;1", "A.B;2"), Ordering::Equal);
        assert_eq!(order("A", "A.;1"), Ordering::Equal);
        assert_eq!(compare(b"\0a", b"\0a\0b", TreeKind::Joliet), Ordering::Less);
    }

    #[test]
    fn a_directory_without_its_first_two_records_is_invalid() {
        let wrong = pack([record(PARENT, DIRECTORY).as_slice(), record(SELF, DIRECTORY).as_slice()]);
        assert!(matches!(split(&wrong, 64), Err(ReadError::Invalid { offset: 64, .. })));
        assert!(split(&[0; SECTOR], 0).is_err());
        assert!(split(&pack([record(SELF, 0).as_slice(), record(PARENT, 0).as_slice()]), 0).is_err());
    }
}
