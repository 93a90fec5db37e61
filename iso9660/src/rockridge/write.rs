//! Encodes the system use areas of written images.
//!
//! An area is encoded before the address of its continuation is known: [`SystemUse`] holds the bytes for the record and
//! the overflow. The planner places the overflow and appends the CE entry that points to it.

use super::{CONTINUE, CURRENT, PARENT, ROOT, WRITTEN_NAME_LIMIT};
use crate::ecma119::field::both_u32;
use crate::ecma119::record::MAX_LENGTH;

/// The length of a CE entry.
pub(crate) const CONTINUATION_ENTRY: usize = 28;
/// The longest part of a name in one NM entry, and of the components in one SL entry.
const PIECE: usize = 250;
/// The number of bytes of an SL component before its text.
const COMPONENT: usize = 2;

/// POSIX file types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PosixFileType {
    Directory,
    File,
    Link,
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posix {
    pub(crate) kind: PosixFileType,
    pub(crate) permissions: u16,
    pub(crate) links: u32,
    pub(crate) serial: u32,
    pub(crate) date: [u8; 7],
}

/// The relocation state of a directory, or of a record that represents it (RRIP 4.1.5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Relocation {
    Ordinary,
    /// CL: the directory with this name begins in another sector.
    MovedTo(u32),
    /// PL: the original parent of this relocated directory begins in another sector.
    MovedFrom(u32),
    /// RE: the directory is shown elsewhere, or not at all.
    Hidden,
}

/// A system use area, before its continuation has an address.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemUse {
    /// The bytes inside the record.
    pub(crate) inline: Vec<u8>,
    /// The bytes of the continuation area. If there are any, a CE entry must follow `inline`.
    pub(crate) overflow: Vec<u8>,
}

impl SystemUse {
    /// Returns the area of the root's record of itself.
    pub(crate) fn root(posix: &Posix) -> SystemUse {
        let mut area = SystemUse::default();
        entry(&mut area.inline, b"SP", &[0xBE, 0xEF, 0]);
        posix.append(&mut area.inline);
        // Of the two identifiers of RRIP 1.12, this is the one that every reader recognises.
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

    /// Returns the area of a directory's record of itself or of its parent.
    pub(crate) fn unnamed(posix: &Posix, place: Relocation) -> SystemUse {
        let mut area = SystemUse::default();
        posix.append(&mut area.inline);
        place.append(&mut area.inline);
        area
    }

    /// Returns the area of a child whose record has `base` bytes before the area. `name` has at most
    /// [`WRITTEN_NAME_LIMIT`] bytes; `target` is the target of a symbolic link.
    pub(crate) fn named(
        posix: &Posix,
        place: Relocation,
        name: &str,
        target: Option<&str>,
        base: usize,
    ) -> SystemUse {
        debug_assert!(name.len() <= WRITTEN_NAME_LIMIT);
        let mut area = SystemUse::unnamed(posix, place);
        let names = name_entries(name.as_bytes());
        let links = target.map(|target| link_entries(target.as_bytes())).unwrap_or_default();
        let used = base + area.inline.len();
        if used + names.len() + links.len() <= MAX_LENGTH {
            area.inline.extend_from_slice(&names);
            area.inline.extend_from_slice(&links);
        } else if !links.is_empty() && used + names.len() + CONTINUATION_ENTRY <= MAX_LENGTH {
            area.inline.extend_from_slice(&names);
            area.overflow = links;
        } else {
            area.overflow = [names, links].concat();
        }
        area
    }
}

/// Appends the CE entry that points to an overflow (SUSP 5.1).
pub(crate) fn append_continuation(inline: &mut Vec<u8>, block: u32, offset: u32, length: u32) {
    entry(inline, b"CE", &[both_u32(block), both_u32(offset), both_u32(length)].concat());
}

impl Posix {
    /// Appends PX (RRIP 4.1.1) and TF with the modification date only (4.1.6).
    fn append(&self, area: &mut Vec<u8>) {
        let kind = match self.kind {
            PosixFileType::Directory => 0o040_000,
            PosixFileType::File => 0o100_000,
            PosixFileType::Link => 0o120_000,
        };
        let mode = kind | u32::from(self.permissions & 0o7777);
        entry(area, b"PX", &[mode, self.links, 0, 0, self.serial].map(both_u32).concat());
        entry(area, b"TF", &[&[0x02], self.date.as_slice()].concat());
    }
}

impl Relocation {
    fn append(self, area: &mut Vec<u8>) {
        match self {
            Relocation::Ordinary => {}
            Relocation::MovedTo(sector) => entry(area, b"CL", &both_u32(sector)),
            Relocation::MovedFrom(sector) => entry(area, b"PL", &both_u32(sector)),
            Relocation::Hidden => entry(area, b"RE", &[]),
        }
    }
}

/// Returns the NM entries (RRIP 4.1.4) of a name.
fn name_entries(name: &[u8]) -> Vec<u8> {
    let mut entries = Vec::with_capacity(name.len() + 10);
    let mut pieces = name.chunks(PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_some() { CONTINUE } else { 0 };
        entry(&mut entries, b"NM", &[&[flags], piece].concat());
    }
    entries
}

/// Returns the SL entries (RRIP 4.1.3) of a target. A component is its flags, the length of its text and the text. An
/// entry ends inside a component, except at `..` and `.`: between two components, libarchive loses the slash.
fn link_entries(target: &[u8]) -> Vec<u8> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut piece = Vec::new();
    if target.starts_with(b"/") {
        piece.extend_from_slice(&[ROOT, 0]);
    }
    let mut names = target.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let (flags, mut text) = match name {
            b"." => (CURRENT, b"".as_slice()),
            b".." => (PARENT, b"".as_slice()),
            name => (0, name),
        };
        loop {
            let room = PIECE - piece.len();
            let needed = COMPONENT + text.len();
            // A component that is not the last leaves room for the beginning of the next one, even an empty beginning.
            let behind = if names.peek().is_some() { COMPONENT } else { 0 };
            if needed + behind <= room {
                component(&mut piece, flags, text);
                break;
            }
            if !text.is_empty() {
                let (now, later) = text.split_at((text.len() - 1).min(room - COMPONENT));
                component(&mut piece, CONTINUE, now);
                text = later;
            }
            pieces.push(std::mem::take(&mut piece));
        }
    }
    let mut entries = Vec::new();
    for piece in pieces {
        entry(&mut entries, b"SL", &[&[CONTINUE], piece.as_slice()].concat());
    }
    entry(&mut entries, b"SL", &[&[0], piece.as_slice()].concat());
    entries
}

