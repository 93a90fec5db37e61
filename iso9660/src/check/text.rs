//! The texts of Volume Descriptors.
//!
//! ```text
//! a-characters   A-Z 0-9 _ space ! " % & ' ( ) * + , - . / : ; < = > ?     system, publisher, preparer, application
//! d-characters   A-Z 0-9 _                                                 volume and volume set identifier
//! file           d-characters and . ;  (the name of a file in the root)    copyright, abstract, bibliographic file
//! Joliet         16-bit characters of any kind but controls; padded with 00 20 (or, by some writers, 00 00)
//! ```
//!
//! Allowances, because installers look for such labels: `a-z`, `-` and `.` in volume identifiers.

use super::{Checker, Rule};
use crate::joliet;

/// The characters that a field may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Characters {
    A,
    Label,
    File,
}

impl Characters {
    fn allow(self, byte: u8) -> bool {
        let d = byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        d || match self {
            Characters::A => b" !\"%&'()*+,-./:;<=>?".contains(&byte),
            Characters::Label => byte.is_ascii_lowercase() || b"-.".contains(&byte),
            Characters::File => b".;".contains(&byte),
        }
    }
}

/// The text fields of a descriptor: offset, length, characters, name.
pub(super) const FIELDS: [(usize, usize, Characters, &str); 9] = [
    (8, 32, Characters::A, "the system identifier"),
    (40, 32, Characters::Label, "the volume identifier"),
    (190, 128, Characters::Label, "the volume set identifier"),
    (318, 128, Characters::A, "the publisher identifier"),
    (446, 128, Characters::A, "the data preparer identifier"),
    (574, 128, Characters::A, "the application identifier"),
    (702, 37, Characters::File, "the copyright file identifier"),
    (739, 37, Characters::File, "the abstract file identifier"),
    (776, 37, Characters::File, "the bibliographic file identifier"),
];

/// Checks the text fields of the descriptor at byte `offset`.
pub(super) fn check(checker: &mut Checker<'_>, sector: &[u8], offset: u64, joliet: bool) {
    for (at, length, characters, what) in FIELDS {
        let field = &sector[at..at + length];
        let stray = if joliet { in_joliet(field) } else { in_ascii(field, characters) };
        if let Some(stray) = stray {
            checker.find(
                Rule::DescriptorText,
                offset + (at + stray) as u64,
                format_args!("{what} has {:#04x} at its byte {stray}", field[stray]),
            );
        }
    }
}

/// Returns the position of the first invalid byte. The padding is spaces; a label has no inner spaces.
fn in_ascii(field: &[u8], characters: Characters) -> Option<usize> {
    let text = field.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    field[..text].iter().position(|byte| !characters.allow(*byte))
}

fn in_joliet(field: &[u8]) -> Option<usize> {
    let (pairs, rest) = field.split_at(field.len() & !1);
    if rest.iter().any(|byte| *byte != 0) {
        return Some(pairs.len());
    }
    let blank = |pair: &[u8]| *pair == [0, b' '] || *pair == [0, 0];
    let text = pairs.chunks_exact(2).rposition(|pair| !blank(pair)).map_or(0, |last| 2 * (last + 1));
    let text = &pairs[..text];
    // Zeros inside the text are control characters too.
    let unit = text.chunks_exact(2).position(|pair| joliet::decode(pair).chars().any(char::is_control))?;
    Some(2 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_allowed_characters_and_padding_of_spaces() {
        assert_eq!(in_ascii(b"CIDATA  ", Characters::Label), None);
        assert_eq!(in_ascii(b"config-2", Characters::Label), None);
        assert_eq!(in_ascii(b"A B     ", Characters::Label), Some(1));
        assert_eq!(in_ascii(b"A\0\0     ", Characters::A), Some(1));
        assert_eq!(in_ascii(b"LINUX!  ", Characters::A), None);
        assert_eq!(in_ascii(b"lower   ", Characters::A), Some(0));
        assert_eq!(in_joliet(b"\0C\0I\0 \0 \0"), None);
        assert_eq!(in_joliet(b"\0C\0\x01\0 "), Some(2));
        assert_eq!(in_joliet(b"\0C\0\0\0D"), Some(2));
        assert_eq!(in_joliet(b"\0 \x07"), Some(2));
    }
}
