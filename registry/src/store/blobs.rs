//! Blobs: content in the pool, and which repository has it.
//!
//! ```text
//!  uploads/<uuid>=<name>  --fsync, rename-->  blobs/<algorithm>/<hex>
//!                                             repos/<name>/_layers/<algorithm>/<hex>   --fsync both directories-->  201
//! ```
//!
//! The rename replaces what is there. Eight clients pushing one blob all succeed and leave one copy, and a
//! push heals a stored copy that has rotted; a reader of the old copy keeps it until it is done.

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
use crate::name::RepositoryName;

/// What is asked for at once when a reader had to wait.
const READ_AHEAD: u64 = 2 << 20;

/// An open blob: readable at any offset, by any number of readers, until dropped, whatever happens to its name.
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

    /// What the content hashed to when it was stored.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file itself, for readers with their own ways (`sendfile`, a plan of file ranges).
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Fills `buffer` from `offset` on. Blocking.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    /// Reads what is in memory from `offset` on, without waiting for the disk; how much that is, possibly nothing.
    pub(crate) fn read_cached(&self, buffer: &mut [u8], offset: u64) -> usize {
        let mut buffers = [IoSliceMut::new(buffer)];
        rustix::io::preadv2(&*self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT).unwrap_or(0)
    }

    /// As the function of this name.
    pub(crate) fn read_ahead(&self, offset: u64) {
        read_ahead(&self.file, offset);
    }
}

/// Asks for what a reader that has come to `offset` is going to want, so that it need not wait for that.
pub(crate) fn read_ahead(file: &File, offset: u64) {
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(READ_AHEAD), Advice::WillNeed);
}

impl Store {
    /// The blob, wherever it is used; for the embedding program, which has its own idea of who may see it.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<BlobFile, Error> {
        BlobFile::open(&self.content(digest), digest)?.ok_or(Error::BlobUnknown)
    }

    /// The blob, if this repository has it. Whoever is told so can rely on it for the grace period of garbage collection.
    pub(crate) fn blob_in(&self, name: &RepositoryName, digest: &Digest) -> Result<BlobFile, Error> {
        let record = self.layer_record(name, digest);
        if !exists(&record)? {
            return Err(Error::BlobUnknown);
        }
        let blob = self.blob(digest)?;
        if self.refresh_if_present(&record, digest)? { Ok(blob) } else { Err(Error::BlobUnknown) }
    }

    /// As [`Store::blob_in`], where that needs neither the disk nor a lock; in every other case `None`, also for what is not
    /// there. Never blocks.
    pub(crate) fn blob_cached(&self, name: &RepositoryName, digest: &Digest) -> Option<BlobFile> {
        let record = self.layer_record(name, digest);
        disk::open_cached(&record, OFlags::PATH)?;
        let content = self.content(digest);
        let blob = BlobFile::of(disk::open_cached(&content, OFlags::RDONLY)?, &content, digest).ok()?;
        self.touches.fresh(&record).then_some(blob)
    }

    /// Whether the repository lists the blob among its own and the bytes are there.
    pub(super) fn has_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        Ok(exists(&self.layer_record(name, digest))? && exists(&self.content(digest))?)
    }

    /// Makes `record`, which was just seen, young again; whether it was not collected in between.
    pub(super) fn refresh_if_present(&self, record: &Path, digest: &Digest) -> Result<bool, Error> {
        if self.touches.fresh(record) {
            return Ok(true);
        }
        let _transition = self.locks.transition(digest);
        match self.disk.touch(record) {
            Ok(()) => self.touches.note(record),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                tracing::debug!(error = %error, "a record could not be touched; remembered in memory");
                self.touches.unsaved(record);
                return exists(record);
            }
        }
        Ok(true)
    }

    /// Moves verified, fsynced content of an upload into the pool and gives it to the repository.
    pub(super) fn adopt(
        &self,
        upload: &Path,
        name: &RepositoryName,
        digest: &Digest,
        length: u64,
        reserved: &mut Reservation,
    ) -> Result<(), Error> {
        self.ensure_repository(name)?;
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

    /// Gives a blob of `source` to `name` as well; whether `source` had it.
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
        self.ensure_repository(name)?;
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
        self.disk.sync_parent(&record)?;
        Ok(true)
    }

    /// Takes a blob away from a repository. The bytes stay in the pool for those that share them, until collected.
    pub(crate) fn delete_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        self.expect_writable()?;
        let references = self.references(name).ok_or(Error::BlobUnknown)?;
        let _exclusive = references.exclusive();
        let record = self.layer_record(name, digest);
        if !exists(&record)? {
            return Err(Error::BlobUnknown);
        }
        self.expect_not_pinned(name, digest)?;
        {
            let _transition = self.locks.transition(digest);
            if !self.disk.remove(&record)? {
                return Err(Error::BlobUnknown);
            }
            self.touches.forget(&record);
            self.uncount(name, digest);
        }
        self.disk.sync_parent(&record)
    }
}
