//! Blobs: content in the pool, and the repositories that list it.
//!
//! ```text
//!  uploads/<uuid>=<name>  --fsync, rename-->  blobs/<algorithm>/<hex>
//!                                             repos/<name>/_layers/<algorithm>/<hex>   --fsync both directories-->  201
//! ```
//!
//! The rename replaces an existing file. Eight clients that push one blob all succeed and leave one copy, and a push
//! repairs a corrupted copy; a reader of the old copy keeps it until it closes it.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, OFlags};
use rustix::io::ReadWriteFlags;

use super::Store;
use super::disk::{self, exists};
use super::quota::Reservation;
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

/// The length of a read-ahead after a reader had to wait.
const READ_AHEAD: u64 = 2 << 20;

/// An open blob: readable at any offset, by any number of readers, until dropped, even if the blob is deleted.
#[derive(Clone, Debug)]
pub struct BlobFile {
    digest: Digest,
    length: u64,
    file: Arc<File>,
}

impl BlobFile {
    fn open(path: &Path, digest: &Digest) -> Result<Option<Self>, Error> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", path)(error)),
        };
        Self::of(file, path, digest).map(Some)
    }

    fn of(file: File, path: &Path, digest: &Digest) -> Result<Self, Error> {
        let length = file.metadata().map_err(Error::io("read the length of", path))?.len();
        Ok(BlobFile { digest: digest.clone(), length, file: Arc::new(file) })
    }

    /// The digest the content had when it was stored.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file itself, for readers that use `sendfile` or a plan of file ranges.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Fills `buffer` with the bytes at `offset`. Blocking.
    ///
    /// # Errors
    /// The error of the read; `UnexpectedEof` when the blob ends before the buffer is full.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Reads cached bytes at `offset` without waiting for the disk; returns how many, possibly 0.
    pub(crate) fn read_cached(&self, buffer: &mut [u8], offset: u64) -> usize {
        let mut buffers = [IoSliceMut::new(buffer)];
        rustix::io::preadv2(&*self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
    }

    /// Starts reading the bytes after `offset` into the page cache.
    pub(crate) fn read_ahead(&self, offset: u64) {
        read_ahead(&self.file, offset);
    }
}

/// Starts reading the bytes that a reader at `offset` will need next into the page cache.
pub(crate) fn read_ahead(file: &File, offset: u64) {
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(READ_AHEAD), Advice::WillNeed);
}

