//! The fields of one Directory Record (9.1).
//!
//! ```text
//!  0 length   1 EAR   2 extent (both)   10 length of the data (both)   18 date (7)   25 flags   26 unit   27 gap
//! 28 volume (both 16)   32 length of the identifier   33 identifier | 00 when its length is even | system use area
//! ```
//!
//! [`parse`] reports faults that make a record unusable, [`check`] reports the others.

use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::ecma119::date::{Date, parse_record};
use crate::ecma119::field::{array, read_both_u16, read_both_u32};
use crate::ecma119::record::{ASSOCIATED, DIRECTORY, HEADER, NOT_FINAL, base_length};

/// 9.1.6: reserved bits.
const UNDEFINED: u8 = 0x60;
/// 9.1.6: an extended attribute record describes the format or the permissions of the file.
const NEEDS_ATTRIBUTES: u8 = 0x18;

/// A usable record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed {
    /// The offset from the start of the image.
    pub(super) offset: u64,
    pub(super) length: usize,
    /// The first sector of the extent. An extended attribute record comes first.
    pub(super) extent: u32,
    /// The number of sectors of the extended attribute record.
    pub(super) attributes: u8,
    pub(super) data_length: u32,
    pub(super) flags: u8,
    identifier_length: usize,
}

impl Parsed {
    pub(super) fn directory(&self) -> bool {
        self.flags & DIRECTORY != 0
    }

    pub(super) fn associated(&self) -> bool {
        self.flags & ASSOCIATED != 0
    }

    pub(super) fn last_section(&self) -> bool {
        self.flags & NOT_FINAL == 0
    }

    /// Returns the offset of the data.
    pub(super) fn data_offset(&self) -> u64 {
        (u64::from(self.extent) + u64::from(self.attributes)) * SECTOR_SIZE
    }

    pub(super) fn identifier<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[HEADER..HEADER + self.identifier_length]
    }

    /// Returns the system use area and its offset.
    pub(super) fn system_use<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], u64) {
        let base = base_length(self.identifier_length).min(self.length);
        (&bytes[base..self.length], self.offset + base as u64)
    }
}

/// Parses the record at the start of `bytes`, which end with their sector; `offset` is their offset in the image.
pub(super) fn parse(checker: &mut Checker<'_>, bytes: &[u8], offset: u64) -> Option<Parsed> {
    let length = bytes.first().copied().map_or(0, usize::from);
    if length <= HEADER {
        checker.find(
            Rule::RecordLength,
            offset,
            format_args!("{length} bytes are fewer than the shortest record has"),
        );
        return None;
    }
    if length > bytes.len() {
        let message = format_args!("{length} bytes, {} are left in the sector", bytes.len());
        checker.find(Rule::RecordCrossesSector, offset, message);
        return None;
    }
    let identifier_length = usize::from(bytes[32]);
    if identifier_length == 0 || HEADER + identifier_length > length {
        let message = format_args!("{identifier_length} bytes in a record of {length}");
        checker.find(Rule::RecordIdentifier, offset + 32, message);
        return None;
    }
    let mut number = |at: usize| {
        let value = read_both_u32(bytes, at);
        if value.is_none() {
            let message = format_args!("{:02x?}", &bytes[at..at + 8]);
            checker.find(Rule::RecordByteOrders, offset + at as u64, message);
        }
        // Most readers use the little-endian half.
        value.or_else(|| array(bytes, at).map(u32::from_le_bytes))
    };
    let (extent, data_length) = (number(2)?, number(10)?);
    let (attributes, flags) = (bytes[1], bytes[25]);
    Some(Parsed { offset, length, extent, attributes, data_length, flags, identifier_length })
}

/// Checks the other fields of a record.
pub(super) fn check(checker: &mut Checker<'_>, record: &Parsed, bytes: &[u8]) {
    let Parsed { offset, length, flags, identifier_length, .. } = *record;
    let base = base_length(identifier_length);
    if !length.is_multiple_of(2) || length < base {
        let message = format_args!("{length} bytes with an identifier of {identifier_length}");
        checker.find(Rule::RecordLength, offset, message);
    }
    if identifier_length.is_multiple_of(2) && base <= length {
        let at = base - 1;
        checker.zeros(Rule::RecordPadding, offset + at as u64, &bytes[at..base], "the padding byte");
    }
    if !array(bytes, 18).is_some_and(short_date) {
        checker.find(Rule::RecordDate, offset + 18, format_args!("{:?}", &bytes[18..25]));
    }
    let wrong = if record.directory() { UNDEFINED | ASSOCIATED | NOT_FINAL } else { UNDEFINED };
    if flags & wrong != 0 || flags & NEEDS_ATTRIBUTES != 0 && record.attributes == 0 {
        checker.find(Rule::RecordFlags, offset + 25, format_args!("{flags:#04x}"));
    }
    if bytes[26] != 0 || bytes[27] != 0 {
        let message = format_args!("units of {} with gaps of {}", bytes[26], bytes[27]);
        checker.find(Rule::RecordInterleaved, offset + 26, message);
    }
    match read_both_u16(bytes, 28) {
        None => {
            checker.find(Rule::RecordByteOrders, offset + 28, format_args!("{:02x?}", &bytes[28..32]));
        }
        Some(1) => {}
        Some(other) => checker.find(Rule::RecordVolume, offset + 28, format_args!("volume {other}")),
    }
    if record.attributes != 0 {
        let message = format_args!("{} sectors, not checked", record.attributes);
        checker.find(Rule::ExtendedAttributes, offset + 1, message);
    }
}

/// Returns whether 7 bytes are a valid date or unspecified.
pub(super) fn short_date(bytes: [u8; 7]) -> bool {
    bytes == [0; 7]
        || parse_record(bytes)
            .and_then(|epoch| Date::from_epoch(epoch + 900 * i64::from(bytes[6].cast_signed())))
            .is_some_and(|date| date.record()[..6] == bytes[..6])
}

#[cfg(test)]
mod tests {
    use super::super::descriptors::long_date;
    use super::*;

    #[test]
    fn dates_must_exist_in_the_calendar() {
        assert!(short_date([0; 7]));
        assert!(short_date([124, 2, 29, 23, 59, 59, 52]));
        assert!(short_date([124, 2, 29, 0, 0, 0, 0xD0]));
        assert!(!short_date([123, 2, 29, 0, 0, 0, 0]));
        assert!(!short_date([124, 4, 31, 0, 0, 0, 0]));
        assert!(!short_date([124, 4, 30, 0, 0, 0, 53]));
        assert!(long_date(*b"2024022912000099\0"));
        assert!(long_date(*b"0000000000000000\0"));
        assert!(!long_date(*b"0000000000000000\x01"));
        assert!(!long_date(*b"2023022912000000\0"));
        assert!(!long_date(*b"20240229120000x0\0"));
        assert!(!long_date([0; 17]));
    }
}
