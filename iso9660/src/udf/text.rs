//! Names and dates (UDF 2.1.1, 2.1.3; ECMA-167 1/7.3).
//!
//! ```text
//! name      08 | one byte per character, U+0000 to U+00FF            10 | 16 bits per character, big-endian
//! dstring   a name in a field of fixed size; the last byte is the number of used bytes
//! date (12) 0 type (4 bits), minutes from UTC (12 bits, signed)   2 year   4 month   5 day   6 hour   7 minute   8 second
//! ```

use super::u16_at;
use crate::ecma119::date;
use crate::joliet;

/// Returns the bytes of a name in UTF-8, with lone surrogates as in [`joliet::name_bytes`]; `None` when its form is unknown.
pub(super) fn name(bytes: &[u8]) -> Option<Vec<u8>> {
    match bytes.split_first() {
        Some((8, latin)) => Some(latin.iter().copied().map(char::from).collect::<String>().into_bytes()),
        Some((16, units)) if units.len().is_multiple_of(2) => Some(joliet::name_bytes(units)),
        _ => None,
    }
}

/// Returns the text of a `dstring`; empty when it has none.
pub(super) fn dstring(field: &[u8]) -> String {
    let used = field.last().copied().map_or(0, usize::from).min(field.len().saturating_sub(1));
    let bytes = name(&field[..used]).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// Returns the seconds since 1970 of a date, if it is valid.
pub(super) fn date(bytes: &[u8]) -> Option<i64> {
    let zone = u16_at(bytes, 0)?;
    let year = u16_at(bytes, 2)?.cast_signed();
    let &[month, day, hour, minute, second] = bytes.get(4..9)?.first_chunk()?;
    let local = date::seconds(i64::from(year), month, day, hour, minute, second, 0)?;
    // The low 12 bits are signed; -2047 means that the time zone is unknown.
    let minutes = i64::from((zone << 4).cast_signed() >> 4);
    Some(if (-1440..=1440).contains(&minutes) { local - minutes * 60 } else { local })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_or_two_bytes_per_character() {
        assert_eq!(name(b"\x08a\xfc").as_deref(), Some("aü".as_bytes()));
        assert_eq!(name(b"\x10\0a\xd8\x3d\xde\0").as_deref(), Some("a😀".as_bytes()));
        assert_eq!(name(b"\x10\xd8\x3d").as_deref(), Some(b"\xed\xa0\xbd".as_slice()), "a lone surrogate");
        assert_eq!(name(b"\x10\0"), None);
        assert_eq!(name(b"\xfeab"), None);
        assert_eq!(name(b""), None);
    }

    #[test]
    fn the_last_byte_of_a_dstring_is_its_length() {
        assert_eq!(dstring(b"\x08CIDATA\0\0\x07"), "CIDATA");
        assert_eq!(dstring(b"\x08CI\xff"), "CI");
        assert_eq!(dstring(b""), "");
    }

    #[test]
    fn dates_are_converted_with_their_time_zone() {
        let utc = [0x00, 0x10, 0xe7, 0x07, 11, 14, 22, 13, 20, 0, 0, 0];
        assert_eq!(date(&utc), Some(1_700_000_000));
        // +60 minutes, then "unknown".
        assert_eq!(date(&[&[0x3c, 0x10], &utc[2..]].concat()), Some(1_700_000_000 - 3600));
        assert_eq!(date(&[&[0x01, 0x18], &utc[2..]].concat()), Some(1_700_000_000));
        assert_eq!(date(&[0; 12]), None);
    }
}
