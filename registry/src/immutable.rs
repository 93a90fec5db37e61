//! Immutable tags: names that are given once.
//!
//! ```text
//!  os-images/**:v*      tag `v1` of `os-images/debian`: once it exists, it neither moves nor is it deleted, and
//!                       everything below its manifest stays (see `store::immutable`)
//! ```

use std::fmt;
use std::str::FromStr;

use crate::name::{RepositoryName, Tag};
use crate::pattern::{RepositoryPattern, TagPattern};

/// Tags that neither move nor can be deleted once they exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImmutableTags {
    /// The repositories.
    pub repositories: RepositoryPattern,
    /// The tags.
    pub tags: TagPattern,
}

impl ImmutableTags {
    /// Whether these tags include `tag` of `repository`.
    pub fn include(&self, repository: &RepositoryName, tag: &Tag) -> bool {
        self.repositories.matches(repository) && self.tags.matches(tag)
    }
}

impl fmt::Display for ImmutableTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.repositories, self.tags)
    }
}

/// The text does not name immutable tags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say which tags: write '<repositories>:<tags>', such as 'os-images/**:v*'")]
pub struct InvalidImmutableTags(String);

impl FromStr for ImmutableTags {
    type Err = InvalidImmutableTags;

    fn from_str(text: &str) -> Result<Self, InvalidImmutableTags> {
        let invalid = || InvalidImmutableTags(text.to_owned());
        let (repositories, tags) = text.split_once(':').ok_or_else(invalid)?;
        Ok(ImmutableTags {
            repositories: repositories.parse().map_err(|_| invalid())?,
            tags: tags.parse().map_err(|_| invalid())?,
        })
    }
}
