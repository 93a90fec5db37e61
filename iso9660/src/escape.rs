//! Names and link targets as text, for images whose names are not always text.
//!
//! ```text
//! bytes in the image   63 61 66 E9      a 0A b      a \ x E 9        62 \ x 2d (as systemd writes it)
//! text                 caf\xE9          a\x0Ab      a\x5CxE9         b\x2d
//! ```
//!
//! Escaped are bytes that are not UTF-8, control characters, and `/` in a name. A backslash is escaped only where it would
//! read as one of these escapes. Escapes have upper case digits.
//!
//! Invariants: two names have equal texts only when their bytes are equal, and [`unescape`] returns those bytes. A text
//! has no control characters, and the text of a name has no `/`.

use std::borrow::Cow;

/// The number of bytes of an escape.
const ESCAPE: usize = 4;
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Returns the text by which a reader shows a name with these bytes, and by which it finds the name in a path.
///
/// UTF-8 without control characters is returned unchanged. Other bytes become `\xE9`, with two upper case digits.
///
/// ```
/// assert_eq!(iso9660::escape_name(b"caf\xE9"), "caf\\xE9");
/// assert_eq!(iso9660::escape_name("café".as_bytes()), "café");
/// ```
pub fn escape_name(name: &[u8]) -> Cow<'_, str> {
    escape(name, true)
}

/// Returns the text of a link target or a path, whose `/` separate names.
pub(crate) fn escape_target(target: &[u8]) -> Cow<'_, str> {
    escape(target, false)
}

/// Returns the bytes of a name or link target whose text is `text`.
pub(crate) fn unescape(text: &str) -> Cow<'_, [u8]> {
    replaced(text, |_| true)
}

/// Returns the name of a file on disk for the text of a name: the bytes of the name, except that control characters and
/// `/` stay escaped, because programs cannot handle them.
pub(crate) fn file_name(text: &str) -> Cow<'_, [u8]> {
    replaced(text, |byte| !byte.is_ascii_control() && byte != b'/')
}

fn escape(bytes: &[u8], slash: bool) -> Cow<'_, str> {
    // Printable ASCII is the common case and checked first.
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\\' && !(slash && *byte == b'/');
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(|_| bytes.iter().all(plain)) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len());
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let length = character.len_utf8();
            let ambiguous = character == '\\' && escaped_byte(&bytes[at..]).is_some();
            if character.is_control() || slash && character == '/' || ambiguous {
                bytes[at..at + length].iter().for_each(|byte| push_escape(&mut text, *byte));
            } else {
                text.push(character);
            }
            at += length;
        }
        chunk.invalid().iter().for_each(|byte| push_escape(&mut text, *byte));
        at += chunk.invalid().len();
    }
    Cow::Owned(text)
}

fn push_escape(text: &mut String, byte: u8) {
    text.push_str("\\x");
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Returns the byte of the escape at the start of a text, if one is there.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digit =
        |byte: u8| DIGITS.iter().position(|digit| *digit == byte).and_then(|at| u8::try_from(at).ok());
    let [b'\\', b'x', high, low] = *text.first_chunk::<ESCAPE>()? else { return None };
    let byte = digit(high)? << 4 | digit(low)?;
    (byte.is_ascii_control() || !byte.is_ascii() || matches!(byte, b'/' | b'\\')).then_some(byte)
}

/// Replaces the escapes of the accepted bytes.
fn replaced(text: &str, accept: impl Fn(u8) -> bool) -> Cow<'_, [u8]> {
    if !text.contains('\\') {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = escaped_byte(rest).filter(|byte| accept(*byte));
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &rest[ESCAPE..] } else { after };
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_and_other_bytes_are_escaped() {
        for same in
            ["plain.txt", "ünïcode 😀", r"dev-disk\x2dby.mount", r"back\slash", r"\xe9 lower", "\u{fffd}"]
        {
            assert_eq!(escape_name(same.as_bytes()), same);
        }
        assert_eq!(escape_name(b"caf\xE9"), r"caf\xE9");
        assert_eq!(escape_name(b"a\nb\x7f\0"), r"a\x0Ab\x7F\x00");
        assert_eq!(escape_name("\u{85}".as_bytes()), r"\xC2\x85");
        assert_eq!(escape_name(br"a\xE9"), r"a\x5CxE9");
        assert_eq!(escape_name(b"../etc/passwd"), r"..\x2Fetc\x2Fpasswd");
        assert_eq!(escape_target(b"../caf\xE9/x"), r"../caf\xE9/x");
        assert_eq!(*file_name(r"caf\xE9\x0A\x2F\x5Cx00"), *b"caf\xE9\\x0A\\x2F\\x00");
    }

    proptest! {
        #[test]
        fn every_name_returns_from_its_text(
            name in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..12),
                r"[\\xEF5C2/9\x00]{0,12}".prop_map(String::into_bytes),
            ]
        ) {
            let text = escape_name(&name);
            prop_assert!(!text.contains('/') && !text.chars().any(char::is_control));
            prop_assert_eq!(&*unescape(&text), name.as_slice());
            let target = escape_target(&name);
            prop_assert_eq!(&*unescape(&target), name.as_slice());
            let file = file_name(&text);
            prop_assert!(!file.contains(&b'/') && !file.contains(&0));
        }
    }
}