impl Store {
    /// Opens a blob of any repository, for the embedding program, which checks access itself.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<BlobFile, Error> {
        BlobFile::open(&self.content(digest), digest)?.ok_or(Error::BlobUnknown)
    }

    /// Opens the blob if the repository lists it. Garbage collection keeps a listed blob for the grace period, so a
    /// client that saw it can refer to it.
    pub(crate) fn blob_in(&self, name: &RepositoryName, digest: &Digest) -> Result<BlobFile, Error> {
        let record = self.layer_record(name, digest);
        if !exists(&record)? {
            return Err(Error::BlobUnknown);
        }
        let blob = self.blob(digest)?;
        if self.refresh_if_present(&record, digest)? { Ok(blob) } else { Err(Error::BlobUnknown) }
    }

    /// Opens the blob like [`Store::blob_in`] when that needs neither the disk nor a lock; otherwise `None`, also for a
    /// missing blob. Never blocks.
    pub(crate) fn blob_cached(&self, name: &RepositoryName, digest: &Digest) -> Option<BlobFile> {
        let record = self.layer_record(name, digest);
        disk::open_cached(&record, OFlags::PATH)?;
        let content = self.content(digest);
        let blob = BlobFile::of(disk::open_cached(&content, OFlags::RDONLY)?, &content, digest).ok()?;
        self.touches.fresh(&record).then_some(blob)
    }

    /// Whether the repository lists the blob and the content is there.
    pub(super) fn has_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        Ok(exists(&self.layer_record(name, digest))? && exists(&self.content(digest))?)
    }

    /// Updates the age of `record`, which was just seen; returns whether it was not collected in between.
    pub(super) fn refresh_if_present(&self, record: &Path, digest: &Digest) -> Result<bool, Error> {
        if self.touches.fresh(record) {
            return Ok(true);
        }
        let _transition = self.locks.transition(digest);
        match self.disk.touch(record) {
            Ok(()) => self.touches.note(record),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                tracing::debug!(error = %error, "the time of a record could not be updated on disk; it is kept in memory");
                self.touches.unsaved(record);
                return exists(record);
            }
        }
        Ok(true)
    }

    /// Makes content that a record lists as new as content that was just pushed; returns whether it is there.
    pub(super) fn renew(&self, record: &Path, digest: &Digest) -> Result<bool, Error> {
        {
            let _transition = self.locks.transition(digest);
            if !exists(record)? || !exists(&self.content(digest))? {
                return Ok(false);
            }
            self.locks.keep(digest);
        }
        self.refresh_if_present(record, digest)
    }

    /// Moves the verified, fsynced content of an upload into the pool and lists it in the repository.
    pub(super) fn commit_upload(
        &self,
        upload: &Path,
        name: &RepositoryName,
        digest: &Digest,
        length: u64,
        reserved: &mut Reservation,
    ) -> Result<(), Error> {
        let _present = self.ensure_repository(name)?;
        let content = self.content(digest);
        let record = self.layer_record(name, digest);
        self.disk.protect(upload)?;
        {
            let _transition = self.locks.transition(digest);
            self.locks.keep(digest);
            self.disk.rename(upload, &content)?;
            let new = !exists(&record)?;
            self.disk.record(&record)?;
            reserved.settle(length, new);
        }
        self.disk.sync_parent(&content)?;
        self.disk.sync_parent(&record)
    }

    /// Lists a blob of `source` in `name` as well; returns whether `source` had it.
    pub(crate) fn mount(
        &self,
        source: &RepositoryName,
        name: &RepositoryName,
        digest: &Digest,
    ) -> Result<bool, Error> {
        self.expect_writable()?;
        if !self.has_blob(source, digest)? {
            return Ok(false);
        }
        let _present = self.ensure_repository(name)?;
        let record = self.layer_record(name, digest);
        {
            let _transition = self.locks.transition(digest);
            self.locks.keep(digest);
            if !self.has_blob(source, digest)? {
                return Ok(false);
            }
            let length = self.blob(digest)?.length();
            let mut reserved = self.quotas.reservation(name);
            let new = !exists(&record)?;
            reserved.grow(if new { length } else { 0 })?;
            self.disk.record(&record)?;
            reserved.settle(length, new);
        }
        // The push to `source` may have made the content visible a moment ago without having called fsync yet.
        self.disk.sync_parent(&self.content(digest))?;
        self.disk.sync_parent(&record)?;
        Ok(true)
    }

    /// Removes a blob from a repository.
    #[cfg(test)]
    pub(crate) fn delete_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        self.delete_blob_keeping(name, digest, &|_| false)
    }

    /// Removes a blob from a repository, unless a tag that `kept` names, or that is immutable, leads to it. The content
    /// stays in the pool for repositories that share it, until collected.
    pub(crate) fn delete_blob_keeping(
        &self,
        name: &RepositoryName,
        digest: &Digest,
        kept: &dyn Fn(&Tag) -> bool,
    ) -> Result<(), Error> {
        self.expect_writable()?;
        let references = self.references(name).ok_or(Error::BlobUnknown)?;
        let _exclusive = references.exclusive();
        let record = self.layer_record(name, digest);
        if !exists(&record)? {
            return Err(Error::BlobUnknown);
        }
        self.expect_not_pinned(name, digest)?;
        self.expect_not_reached(name, digest, kept)?;
        {
            let _transition = self.locks.transition(digest);
            {
                let _changing = references.changes.begin();
                if !self.disk.remove(&record)? {
                    return Err(Error::BlobUnknown);
                }
            }
            self.touches.forget(&record);
            self.uncount(name, digest);
        }
        self.disk.sync_parent(&record)
    }
}
