//! The entries of Rock Ridge in one record.
//!
//! ```text
//! PX 36 or 44  mode, links, uid, gid [, serial]     NM 5+n  flags, a piece of the name      CL PL 12  sector
//! PN 20        device                               SL 5+n  flags, components               RE 4
//! TF 5+7k, 17k flags, dates                         ZF 16   method, header, block, size     RR 5  (1.09 only)
//! ```
//!
//! An entry with a wrong length is reported and not parsed.

use super::descriptors::long_date;
use super::record::{Parsed, short_date};
use super::report::shown;
use super::susp::both;
use super::{Checker, Rule};
use crate::ecma119::field::array;

/// The identifiers of ER entries that declare Rock Ridge.
pub(super) const EXTENSIONS: [&[u8]; 3] = [b"RRIP_1991A", b"IEEE_P1282", b"IEEE_1282"];
/// The longest name in bytes.
const NAME_LIMIT: usize = 255;
/// The longest target of a symbolic link in bytes.
const TARGET_LIMIT: usize = 4096;

const CONTINUE: u8 = 0x01;
const CURRENT: u8 = 0x02;
const PARENT: u8 = 0x04;
const ROOT: u8 = 0x08;
/// RRIP 1.09: the flag for the name of the host, which known writers do not use.
const HOST: u8 = 0x20;

/// File types of POSIX modes.
const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const BLOCK: u32 = 0o060_000;
const CHARACTER: u32 = 0o020_000;
const OTHERS: [u32; 3] = [0o100_000, 0o010_000, 0o140_000];

/// The Rock Ridge values of one record.
#[derive(Debug, Default)]
pub(super) struct Rock {
    /// The offset of PX, the mode and the links.
    pub(super) posix: Option<(u64, u32, u32)>,
    name: Vec<u8>,
    name_at: Option<u64>,
    /// Whether a flag marks the name as that of the directory or of its parent.
    special: bool,
    name_open: bool,
    link: bool,
    target: usize,
    device: bool,
    dates: bool,
    pub(super) child_link: Option<u32>,
    /// The offset and the value of PL.
    pub(super) parent_link: Option<(u64, u32)>,
    pub(super) relocated: bool,
}

/// Parses an entry. Returns whether it is an entry of Rock Ridge.
pub(super) fn entry(checker: &mut Checker<'_>, rock: &mut Rock, entry: &[u8], offset: u64) -> bool {
    let length = entry.len();
    let (fits, once) = match &entry[..2] {
        b"PX" => (matches!(length, 36 | 44), rock.posix.is_none()),
        b"PN" => (length == 20, !rock.device),
        b"TF" => (length == times(entry), true),
        b"NM" => (length >= 5, rock.name_at.is_none() || rock.name_open),
        b"SL" => (length >= 5, true),
        b"CL" => (length == 12, rock.child_link.is_none()),
        b"PL" => (length == 12, rock.parent_link.is_none()),
        b"RE" => (length == 4, !rock.relocated),
        b"ZF" => (length == 16, true),
        b"RR" => (length == 5, true),
        _ => return false,
    };
    if !fits || !once {
        let again = if once { "" } else { ", for the second time" };
        let message = format_args!("{} of {length} bytes{again}", shown(&entry[..2]));
        checker.find(Rule::RockRidgeEntry, offset, message);
        return true;
    }
    match &entry[..2] {
        b"PX" => {
            let fields: Vec<u32> =
                (4..length).step_by(8).map(|at| both(checker, entry, at, offset)).collect();
            rock.posix = Some((offset, fields[0], fields[1]));
        }
        b"PN" => {
            both(checker, entry, 4, offset);
            both(checker, entry, 12, offset);
            rock.device = true;
        }
        b"TF" => dates(checker, rock, entry, offset),
        b"NM" => name(checker, rock, entry, offset),
        b"SL" => link(checker, rock, entry, offset),
        b"CL" => rock.child_link = Some(both(checker, entry, 4, offset)),
        b"PL" => rock.parent_link = Some((offset, both(checker, entry, 4, offset))),
        b"RE" => rock.relocated = true,
        b"ZF" => compressed(checker, entry, offset),
        _ => {}
    }
    true
}

/// Returns the length of a TF entry with these flags.
fn times(entry: &[u8]) -> usize {
    let flags = entry.get(4).copied().unwrap_or_default();
    let each = if flags & 0x80 == 0 { 7 } else { 17 };
    5 + each * (flags & 0x7F).count_ones() as usize
}

