//! Names of one directory that at least one reader does not distinguish.
//!
//! ```text
//! names-fold-unicode   Å (one character)   Å (two characters)       equal text in the normal forms NFC and NFD
//! names-fold-dot       NAME   NAME.   NAME_                         readers drop dots and spaces at the end
//! names-fold-case      readme   README                              Windows and plain ISO readers ignore case
//! ```
//!
//! A pair is reported once, under the first of these rules that applies.

use std::collections::BTreeMap;
use std::fmt;

use unicode_normalization::UnicodeNormalization;

use super::report::quoted;
use super::{Checker, Rule};
use crate::tree::{Node, Tree};

/// The set of rules by which names are compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Folding {
    /// All rules.
    All,
    /// Normal forms only: POSIX readers distinguish case and dots.
    Unicode,
}

/// Two names of a tree that at least one reader does not distinguish.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct NameFinding {
    /// The path of the first name.
    pub path: String,
    /// The second name, in the same directory.
    pub other: String,
    /// The rule that both names break.
    pub rule: Rule,
}

impl fmt::Display for NameFinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NameFinding { path, other, rule } = self;
        let why = match rule {
            Rule::NamesFoldUnicode => "are equal text in two normal forms",
            Rule::NamesFoldDot => "differ in dots and spaces at their ends only",
            _ => "differ in case only",
        };
        write!(formatter, "{}: {rule}: {} and {} {why}", rule.severity(), quoted(path), quoted(other))
    }
}

/// Returns the names of a tree that at least one reader does not distinguish, in the order of their paths. Such names
/// are not an error, because readers of Rock Ridge distinguish case. An image of a tree without such names has no
/// findings.
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

/// Reports the names of one directory that readers do not distinguish. Each name comes with the offset of its record.
pub(super) fn fold(checker: &mut Checker<'_>, names: Vec<(String, u64)>, folding: Folding) {
    let texts: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    for (left, right, rule) in pairs(&texts, folding) {
        let message = format_args!("{} beside {}", quoted(texts[right]), quoted(texts[left]));
        checker.find(rule, names[right].1, message);
    }
}

/// Returns the pairs of such names as indices. Three equal names are two pairs.
fn pairs(names: &[&str], folding: Folding) -> Vec<(usize, usize, Rule)> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let key = match folding {
            // ASCII names, the common case, are equal in all normal forms.
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

/// Returns a name without the dots and spaces at its end, unless it has only these.
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
    fn names_that_readers_do_not_distinguish_are_found_in_every_directory() {
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
    fn posix_readers_fail_to_distinguish_normal_forms_only() {
        assert_eq!(pairs(&["a", "A", "a."], Folding::Unicode), []);
        assert_eq!(pairs(&["é", "e\u{301}"], Folding::Unicode), [(0, 1, Rule::NamesFoldUnicode)]);
        assert_eq!(pairs(&["...", "..", " "], Folding::All), []);
    }
}
