//! Identifiers of files and directories, and their order in a directory.
//!
//! ```text
//! primary    NAME.EXT;1   d-characters, one dot and a version for files      order of 9.3: name, extension, version
//! enhanced   anything     up to the length of its record                     order of bytes
//! Joliet     16-bit characters, `;1` optional                                order of units, or of 9.3 with 00 00
//! ```
//!
//! Two orders are in use. 9.3 compares the name and the extension separately, each padded with spaces. Writers with
//! relaxed characters compare whole identifiers, which differs when one has a character below the dot. Readers can rely
//! on either order, so a directory must follow one of them throughout; a directory with d-characters only must follow
//! 9.3.

use std::cmp::Ordering;

use super::descriptors::HierarchyRules;
use super::report::shown;
use super::{Checker, Rule};
use crate::ecma119::record::HEADER;
use crate::joliet;

/// 7.5.1: the longest name together with its extension.
const FILE_LIMIT: usize = 30;
/// 7.6.3: the longest directory identifier.
const DIRECTORY_LIMIT: usize = 31;

/// The identifier of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identifier<'a> {
    pub(super) bytes: &'a [u8],
    /// The offset of the record with the identifier.
    pub(super) offset: u64,
    pub(super) directory: bool,
    /// Whether the record represents a relocated directory: a file that may have the identifier of a file or of a
    /// directory.
    pub(super) child_link: bool,
}

impl Identifier<'_> {
    /// Checks the identifier by the rules of its hierarchy. `relaxed` disables the rules on characters, form and
    /// length.
    pub(super) fn check(&self, checker: &mut Checker<'_>, kind: HierarchyRules, relaxed: bool) {
        let offset = self.offset + HEADER as u64;
        if kind == HierarchyRules::Joliet {
            return joliet_identifier(checker, self.bytes, offset);
        }
        if self.bytes.iter().any(|byte| *byte < b' ' || *byte == b'/' || *byte == 0x7F) {
            return checker.find(Rule::IdentifierUnsafe, offset, format_args!("{}", shown(self.bytes)));
        }
        if !relaxed {
            self.interchange(checker, offset);
        }
    }

    /// Checks the form that every system can read (7.5.1 and 7.6).
    fn interchange(&self, checker: &mut Checker<'_>, offset: u64) {
        let (name, extension, version) = parts(self.bytes);
        let rest = extension.unwrap_or_default();
        // A second dot breaks the form, not the character set.
        let d = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        if !name.iter().all(d) || !rest.iter().all(|byte| d(byte) || *byte == b'.') {
            checker.find(Rule::IdentifierCharacters, offset, format_args!("{}", shown(self.bytes)));
        }
        let as_directory = extension.is_none() && version.is_none();
        let as_file = extension.is_some() && !rest.contains(&b'.') && version.is_some_and(is_version);
        let form = if self.directory { as_directory } else { as_file || self.child_link && as_directory };
        if !form || name.is_empty() && rest.is_empty() {
            checker.find(Rule::IdentifierForm, offset, format_args!("{}", shown(self.bytes)));
        }
        let long = name.len() > 8 || rest.len() > 3;
        checker.counts.level = checker.counts.level.max(if long { 2 } else { 1 });
        let length = name.len() + rest.len();
        if length > if self.directory { DIRECTORY_LIMIT } else { FILE_LIMIT } {
            let message = format_args!("{length} characters in {}", shown(self.bytes));
            checker.find(Rule::IdentifierLength, offset, message);
        }
    }
}

/// Returns whether a version is valid: 1 to 32767 (7.5.1).
fn is_version(version: &[u8]) -> bool {
    let text = std::str::from_utf8(version).unwrap_or_default();
    version.iter().all(u8::is_ascii_digit)
        && text.parse::<u16>().is_ok_and(|number| (1..=32_767).contains(&number))
}

fn joliet_identifier(checker: &mut Checker<'_>, identifier: &[u8], offset: u64) {
    if !identifier.len().is_multiple_of(2) {
        let message = format_args!("{} bytes", identifier.len());
        return checker.find(Rule::JolietIdentifier, offset, message);
    }
    let text = joliet::decode(identifier);
    if text.chars().any(|character| character.is_control() || character == '/') {
        let message = format_args!("{}", shown(text.as_bytes()));
        checker.find(Rule::JolietIdentifier, offset, message);
    } else if !joliet::is_text(identifier)
        || joliet::name(identifier).chars().any(|character| "*:;?\\".contains(character))
    {
        let message = format_args!("{}", shown(text.as_bytes()));
        checker.find(Rule::JolietCharacters, offset, message);
    }
}

/// Splits an identifier into name, extension (after the first dot) and version.
fn parts(identifier: &[u8]) -> (&[u8], Option<&[u8]>, Option<&[u8]>) {
    let (rest, version) = match identifier.iter().position(|byte| *byte == b';') {
        Some(at) => (&identifier[..at], Some(&identifier[at + 1..])),
        None => (identifier, None),
    };
    match rest.iter().position(|byte| *byte == b'.') {
        Some(at) => (&rest[..at], Some(&rest[at + 1..]), version),
        None => (rest, None, version),
    }
}