fn dates(checker: &mut Checker<'_>, rock: &mut Rock, entry: &[u8], offset: u64) {
    rock.dates = true;
    let long = entry[4] & 0x80 != 0;
    let each = if long { 17 } else { 7 };
    for at in (5..entry.len()).step_by(each) {
        let valid = match long {
            true => array(entry, at).is_some_and(long_date),
            false => array(entry, at).is_some_and(short_date),
        };
        if !valid {
            let message = format_args!("{:02x?}", &entry[at..at + each]);
            checker.find(Rule::RockRidgeDate, offset + at as u64, message);
        }
    }
}

fn name(checker: &mut Checker<'_>, rock: &mut Rock, entry: &[u8], offset: u64) {
    let (flags, piece) = (entry[4], &entry[5..]);
    rock.name_at.get_or_insert(offset);
    rock.name_open = flags & CONTINUE != 0;
    let special = flags & (CURRENT | PARENT | HOST);
    if flags & !(CONTINUE | CURRENT | PARENT | HOST) != 0 || special != 0 && !piece.is_empty() {
        let message = format_args!("flags {flags:#04x} with {}", shown(piece));
        checker.find(Rule::RockRidgeName, offset + 4, message);
    }
    rock.special |= special != 0;
    if rock.name.len() + piece.len() > NAME_LIMIT {
        let message = format_args!("more than {NAME_LIMIT} bytes: {}", shown(&rock.name));
        return checker.find(Rule::RockRidgeName, offset, message);
    }
    rock.name.extend_from_slice(piece);
}

fn link(checker: &mut Checker<'_>, rock: &mut Rock, entry: &[u8], offset: u64) {
    rock.link = true;
    let mut wrong = entry[4] & !CONTINUE != 0;
    let mut rest = &entry[5..];
    while let Some((&[flags, length], after)) = rest.split_first_chunk() {
        let special = flags & (CURRENT | PARENT | ROOT) != 0;
        wrong |= flags & !(CONTINUE | CURRENT | PARENT | ROOT | 0x30) != 0 || special && length != 0;
        let Some(text) = after.get(..usize::from(length)) else {
            wrong = true;
            rest = &[];
            break;
        };
        wrong |= text.iter().any(|byte| matches!(byte, 0 | b'/'));
        rock.target += text.len().max(2) + 1;
        rest = &after[text.len()..];
    }
    if wrong || !rest.is_empty() || rock.target > TARGET_LIMIT {
        let message = format_args!("{}", shown(&entry[5..]));
        checker.find(Rule::RockRidgeLink, offset, message);
    }
}

/// Checks ZF: method `pz`, the header in words, the block size as a power of two, the size.
fn compressed(checker: &mut Checker<'_>, entry: &[u8], offset: u64) {
    if &entry[4..6] != b"pz" || entry[6] != 4 || !(15..=17).contains(&entry[7]) {
        let message = format_args!("{:02x?}", &entry[4..8]);
        checker.find(Rule::CompressedFile, offset + 4, message);
    }
    both(checker, entry, 8, offset);
}

impl Rock {
    /// Returns the name, if the record has one.
    pub(super) fn name(&self) -> Option<&[u8]> {
        (self.name_at.is_some() && !self.special).then_some(&self.name)
    }

    /// Returns whether the record has any Rock Ridge entry.
    fn any(&self) -> bool {
        self.posix.is_some() || self.name_at.is_some() || self.dates || self.link
    }

    /// Checks the values of a record together.
    pub(super) fn check(&self, checker: &mut Checker<'_>, record: &Parsed) {
        if let (Some(offset), Some(name)) = (self.name_at, self.name()) {
            let component = !name.is_empty()
                && !name.contains(&0)
                && !name.contains(&b'/')
                && !matches!(name, b"." | b"..");
            if !component || self.name_open {
                checker.find(Rule::RockRidgeName, offset, format_args!("{}", shown(name)));
            }
        }
        let Some((offset, mode, links)) = self.posix.filter(|(_, mode, _)| *mode != 0) else {
            if self.any() {
                let message = format_args!("{} has no mode", shown(&self.name));
                checker.find(Rule::RockRidgeMissing, record.offset, message);
            }
            return;
        };
        let kind = mode & TYPE;
        // A record that represents a relocated directory is not a directory itself.
        let directory = record.directory() || self.child_link.is_some();
        let known = match kind {
            DIRECTORY => directory,
            LINK => self.link && !directory,
            BLOCK | CHARACTER => self.device && !directory,
            other => OTHERS.contains(&other) && !directory,
        };
        if !known || self.link && kind != LINK {
            let message = format_args!("mode {mode:o} of a {}", if directory { "directory" } else { "file" });
            checker.find(Rule::RockRidgeMode, offset + 4, message);
        }
        if links == 0 {
            checker.find(Rule::RockRidgeLinks, offset + 12, format_args!("0 links"));
        }
    }
}
