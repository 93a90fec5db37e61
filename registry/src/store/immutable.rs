//! Immutable tags in the store: what such a tag leads to stays as well.
//!
//! ```text
//!  immutable tag ─> index ─> image ─> configuration, layers      none of these is deleted, none changes its media type
//!                                     a signature of the image   not below the tag: may be deleted
//! ```
//!
//! Which tags are immutable is a setting of the store ([`Config::immutable_tags`](crate::Config::immutable_tags)), so it
//! holds for clients, for retention and for imports alike; the authorizer of a client may name more of them. Garbage
//! collection needs no rule: it removes nothing below a tag, and retention leaves immutable tags where they are.
//!
//! A manifest below the tag whose content is corrupted could lead to anything. Until it is pushed again, nothing of its
//! repository is deleted.

use std::collections::HashSet;

use super::locks::Key;
use super::manifests::read_record;
use super::{Store, disk};
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

impl Store {
    /// Whether the tag, once it exists, neither moves nor is deleted.
    pub(super) fn is_immutable(&self, name: &RepositoryName, tag: &Tag) -> bool {
        self.config.immutable_tags.iter().any(|set| set.include(name, tag))
    }

    /// Fails when a tag that `kept` names, or that is immutable, leads to `digest`. The caller holds a lock of the
    /// references.
    pub(super) fn expect_not_reached(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        let mut seen = HashSet::new();
        for file in disk::names(&self.tags_directory(name))? {
            let Ok(tag) = file?.parse::<Tag>() else { continue };
            if !kept(&tag) && !self.is_immutable(name, &tag) {
                continue;
            }
            let Some(record) = read_record(&self.tag_record(name, &tag))? else { continue };
            if record.digest == *digest {
                return Err(Error::TagKept(tag));
            }
            if self.leads_to(name, record.digest, digest, &mut seen)? {
                return Err(Error::BelowTag { digest: digest.clone(), tag });
            }
        }
        Ok(())
    }

    /// Whether `wanted` is below `root`, outside of what was `seen` before.
    fn leads_to(
        &self,
        name: &RepositoryName,
        root: Digest,
        wanted: &Digest,
        seen: &mut HashSet<Key>,
    ) -> Result<bool, Error> {
        let mut open = vec![root];
        while let Some(digest) = open.pop() {
            if digest == *wanted {
                return Ok(true);
            }
            if !seen.insert(Key::of(&digest)) {
                continue;
            }
            match self.links(name, &digest) {
                Ok(Some(links)) => open.extend(links.content),
                // A blob, or a child that the repository does not have.
                Ok(None) => {}
                Err(Error::ManifestUnknown) => return Err(Error::Corrupted(digest)),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}