/// Returns the text of an identifier without its version.
pub(super) fn without_version(identifier: &[u8]) -> String {
    let end = match identifier.iter().rposition(|byte| *byte == b';') {
        Some(at) if at > 0 && is_version(&identifier[at + 1..]) => at,
        _ => identifier.len(),
    };
    String::from_utf8_lossy(&identifier[..end]).into_owned()
}

/// The order of the identifiers of one directory.
#[derive(Default)]
pub(super) struct Order {
    previous: Option<(Vec<u8>, bool)>,
    /// The first breach of the order of 9.3, and the first of the order of whole identifiers: offset and identifier.
    standard: Option<(u64, Vec<u8>)>,
    whole: Option<(u64, Vec<u8>)>,
    /// Whether an identifier has characters other than d-characters and separators.
    relaxed: bool,
}

impl Order {
    /// Compares the next identifier with the one before.
    pub(super) fn next(&mut self, kind: HierarchyRules, identifier: &Identifier<'_>) {
        let (bytes, joliet) = (identifier.bytes, kind == HierarchyRules::Joliet);
        let d = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || b"_.;".contains(byte);
        self.relaxed |= joliet || !bytes.iter().all(d);
        if let Some((previous, directory)) = &self.previous {
            let standard = match joliet {
                true => joliet_order(previous, bytes),
                false => order(previous, bytes, *directory != identifier.directory),
            };
            // Equal identifiers are reported as duplicates.
            if standard == Ordering::Greater {
                self.standard.get_or_insert_with(|| (identifier.offset, bytes.to_vec()));
            }
            if previous.as_slice() > bytes {
                self.whole.get_or_insert_with(|| (identifier.offset, bytes.to_vec()));
            }
        }
        self.previous = Some((bytes.to_vec(), identifier.directory));
    }

    pub(super) fn finish(&self, checker: &mut Checker<'_>) {
        let Some((offset, identifier)) = &self.standard else { return };
        if self.whole.is_some() || !self.relaxed {
            let message = format_args!("{} belongs before the previous record", shown(identifier));
            checker.find(Rule::DirectoryOrder, *offset, message);
        }
    }
}

/// Compares in the order of 9.3. A directory has no version, so its place beside a file of equal name is not defined.
fn order(left: &[u8], right: &[u8], mixed: bool) -> Ordering {
    let ((name, extension, version), (other, other_extension, other_version)) = (parts(left), parts(right));
    let versions = || match mixed {
        true => Ordering::Equal,
        false => padded(other_version, version, false),
    };
    padded(Some(name), Some(other), true)
        .then_with(|| padded(extension, other_extension, true))
        .then_with(versions)
}

/// Compares with the shorter text padded: with spaces after it, or with zeros before a number.
fn padded(left: Option<&[u8]>, right: Option<&[u8]>, behind: bool) -> Ordering {
    let (left, right) = (left.unwrap_or_default(), right.unwrap_or_default());
    let length = left.len().max(right.len());
    let byte = |text: &[u8], at: usize| match behind {
        true => text.get(at).copied().unwrap_or(b' '),
        false => (at + text.len()).checked_sub(length).map_or(b'0', |at| text[at]),
    };
    (0..length)
        .map(|at| byte(left, at).cmp(&byte(right, at)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Compares in the order of 9.3 with 16-bit characters and 00 00 as padding.
fn joliet_order(left: &[u8], right: &[u8]) -> Ordering {
    let split = |identifier: &[u8]| {
        let units: Vec<u16> =
            identifier.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        let end = units.iter().position(|unit| *unit == u16::from(b';')).unwrap_or(units.len());
        let dot = units[..end].iter().position(|unit| *unit == u16::from(b'.')).unwrap_or(end);
        (units[..dot].to_vec(), units[dot..end].to_vec())
    };
    split(left).cmp(&split(right))
}

/// Compares identifiers in the order of a path table (6.9.1): padded with spaces, in Joliet with zeros.
pub(super) fn path_table_order(left: &[u8], right: &[u8], joliet: bool) -> Ordering {
    if joliet { left.cmp(right) } else { padded(Some(left), Some(right), true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_the_standard_pads_and_puts_new_versions_first() {
        let less = [
            ("A.;1", "AB.;1"),
            ("A.B;1", "A.BC;1"),
            ("A.Z;1", "AA.A;1"),
            ("A.;2", "A.;1"),
            ("A.;10", "A.;9"),
        ];
        for (left, right) in less {
            assert_eq!(order(left.as_bytes(), right.as_bytes(), false), Ordering::Less, "{left} {right}");
            assert_eq!(order(right.as_bytes(), left.as_bytes(), false), Ordering::Greater, "{left} {right}");
        }
        assert_eq!(order(b"A", b"A.;1", true), Ordering::Equal);
        // With a character below the dot the two orders differ.
        assert_eq!(order(b"A-B.;1", b"A.;1", false), Ordering::Greater);
    }

    #[test]
    fn version_is_removed_from_an_identifier() {
        assert_eq!(without_version(b"KS.CFG;1"), "KS.CFG");
        assert_eq!(without_version(b"A;B"), "A;B");
        assert_eq!(without_version(b";1"), ";1");
    }
}
