//! Setting tags: several at once, as a push by digest may request.
//!
//! ```text
//!  one temporary file per tag, each fsynced -> rename each into _tags/ -> fsync _tags/ once -> 201
//! ```
//!
//! A `kept` tag does not move: it is created when it does not exist, which the rename itself detects; otherwise the
//! push fails unless the tag already names this manifest.
//!
//! The time of a record is that of the push, by which retention orders tags.
//!
//! All operations that need space happen before the first tag moves. A rename that fails half-way leaves each tag
//! either unchanged or moved, and the push fails: a retry completes it.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::Store;
use super::locks::References;
use super::manifests::read_record;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

/// The difference of times that only show an order.
pub(super) const TIME_STEP: Duration = Duration::from_micros(1);

impl Store {
    /// Sets every tag to `record`, unless it is `kept` and names another manifest. Durable when this returns.
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
        let mut temps = Vec::with_capacity(tags.len());
        let move_one = |tag: &Tag, temp: &Path| {
            let target = self.tag_record(name, tag);
            if !kept(tag) {
                return self.disk.rename(temp, &target);
            }
            if self.disk.rename_new(temp, &target)? {
                return Ok(());
            }
            self.disk.discard(temp);
            self.expect_tag_stays(name, tag, digest)
        };
        let moved = tags
            .iter()
            .try_for_each(|_| self.disk.write_temp(&self.temporary(), record).map(|temp| temps.push(temp)))
            .and_then(|()| self.order_after_others(name, references, &temps))
            .and_then(|()| {
                let _changing = references.changes.begin();
                tags.iter().zip(&temps).try_for_each(|(tag, temp)| move_one(tag, temp))
            });
        if moved.is_err() {
            // The renamed ones no longer exist, which is no failure.
            temps.iter().for_each(|temp| self.disk.discard(temp));
        }
        moved.and(self.disk.sync_directory(&self.tags_directory(name)))
    }

    /// Gives records that are about to become tags a time that is not before the newest tag of the repository: the order of
    /// times is the order of pushes, also after the clock was set back.
    fn order_after_others(
        &self,
        name: &RepositoryName,
        references: &References,
        temps: &[PathBuf],
    ) -> Result<(), Error> {
        let mut newest = references.newest_tag.lock();
        let mut last = match *newest {
            Some(last) => last,
            None => self.newest_tag(name)?.unwrap_or(UNIX_EPOCH),
        };
        for temp in temps {
            let written = temp.metadata().and_then(|found| found.modified());
            let mut time = written.map_err(Error::io("read the age of", temp))?;
            if time < last {
                time = last + TIME_STEP;
                self.disk.set_time(temp, time)?;
            }
            last = time;
        }
        *newest = Some(last);
        Ok(())
    }

    /// Fails when the tag exists and names another digest than `digest`.
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
