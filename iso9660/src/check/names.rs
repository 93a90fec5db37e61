//! Names of one directory that some reader takes for one.
//!
//! ```text
//! names-fold-unicode   Å (one character)   Å (two characters)       the same text in the normal forms NFC and NFD
//! names-fold-dot       NAME   NAME.   NAME_                         dots and spaces at the end are dropped
//! names-fold-case      readme   README                              Windows and plain ISO readers know no case
//! ```
//!
//! A pair is reported once, under the first of these rules that explains it.

use std::collections::BTreeMap;
use std::fmt;

use unicode_normalization::UnicodeNormalization;

use super::report::quoted;
use super::{Checker, Rule};
use crate::tree::{Node, Tree};

/// Which names count as one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Folding {
    /// All of the above.
    All,
    /// Normal forms alone: case and dots mean something to POSIX readers.
    Unicode,
}

/// Two names of a tree that some reader takes for one.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct NameFinding {
    /// The path of the one.
    pub path: String,
    /// The name of the other, in the same directory.
    pub other: String,
    /// How they differ.
    pub rule: Rule,
}

impl fmt::Display for NameFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NameFinding { path, other, rule } = self;
        let why = match rule {
            Rule::NamesFoldUnicode => "are the same text in two normal forms",
            Rule::NamesFoldDot => "differ in dots and spaces at their ends only",
            _ => "differ in case only",
        };
        write!(formatter, "{}: {rule}: {} and {} {why}", rule.severity(), quoted(path), quoted(other))
    }
}

/// The names of a tree that some reader takes for one, in the order of their paths. Not an error: readers of Rock Ridge
/// tell names apart that differ in case. An image made of a tree without any is without findings.
pub fn check_names(tree: &Tree) -> Vec<NameFinding> {
    let mut paths: Vec<(u32, String)> = vec![(0, String::new())];
    let mut found = Vec::new();
    while let Some((directory, path)) = paths.pop() {
        let children = tree.directories[directory as usize].in_order(&tree.names);
        let names: Vec<&str> = children.iter().map(|child| child.name.of(&tree.names)).collect();
        for (left, right, rule) in pairs(&names, Folding::All) {
            let path = format!("{path}{}", names[right]);
            found.push(NameFinding { path, other: names[left].to_owned(), rule });
        }
        for child in &children {
            if let Node::Directory(index) = child.node {
                paths.push((index, format!("{path}{}/", child.name.of(&tree.names))));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Reports the names of one directory that fold together; with each name, where its record is.
pub(super) fn fold(checker: &mut Checker<'_>, names: Vec<(String, u64)>, folding: Folding) {
    let texts: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    for (left, right, rule) in pairs(&texts, folding) {
        let message = format_args!("{} beside {}", quoted(texts[right]), quoted(texts[left]));
        checker.find(rule, names[right].1, message);
    }
}

/// The pairs of names that fold together, as indices: of three alike names, two pairs.
fn pairs(names: &[&str], folding: Folding) -> Vec<(usize, usize, Rule)> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let key = match folding {
            // Most names are ASCII, which is in every normal form.
            Folding::Unicode if name.is_ascii() => continue,
            Folding::Unicode => composed(name),
            Folding::All => composed(trimmed(name)).to_lowercase(),
        };
        let previous = *first.entry(key).or_insert(index);
        if previous == index {
            continue;
        }
        let other = names[previous];
        let rule = if composed(name) == composed(other) {
            Rule::NamesFoldUnicode
        } else if composed(trimmed(name)) == composed(trimmed(other)) {
            Rule::NamesFoldDot
        } else {
            Rule::NamesFoldCase
        };
        found.push((previous, index, rule));
    }
    found
}

fn composed(name: &str) -> String {
    if name.is_ascii() { name.to_owned() } else { name.nfc().collect() }
}

/// A name without the dots and spaces at its end, unless it has nothing else.
fn trimmed(name: &str) -> &str {
    match name.trim_end_matches(['.', ' ']) {
        "" => name,
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_readers_take_for_one_are_found_in_every_directory() {
        let mut tree = Tree::new();
        let paths =
            ["Readme", "README", "d/name", "d/name.", "d/e/\u{c5}", "d/e/A\u{30a}", "other", "d/Readme"];
        for path in paths {
            tree.add_file(path, "").unwrap();
        }
        let found = check_names(&tree);
        let rules: Vec<(&str, &str, Rule)> =
            found.iter().map(|finding| (&*finding.path, &*finding.other, finding.rule)).collect();
        assert_eq!(
            rules,
            [
                ("Readme", "README", Rule::NamesFoldCase),
                ("d/e/\u{c5}", "A\u{30a}", Rule::NamesFoldUnicode),
                ("d/name.", "name", Rule::NamesFoldDot),
            ]
        );
        assert_eq!(
            found[2].to_string(),
            "warning: names-fold-dot: \"d/name.\" and \"name\" differ in dots and spaces at their ends only"
        );
    }

    #[test]
    fn posix_readers_are_confused_by_normal_forms_only() {
        assert_eq!(pairs(&["a", "A", "a."], Folding::Unicode), []);
        assert_eq!(pairs(&["é", "e\u{301}"], Folding::Unicode), [(0, 1, Rule::NamesFoldUnicode)]);
        assert_eq!(pairs(&["...", "..", " "], Folding::All), []);
    }
}
