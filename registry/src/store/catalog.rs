//! Finding repositories: by name, in pages, and by a blob they list.

use std::collections::BTreeSet;

use super::Store;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::RepositoryName;

impl Store {
    /// Up to `limit` repositories in the order of names, beginning after `last`.
    pub(crate) fn repositories_after(&self, last: Option<&str>, limit: usize) -> Vec<RepositoryName> {
        let known = self.repositories.read();
        let mut smallest: BTreeSet<&RepositoryName> = BTreeSet::new();
        for name in known.keys().filter(|name| last.is_none_or(|last| name.as_str() > last)) {
            smallest.insert(name);
            if smallest.len() > limit {
                smallest.pop_last();
            }
        }
        smallest.into_iter().cloned().collect()
    }

    /// Whether the repository exists.
    pub(crate) fn has_repository(&self, name: &RepositoryName) -> bool {
        self.references(name).is_some()
    }

    /// At most `limit` repositories that have the blob, in no order.
    pub(crate) fn repositories_with(
        &self,
        digest: &Digest,
        limit: usize,
    ) -> Result<Vec<RepositoryName>, Error> {
        let mut found = Vec::new();
        if !super::disk::exists(&self.content(digest))? {
            return Ok(found);
        }
        for name in self.repositories() {
            if found.len() == limit {
                break;
            }
            if self.has_blob(&name, digest)? {
                found.push(name);
            }
        }
        Ok(found)
    }
}
