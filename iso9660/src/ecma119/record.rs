//! Directory Records (9.1).
//!
//! ```text
//!  0  length of the record, even        10  data length (both)      28  volume sequence number (both 16)
//!  1  extended attribute record length  18  date (7)                32  length of the identifier
//!  2  first sector of the extent (both) 25  flags                   33  identifier, then 00 if its length is even,
//!                                       26  interleaving: 2 x 0         then the system use area
//! ```
//!
//! Invariants: a record never crosses a sector; the rest of a sector is zero; a record has at most 254 bytes.

use super::SECTOR;
use super::field::{array, both_u16, both_u32, put, read_both_u32};
use crate::error::ReadError;

/// The longest record: its length is one byte and even.
pub(crate) const MAX_LENGTH: usize = 254;
/// The number of bytes before the identifier.
pub(crate) const HEADER: usize = 33;
/// 9.1.6: the record describes a directory.
pub(crate) const DIRECTORY: u8 = 0x02;
/// 9.1.6: the record describes an associated file, a side stream of the file with the same identifier.
pub(crate) const ASSOCIATED: u8 = 0x04;
/// 9.1.6: another record continues the same file.
pub(crate) const NOT_FINAL: u8 = 0x80;
/// 9.1.11: the identifier of the record that a directory has of itself.
pub(crate) const SELF: &[u8] = &[0];
/// 9.1.11: the identifier of the record that a directory has of its parent.
pub(crate) const PARENT: &[u8] = &[1];

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) extent: u32,
    pub(crate) data_length: u32,
    pub(crate) date: [u8; 7],
    pub(crate) flags: u8,
    pub(crate) identifier: &'a [u8],
}

/// Returns the length of a record before its system use area.
pub(crate) fn base_length(identifier: usize) -> usize {
    HEADER + identifier + usize::from(identifier.is_multiple_of(2))
}

impl NewRecord<'_> {
    /// Appends the record with its system use area. If the record does not fit in the sector, zeros fill the sector
    /// first.
    pub(crate) fn append(&self, directory: &mut Vec<u8>, system_use: &[u8]) {
        let record = self.to_bytes(system_use);
        let room = SECTOR - directory.len() % SECTOR;
        if record.len() > room {
            directory.resize(directory.len() + room, 0);
        }
        directory.extend_from_slice(&record);
    }

    /// Returns the bytes of the record. The planner limits identifiers and system use areas so that the length fits in
    /// its byte.
    pub(crate) fn to_bytes(self, system_use: &[u8]) -> Vec<u8> {
        let base = base_length(self.identifier.len());
        let length = (base + system_use.len()).next_multiple_of(2);
        debug_assert!(length <= MAX_LENGTH);
        let mut bytes = vec![0; length];
        bytes[0] = u8::try_from(length).unwrap_or(u8::MAX);
        put(&mut bytes, 2, &both_u32(self.extent));
        put(&mut bytes, 10, &both_u32(self.data_length));
        put(&mut bytes, 18, &self.date);
        bytes[25] = self.flags;
        put(&mut bytes, 28, &both_u16(1));
        bytes[32] = u8::try_from(self.identifier.len()).unwrap_or(u8::MAX);
        put(&mut bytes, HEADER, self.identifier);
        put(&mut bytes, base, system_use);
        bytes
    }
}

/// A record read from an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// The offset of the record, in bytes from the start of the image.
    pub(crate) offset: u64,
    /// The offset of the data, in bytes from the start of the image.
    pub(crate) data_offset: u64,
    pub(crate) data_length: u32,
    pub(crate) date: [u8; 7],
    pub(crate) flags: u8,
    pub(crate) identifier: &'a [u8],
    pub(crate) system_use: &'a [u8],
}

impl<'a> Record<'a> {
    /// Returns whether this is the record that the directory at byte `offset` has of itself.
    pub(crate) fn is_of(&self, offset: u64) -> bool {
        self.identifier == SELF && self.flags & DIRECTORY != 0 && self.data_offset == offset
    }

    /// Parses the record at the start of `bytes`, which end with the sector. `offset` is the offset of `bytes` in the
    /// image.
    pub(crate) fn parse(bytes: &'a [u8], offset: u64) -> Result<Record<'a>, ReadError> {
        let invalid = |rule| ReadError::Invalid { offset, rule };
        let length = bytes.first().copied().map_or(0, usize::from);
        let bytes = bytes.get(..length).ok_or(invalid("a directory record ends inside its sector"))?;
        if length <= HEADER {
            return Err(invalid("a directory record has at least 34 bytes"));
        }
        let identifier_length = usize::from(bytes[32]);
        let identifier = bytes
            .get(HEADER..HEADER + identifier_length)
            .ok_or(invalid("an identifier ends inside its directory record"))?;
        if identifier.is_empty() {
            return Err(invalid("an identifier has at least one byte"));
        }
        if bytes[26] != 0 || bytes[27] != 0 {
            return Err(ReadError::Unsupported { offset, feature: "interleaved files" });
        }
        let halves = "both byte orders of a directory record agree";
        let extent = read_both_u32(bytes, 2).ok_or(invalid(halves))?;
        let data_length = read_both_u32(bytes, 10).ok_or(invalid(halves))?;
        let date = array(bytes, 18).ok_or(invalid("a directory record has a date"))?;
        // An extended attribute record is the first part of the extent and not part of the data (6.5.1).
        let first = u64::from(extent) + u64::from(bytes[1]);
        Ok(Record {
            offset,
            data_offset: first * crate::SECTOR_SIZE,
            data_length,
            date,
            flags: bytes[25],
            identifier,
            system_use: bytes.get(base_length(identifier_length)..).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: NewRecord<'_> =
        NewRecord { extent: 29, data_length: 2048, date: [0; 7], flags: DIRECTORY, identifier: b"BOOT" };

    #[test]
    fn a_record_reads_back_with_its_system_use_area() {
        let bytes = RECORD.to_bytes(b"NM\x05");
        assert_eq!(bytes.len(), 42);
        let record = Record::parse(&bytes, 7).unwrap();
        assert_eq!((record.data_offset, record.data_length, record.flags), (29 * 2048, 2048, DIRECTORY));
        assert_eq!((record.identifier, record.system_use), (b"BOOT".as_slice(), b"NM\x05\0".as_slice()));
    }

    #[test]
    fn a_record_that_would_cross_a_sector_starts_the_next_one() {
        let mut directory = vec![1; SECTOR - 37];
        RECORD.append(&mut directory, b"");
        assert_eq!(directory.len(), SECTOR + 38);
        assert_eq!(directory[SECTOR - 37..SECTOR], [0; 37]);
    }

    #[test]
    fn broken_records_name_their_offset() {
        let good = RECORD.to_bytes(b"");
        let offset_of = |bytes: &[u8]| match Record::parse(bytes, 99) {
            Err(ReadError::Invalid { offset, .. } | ReadError::Unsupported { offset, .. }) => offset,
            other => panic!("{other:?}"),
        };
        for (at, value) in [(0, 33), (0, 255), (2, 1), (10, 1), (26, 1), (32, 0), (32, 30)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(offset_of(&bytes), 99, "byte {at}");
        }
        assert_eq!(offset_of(&[]), 99);
    }
}
