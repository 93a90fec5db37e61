//! The names that clients choose: repositories, tags and references.
//!
//! ```text
//! repository  component ("/" component)*            at most 200 bytes
//! component   run (separator run)*                  run = [a-z0-9]+
//! separator   "." | "_" | "__" | "-"+
//! tag         [a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}
//! reference   a digest when it holds ":", otherwise a tag
//! ```
//!
//! A value of these types has been parsed, so it cannot contain `..`, a leading dot, an empty segment or a separator of
//! the file system other than the `/` between components. On disk a repository is ONE directory: its name with `/`
//! written as `=`, a byte no name contains, so that `a`, `a/b` and `a/index.json` never collide.
//!
//! Specification: distribution-spec "Pulling manifests".

use std::fmt;
use std::str::FromStr;

use crate::digest::{Digest, InvalidDigest};

/// Clients limit `host "/" name` to 255 characters; this leaves room for the host.
const REPOSITORY_NAME_MAX: usize = 200;
const TAG_MAX: usize = 128;

/// The name of a repository, such as `os-images/debian`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepositoryName(String);

/// A tag, such as `12.5`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(String);

/// A reference to a manifest in a repository.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// A tag, which may move.
    Tag(Tag),
    /// A digest.
    Digest(Digest),
}

/// The text is not the name of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a repository name is lowercase letters and digits, joined by '.', '_', '__' or dashes, in components joined \
     by '/', {REPOSITORY_NAME_MAX} bytes at most"
)]
pub struct InvalidRepositoryName;

/// The text is not a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tag is up to {TAG_MAX} letters, digits, '_', '.' or '-', not starting with '.' or '-'")]
pub struct InvalidTag;

/// The text is neither a tag nor a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReference {
    /// The text has no `:` and is not a tag.
    #[error(transparent)]
    Tag(#[from] InvalidTag),
    /// The text has a `:` and is not a digest.
    #[error(transparent)]
    Digest(#[from] InvalidDigest),
}

impl RepositoryName {
    /// The name as clients write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the repository's directory.
    pub(crate) fn to_directory(&self) -> String {
        self.0.replace('/', "=")
    }

    /// The repository of a directory; `None` for a name this crate never writes.
    pub(crate) fn from_directory(directory: &str) -> Option<Self> {
        // A '/' cannot occur in a directory name, so the conversion is exact.
        directory.replace('=', "/").parse().ok()
    }
}

impl FromStr for RepositoryName {
    type Err = InvalidRepositoryName;

    fn from_str(text: &str) -> Result<Self, InvalidRepositoryName> {
        if text.len() > REPOSITORY_NAME_MAX || !text.split('/').all(|part| is_component(part.as_bytes())) {
            return Err(InvalidRepositoryName);
        }
        Ok(RepositoryName(text.to_owned()))
    }
}

fn is_component(mut rest: &[u8]) -> bool {
    loop {
        let run = rest.iter().take_while(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9')).count();
        if run == 0 {
            return false;
        }
        rest = &rest[run..];
        let separator = match rest {
            [] => return true,
            [b'_', b'_', ..] => 2,
            [b'.' | b'_', ..] => 1,
            _ => rest.iter().take_while(|byte| **byte == b'-').count(),
        };
        if separator == 0 {
            return false;
        }
        rest = &rest[separator..];
    }
}

impl Tag {
    /// The tag as clients write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = InvalidTag;

    fn from_str(text: &str) -> Result<Self, InvalidTag> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let bytes = text.as_bytes();
        let first_fits = bytes.first().is_some_and(|byte| word(*byte));
        if !first_fits
            || bytes.len() > TAG_MAX
            || !bytes.iter().all(|byte| word(*byte) || b".-".contains(byte))
        {
            return Err(InvalidTag);
        }
        Ok(Tag(text.to_owned()))
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        if text.contains(':') {
            Ok(Reference::Digest(text.parse()?))
        } else {
            Ok(Reference::Tag(text.parse()?))
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Tag(tag) => tag.fmt(f),
            Reference::Digest(digest) => digest.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_grammar_of_the_specification() {
        for name in
            ["a", "a/b", "os-images/debian", "a.b_c__d---e/f0", "a/index.json", "foo/manifests/bar", "0"]
        {
            assert_eq!(name.parse::<RepositoryName>().unwrap().as_str(), name);
        }
        let too_long = "a".repeat(201);
        for name in [
            "", "/", "a/", "/a", "a//b", "A", ".", "..", "a/..", "a..b", "a___b", "-a", "a-", "a._b", "a=b",
            &too_long,
        ] {
            assert_eq!(name.parse::<RepositoryName>(), Err(InvalidRepositoryName), "{name:?}");
        }
    }

    #[test]
    fn tags_follow_the_grammar_of_the_specification() {
        let longest = "x".repeat(128);
        for tag in ["latest", "1.0", "_", "A-b_c.d", &longest] {
            assert_eq!(tag.parse::<Tag>().unwrap().as_str(), tag);
        }
        let too_long = "x".repeat(129);
        for tag in ["", ".", "..", ".a", "-a", "a/b", "a b", "a:b", "ä", &too_long] {
            assert_eq!(tag.parse::<Tag>(), Err(InvalidTag), "{tag:?}");
        }
    }

    #[test]
    fn different_repositories_never_share_a_directory() {
        let names = ["a", "a/b", "a/b/c", "a-b", "a/index.json", "a/blobs/sha256"];
        let directories: std::collections::BTreeSet<String> =
            names.iter().map(|name| name.parse::<RepositoryName>().unwrap().to_directory()).collect();
        assert_eq!(directories.len(), names.len());
        for name in names {
            let name: RepositoryName = name.parse().unwrap();
            assert_eq!(RepositoryName::from_directory(&name.to_directory()), Some(name));
        }
        assert_eq!(RepositoryName::from_directory("lost+found"), None);
    }
}
