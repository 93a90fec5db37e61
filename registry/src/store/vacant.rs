//! Repositories that contain nothing any more.
//!
//! ```text
//!  push, mount, put, pin   hold the lock object of the repository from `ensure_repository` to their end
//!  collection              the repository has no record, tag or pin, and no operation holds its lock object:
//!                          removed from memory ─> its directory removed ─> repos/ synced
//! ```
//!
//! While a repository is removed, none is created; an operation that comes later creates it again. A crash half-way
//! leaves a part of the directories: the next start completes them, and the next collection removes them. Manifests of
//! the removed repository that are still in memory are made invalid by a change of the pool: the repository that may
//! follow under the name counts its own changes from zero.

use std::sync::Arc;

use super::{LAYERS, MANIFESTS, PINS, Store, TAGS, disk};
use crate::digest::Algorithm;
use crate::error::Error;
use crate::name::RepositoryName;

impl Store {
    /// Removes a repository that has nothing and that no operation uses; returns whether it was removed.
    pub(super) fn remove_vacant(&self, name: &RepositoryName) -> Result<bool, Error> {
        // Most repositories have something: they are not locked for the question.
        if !self.is_vacant(name)? {
            return Ok(false);
        }
        let Some(_alone) = self.creating.try_write() else { return Ok(false) };
        {
            let mut known = self.repositories.write();
            let unused = known.get(name).is_some_and(|references| Arc::strong_count(references) == 1);
            if !unused || !self.is_vacant(name)? {
                return Ok(false);
            }
            let _changing = self.cache.pool.begin();
            known.remove(name);
            self.forget_usage(name);
        }
        self.layouts_behind.lock().remove(name);
        self.disk.remove_directory(&self.repository(name))?;
        self.disk.sync_directory(&self.repos())?;
        Ok(true)
    }

    fn is_vacant(&self, name: &RepositoryName) -> Result<bool, Error> {
        let repository = self.repository(name);
        let mut directories = vec![repository.join(TAGS), repository.join(PINS)];
        for kind in [LAYERS, MANIFESTS] {
            directories.extend(
                Algorithm::ALL.iter().map(|algorithm| repository.join(kind).join(algorithm.as_str())),
            );
        }
        for directory in directories {
            if disk::names(&directory)?.next().transpose()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
