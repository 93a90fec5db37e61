//! The description of a repository for the embedding program: its tags with the manifests that they name.
//!
//! A page of tags reads one record per tag of the page, and no content.

use std::time::SystemTime;

use super::Store;
use super::manifests::read_record;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

/// A tag with its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagEntry {
    /// The tag.
    pub tag: Tag,
    /// The digest of the manifest that the tag names.
    pub digest: Digest,
    /// The media type of the manifest.
    pub media_type: String,
    /// The time at which the tag was last pushed.
    pub pushed: Option<SystemTime>,
    /// Whether the tag never moves and is never deleted.
    pub immutable: bool,
}

impl Store {
    /// Up to `limit` tags in byte order after `last`, and whether more follow. A tag that is deleted meanwhile is left out.
    pub(crate) fn tag_entries(
        &self,
        name: &RepositoryName,
        last: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<TagEntry>, bool), Error> {
        let page = self.tags(name, last, limit)?;
        let mut entries = Vec::with_capacity(page.tags.len());
        for tag in page.tags {
            let path = self.tag_record(name, &tag);
            let Some(record) = read_record(&path)? else { continue };
            let pushed = path.metadata().and_then(|metadata| metadata.modified()).ok();
            let immutable = self.is_immutable(name, &tag);
            entries.push(TagEntry {
                tag,
                digest: record.digest,
                media_type: record.media_type,
                pushed,
                immutable,
            });
        }
        Ok((entries, page.more))
    }

    /// The time at which a tag of the repository was last pushed or deleted.
    pub(crate) fn tags_changed(&self, name: &RepositoryName) -> Option<SystemTime> {
        self.tags_directory(name).metadata().and_then(|metadata| metadata.modified()).ok()
    }
}
