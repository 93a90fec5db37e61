//! System use areas: SUSP entries and continuation areas.
//!
//! ```text
//! root "."  [up to 15 bytes of another system] SP ...        record's area --CE--> area --CE--> area ...
//! entry     signature (2) | length | version | data          rest: zeros
//! ```
//!
//! Invariants: a chain has at most [`MAX_AREAS`] areas, none twice. All continuation areas of a hierarchy together have
//! at most as many bytes as the image.

use super::extents::ExtentUse;
use super::report::shown;
use super::rock_ridge::{self, Rock};
use super::{Checker, Rule};
use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::ecma119::field::{array, read_both_u32};
use crate::error::ReadError;

/// The largest number of continuation areas of one record.
const MAX_AREAS: usize = 32;
/// The length of an SP entry in bytes.
const SP: usize = 7;
/// Known entries that are not checked: SUSP itself, zisofs, AAIP, Apple, Amiga, sparse files.
const KNOWN: [&[u8; 2]; 8] = [b"PD", b"ES", b"AL", b"AA", b"BA", b"AS", b"SF", b"XA"];

/// The record that an area belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Position {
    /// The record that the root has of itself.
    Root,
    /// The record that another directory has of itself.
    Itself,
    Parent,
    Entry,
}

/// The use of SUSP in one hierarchy.
pub(super) struct Susp {
    /// The position of the root's SP entry in its area.
    start: usize,
    /// The number of bytes to skip in the areas of other records.
    skip: usize,
    er_seen: bool,
    /// The offset of the first Rock Ridge entry.
    used: Option<u64>,
    /// The total number of bytes of all continuation areas.
    bytes: u64,
    pub(super) exhausted: bool,
}

/// The location of the next area.
type Next = Option<(u64, u64, u64)>;

impl Susp {
    /// Returns the SUSP state, if the area of the root's record of itself declares SUSP.
    pub(super) fn start(area: &[u8]) -> Option<Susp> {
        for start in [0, 15] {
            let Some(entry) = area.get(start..start + SP) else { continue };
            if entry.starts_with(b"SP\x07\x01\xBE\xEF") {
                let skip = usize::from(entry[6]);
                return Some(Susp { start, skip, er_seen: false, used: None, bytes: 0, exhausted: false });
            }
        }
        None
    }

    /// Reads the entries of a record, including those of its continuation areas. `space` is the size of the volume.
    pub(super) fn record(
        &mut self,
        checker: &mut Checker<'_>,
        area: &[u8],
        offset: u64,
        position: Position,
        space: u64,
    ) -> Result<Rock, ReadError> {
        let mut rock = Rock::default();
        let skip = if position == Position::Root { self.start } else { self.skip.min(area.len()) };
        let mut next = self.area(checker, &mut rock, &area[skip..], offset + skip as u64, position);
        let mut visited: Vec<(u64, u64)> = Vec::new();
        let mut block = [0; SECTOR];
        while let Some((start, length, entry)) = next {
            let end = start.saturating_add(length);
            let inside = start % SECTOR_SIZE + length <= SECTOR_SIZE && end <= space && end <= checker.len;
            if !inside || length == 0 {
                let message = format_args!("{length} bytes at {start:#x}");
                checker.find(Rule::ContinuationOutside, entry, message);
                break;
            }
            let again = visited.iter().any(|(from, to)| start < *to && *from < end);
            if again || visited.len() == MAX_AREAS {
                let message = format_args!("{} areas before {length} bytes at {start:#x}", visited.len());
                checker.find(Rule::ContinuationLoop, entry, message);
                break;
            }
            self.bytes += length;
            if self.bytes > checker.len {
                let message = format_args!("the continuation areas have more bytes than the image");
                checker.find(Rule::CheckIncomplete, entry, message);
                self.exhausted = true;
                break;
            }
            visited.push((start, end));
            checker.claims.claim(start, length, ExtentUse::Structure("a continuation area"));
            let area = &mut block[..usize::try_from(length).unwrap_or(SECTOR)];
            checker.fill(start, area)?;
            next = self.area(checker, &mut rock, area, start, position);
        }
        Ok(rock)
    }

