//! Moving tags: several at once, as a push by digest may ask for.
//!
//! ```text
//!  one draft per tag, each fsynced -> rename each into _tags/ -> fsync _tags/ once -> 201
//! ```
//!
//! A tag that is kept does not move: it is made when nothing has its name, which the rename itself finds out, and
//! otherwise the push fails unless it is the same again.
//!
//! Whatever needs space happens before the first tag moves. A rename that fails half-way leaves each tag either
//! where it was or where it should be, and the push is answered with the failure: pushing again completes it.

use std::path::Path;

use super::Store;
use super::locks::References;
use super::manifests::read_record;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

impl Store {
    /// Points every tag at what `record` describes, unless it is `kept` and points elsewhere. Durable when this returns.
    pub(super) fn move_tags(
        &self,
        name: &RepositoryName,
        references: &References,
        tags: &[Tag],
        digest: &Digest,
        record: &[u8],
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        if tags.is_empty() {
            return Ok(());
        }
        let mut drafts = Vec::with_capacity(tags.len());
        let move_one = |tag: &Tag, draft: &Path| {
            let target = self.tag_record(name, tag);
            if !kept(tag) {
                return self.disk.rename(draft, &target);
            }
            if self.disk.rename_new(draft, &target)? {
                return Ok(());
            }
            self.disk.discard(draft);
            self.expect_tag_stays(name, tag, digest)
        };
        let moved = tags
            .iter()
            .try_for_each(|_| self.disk.draft(&self.temporary(), record).map(|draft| drafts.push(draft)))
            .and_then(|()| {
                let _changing = references.changes.begin();
                tags.iter().zip(&drafts).try_for_each(|(tag, draft)| move_one(tag, draft))
            });
        if moved.is_err() {
            // Those already renamed are not there any more, which is no failure.
            drafts.iter().for_each(|draft| self.disk.discard(draft));
        }
        moved.and(self.disk.sync_directory(&self.tags_directory(name)))
    }

    /// Fails when the tag exists and names something else than `digest`.
    pub(super) fn expect_tag_stays(
        &self,
        name: &RepositoryName,
        tag: &Tag,
        digest: &Digest,
    ) -> Result<(), Error> {
        match read_record(&self.tag_record(name, tag))? {
            Some(record) if record.digest != *digest => Err(Error::TagKept(tag.clone())),
            _ => Ok(()),
        }
    }
}
