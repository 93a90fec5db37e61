//! Joliet: a second hierarchy with names in UCS-2, big-endian.
//!
//! ```text
//! Supplementary Volume Descriptor, escape sequence 25 2F 45 (level 3; 40 and 43 are levels 1 and 2)
//! identifier of `ks.cfg`:  00 6B 00 73 00 2E 00 63 00 66 00 67      no version, no forced dot
//! ```
//!
//! Invariants of written names: characters of the basic multilingual plane only, none of `* / : ; ? \` and no control
//! characters; at most 103 code units, the limit of all known readers (the limits of the specification, 64 units and
//! 240 for a path, are not followed by common writers; [`JolietNames::Strict`] applies them); ordered by code units.
//! Names that are read may be UTF-16: surrogate pairs are joined, and lone surrogates are escaped.
//!
//! Joliet Specification, sections "Sort Ordering" and "Allowed Character Set".

use crate::ecma119::identifier::split_version;
use crate::error::PlanError;
use crate::escape::escape_name;
use crate::options::JolietNames;

/// The escape sequence of level 3, which common writers use.
pub(crate) const ESCAPE_SEQUENCE: &[u8] = b"%/E";
/// The escape sequences of levels 1 to 3.
pub(crate) const ESCAPE_SEQUENCES: [&[u8]; 3] = [b"%/@", b"%/C", b"%/E"];
/// The longest name in code units: the limit of known readers, and the limit of the specification.
const NAME_LIMIT: usize = 103;
const STRICT_NAME_LIMIT: usize = 64;
/// The longest path in code units, including separators, by the specification.
pub(crate) const STRICT_PATH_LIMIT: usize = 240;

/// Returns the identifier of a name. `path` is for the error.
pub(crate) fn identifier(
    name: &str,
    names: JolietNames,
    path: impl Fn() -> String,
) -> Result<Vec<u8>, PlanError> {
    let limit = match names {
        JolietNames::Long => NAME_LIMIT,
        JolietNames::Strict => STRICT_NAME_LIMIT,
    };
    let outside = |character: &char| {
        *character as u32 > 0xFFFF || character.is_control() || "*/:;?\\".contains(*character)
    };
    if let Some(character) = name.chars().find(outside) {
        return Err(PlanError::OutsideJoliet { path: path(), character });
    }
    let units = name.encode_utf16().count();
    if units > limit {
        return Err(PlanError::NameTooLong {
            path: path(),
            namespace: "Joliet",
            length: units,
            limit,
            unit: "characters",
        });
    }
    Ok(name.encode_utf16().flat_map(u16::to_be_bytes).collect())
}

/// Returns whether an identifier or text field has no lone surrogate.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    char::decode_utf16(units).all(|unit| unit.is_ok())
}

/// Returns the text of an identifier or text field.
pub(crate) fn decode(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

/// Returns the name that a reader shows for an identifier: without the version that some writers append.
pub(crate) fn name(identifier: &[u8]) -> String {
    name_and_version(identifier).0
}

/// Returns the name that a reader shows for an identifier, and the version.
pub(crate) fn name_and_version(identifier: &[u8]) -> (String, Option<u16>) {
    let bytes = name_bytes(identifier);
    let (name, version) = split_version(&bytes);
    (escape_name(name).into_owned(), version)
}

/// Returns the bytes of a name: UTF-8, with the three bytes of its code for a lone surrogate, which UTF-8 does not have.
pub(crate) fn name_bytes(identifier: &[u8]) -> Vec<u8> {
    let units = identifier.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut bytes = Vec::with_capacity(identifier.len());
    for unit in char::decode_utf16(units) {
        match unit {
            Ok(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(lone) => {
                let [high, low] = lone.unpaired_surrogate().to_be_bytes();
                bytes.extend([0xE0 | high >> 4, 0x80 | (high & 15) << 2 | low >> 6, 0x80 | low & 63]);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(name: &str) -> Result<Vec<u8>, PlanError> {
        identifier(name, JolietNames::Long, || name.to_owned())
    }

    #[test]
    fn names_are_big_endian_units_and_read_back() {
        assert_eq!(write("ü.x").unwrap(), [0, 0xfc, 0, b'.', 0, b'x']);
        assert_eq!(name(&write("user-data").unwrap()), "user-data");
        assert_eq!(name(b"\0a\0;\x001"), "a");
        assert_eq!(name(&[0xd8, 0x3d, 0xde, 0x00]), "😀");
        assert_eq!(name(&[0xd8, 0x3d]), r"\xED\xA0\xBD");
        assert_ne!(name(&[0xd8, 0x3d]), name(&[0xd8, 0x3e]));
    }

    #[test]
    fn an_unrepresentable_joliet_name_is_an_error_with_the_character() {
        for character in ['*', ':', ';', '?', '\\', '😀', '\u{1}'] {
            assert_eq!(
                write(&format!("a{character}")),
                Err(PlanError::OutsideJoliet { path: format!("a{character}"), character })
            );
        }
        assert!(write(&"é".repeat(103)).is_ok());
        assert!(matches!(
            write(&"é".repeat(104)),
            Err(PlanError::NameTooLong { length: 104, limit: 103, .. })
        ));
        let strict = |name: &str| identifier(name, JolietNames::Strict, || name.to_owned());
        assert!(strict(&"é".repeat(64)).is_ok());
        assert!(matches!(strict(&"é".repeat(65)), Err(PlanError::NameTooLong { length: 65, limit: 64, .. })));
    }
}
