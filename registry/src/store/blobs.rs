//! Blobs: content in the pool, and which repository has it.
//!
//! ```text
//!  uploads/<uuid>=<name>  --fsync, rename-->  blobs/<algorithm>/<hex>
//!                                             repos/<name>/_layers/<algorithm>/<hex>   --fsync both directories-->  201
//! ```
//!
//! The rename replaces what is there. Eight clients pushing one blob all succeed and leave one copy, and a
//! push heals a stored copy that has rotted; a reader of the old copy keeps it until it is done.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::{Store, disk, sync_parent};
use crate::digest::Digest;
use crate::error::Error;
use crate::name::RepositoryName;

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
        let length = file.metadata().map_err(Error::io("read the length of", path))?.len();
        Ok(Some(BlobFile { digest: digest.clone(), length, file: Arc::new(file) }))
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
}

impl Store {
    /// The blob, wherever it is used; for the embedding program, which has its own idea of who may see it.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<BlobFile, Error> {
        BlobFile::open(&self.content(digest), digest)?.ok_or(Error::BlobUnknown)
    }

    /// The blob, if this repository has it.
    pub(crate) fn blob_in(&self, name: &RepositoryName, digest: &Digest) -> Result<BlobFile, Error> {
        if self.has_layer(name, digest)? { self.blob(digest) } else { Err(Error::BlobUnknown) }
    }

    /// Whether the repository lists the blob among its own and the bytes are there.
    pub(super) fn has_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        Ok(self.has_layer(name, digest)? && exists(&self.content(digest))?)
    }

    fn has_layer(&self, name: &RepositoryName, digest: &Digest) -> Result<bool, Error> {
        exists(&self.layer_record(name, digest))
    }

    /// Moves verified, fsynced content of an upload into the pool and gives it to the repository.
    pub(super) fn adopt(&self, upload: &Path, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        self.ensure_repository(name)?;
        let content = self.content(digest);
        let record = self.layer_record(name, digest);
        fs::set_permissions(upload, Permissions::from_mode(0o444)).map_err(Error::io("protect", upload))?;
        fs::rename(upload, &content).map_err(Error::io("rename into place", &content))?;
        disk::touch(&record)?;
        sync_parent(&content)?;
        sync_parent(&record)
    }

    /// Gives a blob of `source` to `name` as well; whether `source` had it.
    pub(crate) fn mount(
        &self,
        source: &RepositoryName,
        name: &RepositoryName,
        digest: &Digest,
    ) -> Result<bool, Error> {
        if !self.has_blob(source, digest)? {
            return Ok(false);
        }
        self.ensure_repository(name)?;
        let record = self.layer_record(name, digest);
        disk::touch(&record)?;
        sync_parent(&record)?;
        Ok(true)
    }

    /// Takes a blob away from a repository. The bytes stay in the pool for those that share them.
    pub(crate) fn delete_blob(&self, name: &RepositoryName, digest: &Digest) -> Result<(), Error> {
        let lock = self.repository_lock(name).ok_or(Error::BlobUnknown)?;
        let _exclusive = lock.write().unwrap_or_else(PoisonError::into_inner);
        let record = self.layer_record(name, digest);
        if !disk::remove(&record)? {
            return Err(Error::BlobUnknown);
        }
        sync_parent(&record)
    }
}

pub(super) fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(Error::io("look for", path))
}
