//! Which component a catalogue's description means, from the table `firmware/components.txt`.

use crate::identity::Component;

const TABLE: &str = include_str!("../../components.txt");

/// The component of the first description that names one; the descriptions go from the most to the least exact.
pub(crate) fn component(descriptions: &[&str]) -> Option<Component> {
    descriptions.iter().find_map(|description| {
        let text = format!(" {} ", description.to_lowercase());
        let mut lines =
            TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        let (name, _) = lines.find(|(_, words)| words.split(';').any(|word| contains(&text, word.trim())))?;
        name.parse().ok()
    })
}

/// Whether the text contains the word, not as a part of a longer one.
fn contains(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, found)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        let edge = |sign: Option<char>| sign.is_none_or(|sign| !sign.is_alphanumeric());
        // `iDRAC9` and `drives` are the word too.
        edge(before) && after.is_none_or(|sign| !sign.is_alphabetic() || sign == 's')
    })
}
