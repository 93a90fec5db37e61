//! From the bytes of a serial console to text that a terminal and a log file can show.
//!
//! ```text
//!   Ground ──ESC──► Escape ──'['──► Sequence ──final byte──► Ground      cursor movements, colours
//!                          └─']', 'P', ...─► Text ──BEL, ESC \──► Ground  titles and the like
//! ```
//!
//! Invariant: the text has no control characters but the end of a line and the tabulator, so that a guest controls no
//! terminal. Its length is at most that of the bytes, times three (a replacement character has three bytes).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    Escape,
    Sequence,
    Text,
    TextEscape,
}

/// Removes escape sequences and control characters from a stream.
#[derive(Debug, Default)]
pub(crate) struct ConsoleText {
    state: State,
    /// The beginning of a character whose other bytes did not arrive yet.
    unfinished: Vec<u8>,
    last_was_end: bool,
}

impl ConsoleText {
    /// The text of the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut plain = std::mem::take(&mut self.unfinished);
        for &byte in bytes {
            self.step(byte, &mut plain);
        }
        let text = self.decode(&plain);
        text.chars().filter(|&c| c == '\n' || c == '\t' || !c.is_control()).collect()
    }

    fn step(&mut self, byte: u8, plain: &mut Vec<u8>) {
        const ESCAPE: u8 = 0x1b;
        self.state = match (self.state, byte) {
            (State::Text, ESCAPE) => State::TextEscape,
            (_, ESCAPE) => State::Escape,
            (State::Ground, b'\n' | b'\t' | 0x20..=0x7e | 0x80..) => {
                plain.push(byte);
                self.last_was_end = byte == b'\n';
                State::Ground
            }
            (State::Ground, _) => State::Ground,
            (State::Escape, b'[') => State::Sequence,
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Text,
            // An intermediate byte; one more follows.
            (State::Escape, 0x20..=0x2f) => State::Escape,
            (State::Escape, _) => State::Ground,
            (State::Sequence, 0x20..=0x3f) => State::Sequence,
            (State::Sequence, end) => {
                // A cursor movement begins another line of a menu.
                if matches!(end, b'H' | b'f') && !self.last_was_end {
                    plain.push(b'\n');
                    self.last_was_end = true;
                }
                State::Ground
            }
            // BEL ends a text, and the end of a line ends one that has no end of its own.
            (State::Text | State::TextEscape, 0x07 | b'\n') => State::Ground,
            (State::Text, _) => State::Text,
            (State::TextEscape, b'\\') => State::Ground,
            (State::TextEscape, _) => State::Text,
        };
    }

    /// Decodes UTF-8. Keeps an unfinished character at the end for the next bytes.
    fn decode(&mut self, plain: &[u8]) -> String {
        let mut text = String::with_capacity(plain.len());
        let mut chunks = plain.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let may_continue = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if may_continue {
                self.unfinished = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> String {
        ConsoleText::default().push(bytes)
    }

    #[test]
    fn escape_sequences_are_removed_and_lines_stay() {
        assert_eq!(
            whole(b"\x1b[0m\x1b[2JSeaBIOS\r\n\x1b]0;title\x07ok\x1b(B\ttab\x08\x00\r\n"),
            "SeaBIOS\nok\ttab\n"
        );
        assert_eq!(whole(b"a\x1b[01;01Hb\x1b[5;3Hc"), "a\nb\nc");
        assert_eq!(whole(b"\x1bPdevice\x1b\\login: "), "login: ");
        assert_eq!(whole("größe \u{9b}31m\u{85}x".as_bytes()), "größe 31mx");
        assert_eq!(whole(b"\xff\xfeok"), "\u{fffd}\u{fffd}ok");
    }

    #[test]
    fn a_text_without_end_does_not_hide_the_next_line() {
        assert_eq!(whole(b"\x1b]0;never ended\r\nlogin: "), "login: ");
    }

    proptest! {
        #[test]
        fn the_division_into_pieces_changes_nothing(
            text in proptest::collection::vec(prop_oneof![
                any::<char>().prop_map(|c| c.to_string().into_bytes()),
                any::<u8>().prop_map(|byte| vec![byte]),
                Just(b"\x1b[1;2H".to_vec()), Just(b"\x1b]0;t\x07".to_vec()), Just(b"\x1b".to_vec()),
            ], 0..40),
            size in 1_usize..7,
        ) {
            let bytes = text.concat();
            let mut console = ConsoleText::default();
            let pieces: String = bytes.chunks(size).map(|piece| console.push(piece)).collect();
            let at_once = whole(&bytes);
            prop_assert_eq!(&pieces, &at_once);
            prop_assert!(at_once.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert!(at_once.len() <= 3 * bytes.len());
        }
    }
}