    /// Reads the entries of one area.
    fn area(
        &mut self,
        checker: &mut Checker<'_>,
        rock: &mut Rock,
        area: &[u8],
        offset: u64,
        position: Position,
    ) -> Next {
        let (mut next, mut ended) = (None, false);
        let mut at = 0;
        while area.len() - at >= 4 && area[at..at + 2] != [0, 0] {
            let place = offset + at as u64;
            let length = usize::from(area[at + 2]);
            let Some(entry) = area.get(at..at + length).filter(|_| length >= 4) else {
                let message = format_args!("{} of {length} bytes", shown(&area[at..at + 2]));
                checker.find(Rule::SuspEntry, place + 2, message);
                return next;
            };
            if entry[3] != 1 {
                let message = format_args!("{} of version {}", shown(&entry[..2]), entry[3]);
                checker.find(Rule::SuspEntry, place + 3, message);
            }
            checker.counts.system_use_entries += 1;
            at += length;
            match &entry[..2] {
                b"CE" if next.is_some() => {
                    let message = format_args!("a second CE entry in one area");
                    checker.find(Rule::SuspEntry, place, message);
                }
                b"CE" => next = continuation(checker, entry, place),
                b"ST" => {
                    ended = true;
                    break;
                }
                b"SP" => {
                    let first = position == Position::Root && at == length;
                    if !first || length != SP {
                        checker.find(Rule::SuspStart, place, format_args!("an SP entry"));
                    }
                }
                b"ER" => self.reference(checker, entry, place, position),
                signature => {
                    if rock_ridge::entry(checker, rock, entry, place) {
                        self.used.get_or_insert(place);
                    } else if !KNOWN.iter().any(|known| *known == signature) {
                        checker.find(Rule::SuspUnknown, place, format_args!("{}", shown(signature)));
                    }
                }
            }
        }
        if area.len() - at >= 4 && !ended {
            let message = format_args!("{} bytes are left without an ST entry", area.len() - at);
            checker.find(Rule::SuspPadding, offset + at as u64, message);
        }
        checker.zeros(Rule::SuspPadding, offset + at as u64, &area[at..], "the rest of a system use area");
        next
    }

    /// Checks ER, which declares an extension.
    fn reference(&mut self, checker: &mut Checker<'_>, entry: &[u8], offset: u64, position: Position) {
        let lengths: usize =
            entry.get(4..7).unwrap_or_default().iter().map(|length| usize::from(*length)).sum();
        if entry.len() != 8 + lengths || position != Position::Root {
            let message = format_args!("{} bytes with texts of {lengths}", entry.len());
            return checker.find(Rule::ExtensionReference, offset, message);
        }
        let identifier = &entry[8..8 + usize::from(entry[4])];
        self.er_seen |= rock_ridge::EXTENSIONS.contains(&identifier);
    }

    /// Checks that Rock Ridge, if used, is declared.
    pub(super) fn finish(&self, checker: &mut Checker<'_>) -> bool {
        if let (Some(offset), false) = (self.used, self.er_seen) {
            let message =
                format_args!("Rock Ridge entries are used without an ER entry that declares Rock Ridge");
            checker.find(Rule::RockRidgeUnannounced, offset, message);
        }
        self.used.is_some()
    }
}

/// Returns whether an area without a usable SP entry looks like SUSP.
pub(super) fn resembles(area: &[u8]) -> bool {
    area.starts_with(b"SP") || area.len() >= 4 && area[3] == 1 && area[..2].iter().all(u8::is_ascii_uppercase)
}

/// Parses CE: the location of the continuation, and the offset of the entry.
fn continuation(checker: &mut Checker<'_>, entry: &[u8], offset: u64) -> Next {
    if entry.len() != 28 {
        checker.find(Rule::SuspEntry, offset + 2, format_args!("CE of {} bytes", entry.len()));
        return None;
    }
    let mut fields = [0; 3];
    for (field, at) in fields.iter_mut().zip([4, 12, 20]) {
        *field = u64::from(both(checker, entry, at, offset));
    }
    let [block, at, length] = fields;
    Some((block * SECTOR_SIZE + at, length, offset))
}

/// Returns a both-byte order number of an entry, or its little-endian half if they differ.
pub(super) fn both(checker: &mut Checker<'_>, entry: &[u8], at: usize, offset: u64) -> u32 {
    read_both_u32(entry, at).unwrap_or_else(|| {
        let bytes = entry.get(at..at + 8).unwrap_or_default();
        let message = format_args!("{}: {bytes:02x?}", shown(&entry[..2]));
        checker.find(Rule::SuspByteOrders, offset + at as u64, message);
        array(entry, at).map(u32::from_le_bytes).unwrap_or_default()
    })
}
