//! Patterns of repository names and of tags, for settings that apply to some of them only.
//!
//! ```text
//! os-images/debian   that repository
//! os-images/*        any run of characters but "/"
//! os-images/**       any run of characters
//! **                 every repository
//! ```
//!
//! Matching takes at most the product of both lengths in steps, whatever the pattern.

use std::fmt;
use std::str::FromStr;

use crate::name::{RepositoryName, Tag};

const PATTERN_MAX: usize = 256;

/// A pattern of repository names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepositoryPattern(String);

/// The text is not a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pattern is a repository name in which '*' stands for any characters but '/' and '**' for any at all, {PATTERN_MAX} \
     bytes at most"
)]
pub struct InvalidRepositoryPattern;

impl RepositoryPattern {
    /// The pattern every repository matches.
    pub fn all() -> Self {
        RepositoryPattern("**".to_owned())
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &RepositoryName) -> bool {
        fits(self.0.as_bytes(), name.as_str().as_bytes())
    }

    /// The number of fixed characters: of two patterns that match, the one with more is the narrower.
    pub fn fixed_characters(&self) -> usize {
        self.0.bytes().filter(|byte| *byte != b'*').count()
    }
}

impl FromStr for RepositoryPattern {
    type Err = InvalidRepositoryPattern;

    fn from_str(text: &str) -> Result<Self, InvalidRepositoryPattern> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'/' | b'*');
        if text.is_empty() || text.len() > PATTERN_MAX || !text.bytes().all(allowed) || text.contains("***") {
            return Err(InvalidRepositoryPattern);
        }
        Ok(RepositoryPattern(text.to_owned()))
    }
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reads the pattern once; `reached[i]` says whether the part read so far matches the first `i` bytes of the name.
fn fits(mut pattern: &[u8], name: &[u8]) -> bool {
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    loop {
        let (crosses, rest) = match pattern {
            [] => return reached[name.len()],
            [b'*', b'*', rest @ ..] => (Some(true), rest),
            [b'*', rest @ ..] => (Some(false), rest),
            [_, rest @ ..] => (None, rest),
        };
        match crosses {
            Some(crosses) => {
                for end in 1..=name.len() {
                    reached[end] |= reached[end - 1] && (crosses || name[end - 1] != b'/');
                }
            }
            None => {
                for end in (1..=name.len()).rev() {
                    reached[end] = reached[end - 1] && name[end - 1] == pattern[0];
                }
                reached[0] = false;
            }
        }
        pattern = rest;
    }
}

/// A pattern of tags, in which `*` stands for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPattern(String);

/// The text is not a pattern of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tag pattern is a tag in which '*' stands for any characters, {PATTERN_MAX} bytes at most")]
pub struct InvalidTagPattern;

impl TagPattern {
    /// Whether the whole tag matches.
    pub fn matches(&self, tag: &Tag) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = tag.as_str().strip_prefix(parts.next().unwrap_or_default()) else {
            return false;
        };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl FromStr for TagPattern {
    type Err = InvalidTagPattern;

    fn from_str(text: &str) -> Result<Self, InvalidTagPattern> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-*".contains(&byte);
        if text.is_empty() || text.len() > PATTERN_MAX || !text.bytes().all(allowed) {
            return Err(InvalidTagPattern);
        }
        Ok(TagPattern(text.to_owned()))
    }
}

impl fmt::Display for TagPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<RepositoryPattern>().unwrap().matches(&name.parse().unwrap())
    }

    #[test]
    fn one_star_stays_in_its_component_and_two_do_not() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "a/b", false),
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("**", "a/b/c", true),
            ("*", "a/b", false),
            ("*/debian-*", "os/debian-12", true),
            ("**/debian", "x/y/debian", true),
            ("a*b*c", "a0b1c", true),
            ("a*b*c", "a0b1cd", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(RepositoryPattern::all().matches(&"any/thing".parse().unwrap()));
    }

    #[test]
    fn a_pattern_that_can_never_match_is_refused() {
        for text in ["", "A", "a b", "a?", "***", "ä", &"a".repeat(257)] {
            assert_eq!(text.parse::<RepositoryPattern>(), Err(InvalidRepositoryPattern), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_name_matches_itself_and_every_star_in_its_place(
            name in "[a-z0-9]{1,6}(/[a-z0-9]{1,6}){0,3}",
            cut in 0usize..20,
        ) {
            prop_assert!(matches(&name, &name));
            let cut = cut.min(name.len());
            let prefixed = format!("{}**", &name[..cut]);
            prop_assert!(matches(&prefixed, &name));
        }
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, tag, expected) in [
            ("v1", "v1", true),
            ("v1", "v10", false),
            ("v*", "v10", true),
            ("*", "anything", true),
            ("*-rc*", "1.0-rc2", true),
            ("*-rc*", "1.0", false),
            ("a*a", "a", false),
            ("a*b*c", "axbxbc", true),
            ("*a*", "bab", true),
        ] {
            let matches = pattern.parse::<TagPattern>().unwrap().matches(&tag.parse().unwrap());
            assert_eq!(matches, expected, "{pattern} {tag}");
        }
        assert_eq!("a/b".parse::<TagPattern>(), Err(InvalidTagPattern));
    }
}
