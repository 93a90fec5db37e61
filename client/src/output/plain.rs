//! Text of other programs and of machines, made safe for a terminal, and its width there.

use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Replaces control characters of a text.
pub fn plain(text: &str) -> String {
    text.chars().map(|character| if unsafe_to_print(character) { '\u{fffd}' } else { character }).collect()
}

/// Replaces control characters of a text of several lines but for the ends of the lines.
pub(super) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// A document of JSON, or of YAML with the quotes and escapes of JSON, without characters that a terminal obeys: each is its escape, so
/// that a reader finds the same document. What follows the text of a document is the end of a line only.
pub(super) fn escaped(document: &str) -> String {
    let mut text = String::with_capacity(document.len());
    for character in document.chars() {
        match unsafe_to_print(character) && character != '\n' {
            // All of them are in the first plane.
            true => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            false => text.push(character),
        }
    }
    text
}

/// Control characters and characters that change the text direction.
fn unsafe_to_print(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The value at a JSON Pointer as text for a person; empty for null and absent values. A list has commas, an object is
/// `member=value member.inner=value`.
pub fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).map_or_else(String::new, words)
}

/// A value of JSON without its brackets and quotes.
fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => plain(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            // Commas do not separate objects, whose members have spaces between them.
            let between = if items.iter().any(Value::is_object) { "; " } else { ", " };
            join(&items.iter().map(words).collect::<Vec<_>>(), between)
        }
        Value::Object(_) => {
            let mut members = Vec::new();
            collect_members("", value, &mut members);
            members.join(" ")
        }
    }
}

/// Adds `name=value` of every member that has a value; members of an inner object have its name before theirs.
fn collect_members(before: &str, value: &Value, members: &mut Vec<String>) {
    let Value::Object(map) = value else {
        let value = words(value);
        if !value.is_empty() {
            members.push(format!("{before}={value}"));
        }
        return;
    };
    for (name, inner) in map {
        let name = plain(name);
        let name = if before.is_empty() { name } else { format!("{before}.{name}") };
        collect_members(&name, inner, members);
    }
}

/// The labels of an object, as `KEY=VALUE`.
pub fn labels(object: &Value) -> Vec<String> {
    let labels = object.as_object().into_iter().flatten();
    labels.map(|(key, value)| format!("{}={}", plain(key), words(value))).collect()
}

/// The items of a list as texts.
pub fn items(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(words).collect()
}

/// A number with the word for it.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// Joins the texts that are not empty.
pub fn join(parts: &[String], between: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    parts.join(between)
}

/// The number of terminal columns of a text.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The part of a text that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The beginning stays: words.
    End,
    /// Both ends stay: ids, digests and paths, which differ at their ends.
    Middle,
}

/// Shortens a text to a width; an ellipsis stands for the omitted part.
pub(crate) fn shorten(text: &str, room: usize, cut: Cut, ellipsis: &str) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mark = width(ellipsis);
    if room <= mark {
        return beginning(text, room).to_owned();
    }
    let room = room - mark;
    match cut {
        Cut::End => format!("{}{ellipsis}", beginning(text, room)),
        Cut::Middle => {
            let tail = ending(text, room / 2);
            format!("{}{ellipsis}{tail}", beginning(text, room - width(tail)))
        }
    }
}

/// The longest beginning that fits.
fn beginning(text: &str, room: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > room
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// The longest end that fits.
fn ending(text: &str, room: usize) -> &str {
    let mut used = 0;
    let start = text.char_indices().rev().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > room
    });
    start.map_or(text, |(start, character)| &text[start + character.len_utf8()..])
}

/// Breaks a text at spaces into lines of a width. A longer word stays whole.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > room {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_where_it_says_least() {
        assert_eq!(shorten("short", 5, Cut::End, "…"), "short");
        assert_eq!(shorten("some long words", 8, Cut::End, "…"), "some lo…");
        assert_eq!(shorten("0192f3a4-5b6c-7abc", 9, Cut::Middle, "…"), "0192…7abc");
        assert_eq!(shorten("0192f3a4-5b6c-7abc", 9, Cut::Middle, ".."), "0192..abc");
        assert_eq!(shorten("abc", 1, Cut::Middle, "…"), "a");
        assert_eq!(shorten("abc", 0, Cut::End, "…"), "");
    }

    #[test]
    fn a_wide_character_counts_as_two_columns() {
        assert_eq!(width("東京"), 4);
        assert_eq!(shorten("東京都", 4, Cut::End, "…"), "東…");
    }

    #[test]
    fn what_a_terminal_obeys_is_an_escape_in_a_document_and_replaced_in_text() {
        let hostile = "a\u{1b}[2J\u{7f}\u{9b}m\u{202e}\u{2066}b";
        let document = serde_json::json!({ hostile: [hostile, "line\nfeed"] });
        for text in [document.to_string(), format!("{document:#}")] {
            let text = escaped(&text);
            assert!(
                !text.chars().any(|character| unsafe_to_print(character) && character != '\n'),
                "{text:?}"
            );
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        }
        assert_eq!(plain_lines("a\u{1b}[2J\n  b\r\n"), "a\u{fffd}[2J\n  b\u{fffd}\n");
    }

    #[test]
    fn words_are_wrapped_and_none_is_broken() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a verylongword b", 4), ["a", "verylongword", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
