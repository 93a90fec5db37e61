//! Moving tags: several at once, as a push by digest may ask for.
//!
//! ```text
//!  one draft per tag, each fsynced -> rename each into _tags/ -> fsync _tags/ once -> 201
//! ```
//!
//! Whatever needs space happens before the first tag moves. A rename that fails half-way leaves each tag either
//! where it was or where it should be, and the push is answered with the failure: pushing again completes it.

use super::Store;
use super::locks::References;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

impl Store {
    /// Points every tag at what `record` describes. Durable when this returns.
    pub(super) fn move_tags(
        &self,
        name: &RepositoryName,
        references: &References,
        tags: &[Tag],
        record: &[u8],
    ) -> Result<(), Error> {
        if tags.is_empty() {
            return Ok(());
        }
        let mut drafts = Vec::with_capacity(tags.len());
        let moved = tags
            .iter()
            .try_for_each(|_| self.disk.draft(&self.temporary(), record).map(|draft| drafts.push(draft)))
            .and_then(|()| {
                let _changing = references.changes.begin();
                tags.iter()
                    .zip(&drafts)
                    .try_for_each(|(tag, draft)| self.disk.rename(draft, &self.tag_record(name, tag)))
            });
        if moved.is_err() {
            // Those already renamed are not there any more, which is no failure.
            drafts.iter().for_each(|draft| self.disk.discard(draft));
        }
        moved.and(self.disk.sync_directory(&self.tags_directory(name)))
    }
}