/// Appends a component with at most 248 bytes of text.
fn component(piece: &mut Vec<u8>, flags: u8, text: &[u8]) {
    piece.extend_from_slice(&[flags, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
    piece.extend_from_slice(text);
}

/// Appends one entry with at most 251 bytes of data.
fn entry(area: &mut Vec<u8>, signature: &[u8; 2], data: &[u8]) {
    area.extend_from_slice(signature);
    area.extend_from_slice(&[u8::try_from(data.len() + 4).unwrap_or(u8::MAX), 1]);
    area.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSIX: Posix = Posix {
        kind: PosixFileType::File,
        permissions: 0o444,
        links: 1,
        serial: 3,
        date: [123, 1, 1, 0, 0, 0, 0],
    };

    #[test]
    fn the_area_of_the_root_declares_rock_ridge() {
        let area = SystemUse::root(&Posix { kind: PosixFileType::Directory, permissions: 0o555, ..POSIX });
        assert_eq!(area.inline[..7], *b"SP\x07\x01\xbe\xef\x00");
        assert_eq!(area.inline[7..15], *b"PX\x2c\x01\x6d\x41\x00\x00");
        assert_eq!(&area.overflow[..2], b"ER");
        assert_eq!(usize::from(area.overflow[2]), area.overflow.len());
    }

    #[test]
    fn a_short_name_is_in_the_record_and_a_long_one_in_the_continuation() {
        let short = SystemUse::named(&POSIX, Relocation::Ordinary, "ks.cfg", None, 42);
        assert!(short.inline.ends_with(b"NM\x0b\x01\x00ks.cfg"));
        assert!(short.overflow.is_empty());
        let long = SystemUse::named(&POSIX, Relocation::Ordinary, &"n".repeat(253), None, 70);
        assert_eq!(long.inline.len(), 56);
        assert_eq!(&long.overflow[..5], b"NM\xff\x01\x01");
        assert_eq!(&long.overflow[255..], b"NM\x08\x01\x00nnn");
    }

    #[test]
    fn a_target_is_a_list_of_components() {
        assert_eq!(link_entries(b"../a//b/"), b"SL\x0d\x01\x00\x04\x00\x00\x01a\x00\x01b");
        assert_eq!(link_entries(b"/"), b"SL\x07\x01\x00\x08\x00");
        assert_eq!(link_entries(b"./x"), b"SL\x0a\x01\x00\x02\x00\x00\x01x");
        let long = link_entries(&[b'x'; 255]);
        assert_eq!(long[..7], [b'S', b'L', 255, 1, CONTINUE, CONTINUE, 248]);
        assert_eq!(long[255..262], [b'S', b'L', 14, 1, 0, 0, 7]);
        // `b` would fit in the first entry, but libarchive would lose the slash after it.
        let between = link_entries(&[&[b'a'; 244], b"/b/c".as_slice()].concat());
        assert_eq!(&between[251..], b"\x01\x00SL\x0b\x01\x00\x00\x01b\x00\x01c");
    }

    #[test]
    fn the_longest_name_and_target_fit_into_one_block() {
        let posix = Posix { kind: PosixFileType::Link, ..POSIX };
        for target in
            ["../".repeat(341), "x/".repeat(512), "x".repeat(1024), format!("{}/", "y".repeat(248)).repeat(4)]
        {
            let area = SystemUse::named(&posix, Relocation::Ordinary, &"n".repeat(253), Some(&target), 70);
            assert!(area.overflow.len() <= 2048, "{} bytes for {target}", area.overflow.len());
        }
    }
}
