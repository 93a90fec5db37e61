//! The system use areas that the writer makes.
//!
//! An area is made without knowing where its continuation will be: [`SystemUse`] holds what goes into the record and
//! what overflows; the planner places the overflow and appends the CE entry that points to it.

use super::{CONTINUE, NAME_LIMIT};
use crate::ecma119::field::both_u32;
use crate::ecma119::record::MAX_LENGTH;

/// The length of a CE entry.
pub(crate) const CONTINUATION_ENTRY: usize = 28;
/// The longest piece of a name in one NM entry.
const NAME_PIECE: usize = 250;
/// POSIX file types.
const TYPE_DIRECTORY: u32 = 0o040_000;
const TYPE_FILE: u32 = 0o100_000;

/// The attributes of a file or directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posix {
    pub(crate) directory: bool,
    pub(crate) permissions: u16,
    pub(crate) links: u32,
    pub(crate) serial: u32,
    pub(crate) date: [u8; 7],
}

/// A system use area, before its continuation has an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemUse {
    /// What is inside the record.
    pub(crate) inline: Vec<u8>,
    /// What goes to a continuation area; when not empty, a CE entry must follow `inline`.
    pub(crate) overflow: Vec<u8>,
}

impl SystemUse {
    /// The area of the root's record of itself.
    pub(crate) fn root(posix: &Posix) -> SystemUse {
        let mut area = SystemUse::default();
        entry(&mut area.inline, b"SP", &[0xBE, 0xEF, 0]);
        posix.append(&mut area.inline);
        // Of the two identifiers of RRIP 1.12 this is the one that every reader knows.
        let (identifier, description, source) = (
            b"IEEE_P1282".as_slice(),
            b"THE IEEE P1282 PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS.".as_slice(),
            b"PLEASE CONTACT THE IEEE STANDARDS DEPARTMENT, PISCATAWAY, NJ, USA FOR THE P1282 SPECIFICATION."
                .as_slice(),
        );
        let lengths =
            [identifier, description, source].map(|text| u8::try_from(text.len()).unwrap_or(u8::MAX));
        let data = [lengths.as_slice(), &[1], identifier, description, source].concat();
        entry(&mut area.overflow, b"ER", &data);
        area
    }

    /// The area of a directory's record of itself or of its parent.
    pub(crate) fn unnamed(posix: &Posix) -> SystemUse {
        let mut area = SystemUse::default();
        posix.append(&mut area.inline);
        area
    }

    /// The area of a child, whose record has `base` bytes before it. `name` has at most [`NAME_LIMIT`] bytes.
    pub(crate) fn named(posix: &Posix, name: &str, base: usize) -> SystemUse {
        debug_assert!(name.len() <= NAME_LIMIT);
        let mut area = SystemUse::unnamed(posix);
        let names = name_entries(name.as_bytes());
        if base + area.inline.len() + names.len() <= MAX_LENGTH {
            area.inline.extend_from_slice(&names);
        } else {
            area.overflow = names;
        }
        area
    }
}

/// Appends the CE entry that points to an overflow (SUSP 5.1).
pub(crate) fn append_continuation(inline: &mut Vec<u8>, block: u32, offset: u32, length: u32) {
    entry(inline, b"CE", &[both_u32(block), both_u32(offset), both_u32(length)].concat());
}

impl Posix {
    /// PX (RRIP 4.1.1) and TF with the modification date alone (4.1.6).
    fn append(&self, area: &mut Vec<u8>) {
        let kind = if self.directory { TYPE_DIRECTORY } else { TYPE_FILE };
        let mode = kind | u32::from(self.permissions & 0o7777);
        entry(area, b"PX", &[mode, self.links, 0, 0, self.serial].map(both_u32).concat());
        entry(area, b"TF", &[&[0x02], self.date.as_slice()].concat());
    }
}

/// NM entries (RRIP 4.1.4).
fn name_entries(name: &[u8]) -> Vec<u8> {
    let mut entries = Vec::with_capacity(name.len() + 10);
    let mut pieces = name.chunks(NAME_PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_some() { CONTINUE } else { 0 };
        entry(&mut entries, b"NM", &[&[flags], piece].concat());
    }
    entries
}

/// Appends one entry; the callers' data has at most 251 bytes.
fn entry(area: &mut Vec<u8>, signature: &[u8; 2], data: &[u8]) {
    area.extend_from_slice(signature);
    area.extend_from_slice(&[u8::try_from(data.len() + 4).unwrap_or(u8::MAX), 1]);
    area.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSIX: Posix =
        Posix { directory: false, permissions: 0o444, links: 1, serial: 3, date: [123, 1, 1, 0, 0, 0, 0] };

    #[test]
    fn the_root_says_which_extension_follows() {
        let area = SystemUse::root(&Posix { directory: true, permissions: 0o555, ..POSIX });
        assert_eq!(area.inline[..7], *b"SP\x07\x01\xbe\xef\x00");
        assert_eq!(area.inline[7..15], *b"PX\x2c\x01\x6d\x41\x00\x00");
        assert_eq!(&area.overflow[..2], b"ER");
        assert_eq!(usize::from(area.overflow[2]), area.overflow.len());
    }

    #[test]
    fn a_short_name_stays_in_the_record_and_a_long_one_leaves_it() {
        let short = SystemUse::named(&POSIX, "ks.cfg", 42);
        assert!(short.inline.ends_with(b"NM\x0b\x01\x00ks.cfg"));
        assert!(short.overflow.is_empty());
        let long = SystemUse::named(&POSIX, &"n".repeat(255), 70);
        assert_eq!(long.inline.len(), 56);
        assert_eq!(&long.overflow[..5], b"NM\xff\x01\x01");
        assert_eq!(&long.overflow[255..], b"NM\x0a\x01\x00nnnnn");
    }
}
