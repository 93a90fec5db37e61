//! The registry's content on disk. Blocking throughout: callers run it off the async threads.
//!
//! ```text
//! ROOT/
//!   blobs/sha256/<hex>                  one pool of content, manifests included, one copy of each
//!   blobs/sha512/<hex>
//!   repos/<name, "/" as "=">/
//!     _layers/<algorithm>/<hex>         empty: the repository has this blob
//!     _manifests/<algorithm>/<hex>      the descriptor (JSON) of a manifest the repository has
//!     _tags/<tag>                       the descriptor (JSON) of the manifest the tag names
//!     _referrers/<algorithm>/<hex>/     by subject: one descriptor (JSON) for each manifest that names it
//!   uploads/<uuid>=<name, "/" as "=">   the bytes received so far of one upload session
//!   tmp/                                drafts of small files, emptied at start
//! ```
//!
//! Every repository directory leaves the names `oci-layout`, `index.json` and `blobs` free, and the pool has the
//! layout's own shape: a repository becomes an OCI image layout by adding those three, without moving a byte.
//!
//! Invariants:
//! - A file in the pool was fsynced and hashed to its name before it was renamed there. A torn write is a
//!   file in `uploads/` or `tmp/` and never becomes content.
//! - Content is visible in a repository only through `_layers` or `_manifests`; the pool alone shows nothing, so
//!   no repository can be asked what another one holds.
//! - A tag that names a manifest the repository does not have is treated as absent.
//! - Blob commits share no lock. Putting manifests to one repository shares a read lock which only deletes
//!   of the same repository take exclusively: what a manifest refers to cannot vanish between check and commit.

mod blobs;
mod catalog;
mod disk;
mod manifests;
mod referrers;
mod tags;
mod uploads;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use uuid::Uuid;

pub use self::blobs::BlobFile;
pub use self::manifests::Manifest;
pub use self::uploads::Swept;
pub(crate) use self::uploads::{Session, Sink};

use crate::config::Config;
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

/// The open store.
pub(crate) struct Store {
    pub(crate) config: Config,
    /// Repositories whose directories are known to be durable, each with the lock of its references.
    repositories: RwLock<HashMap<RepositoryName, Arc<RwLock<()>>>>,
    sessions: Mutex<HashMap<Uuid, Arc<Session>>>,
}

impl Store {
    /// Opens the store under `config.root`, creating what is missing and picking up unfinished uploads.
    pub(crate) fn open(mut config: Config) -> Result<Self, Error> {
        config.root = std::path::absolute(&config.root).map_err(Error::io("find", &config.root))?;
        disk::create_directories(&config.root)?;
        let store = Store { config, repositories: RwLock::default(), sessions: Mutex::default() };
        for directory in [store.pool(), store.repos(), store.uploads(), store.temporary()] {
            disk::create_directory(&directory)?;
        }
        for algorithm in Algorithm::ALL {
            disk::create_directory(&store.pool().join(algorithm.as_str()))?;
        }
        for draft in disk::names(&store.temporary())? {
            disk::discard(&store.temporary().join(draft?));
        }
        store.find_repositories()?;
        store.find_sessions()?;
        Ok(store)
    }

    /// Every repository, in the order of names.
    pub(crate) fn repositories(&self) -> Vec<RepositoryName> {
        let known = self.repositories.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<RepositoryName> = known.keys().cloned().collect();
        names.sort();
        names
    }

    pub(crate) fn free_bytes(&self) -> Result<u64, Error> {
        disk::free_bytes(&self.config.root)
    }

    /// Whether `incoming` more bytes fit without touching the reserve.
    pub(crate) fn expect_space_for(&self, incoming: u64) -> Result<(), Error> {
        let needed = incoming.saturating_add(self.config.reserve_bytes);
        if self.free_bytes()? < needed { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn find_repositories(&self) -> Result<(), Error> {
        let found: HashSet<RepositoryName> = disk::names(&self.repos())?
            .filter_map(|name| name.map(|name| RepositoryName::from_directory(&name)).transpose())
            .collect::<Result<_, _>>()?;
        for name in found {
            self.ensure_repository(&name)?;
        }
        Ok(())
    }

    /// Creates the repository's directories, durably, when this process has not seen them yet.
    fn ensure_repository(&self, name: &RepositoryName) -> Result<Arc<RwLock<()>>, Error> {
        if let Some(lock) = self.repository_lock(name) {
            return Ok(lock);
        }
        let repository = self.repository(name);
        disk::create_directory(&repository)?;
        for kind in [LAYERS, MANIFESTS, REFERRERS] {
            disk::create_directory(&repository.join(kind))?;
            for algorithm in Algorithm::ALL {
                disk::create_directory(&repository.join(kind).join(algorithm.as_str()))?;
            }
        }
        disk::create_directory(&repository.join(TAGS))?;
        let mut known = self.repositories.write().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(known.entry(name.clone()).or_default()))
    }

    /// The lock of a repository's references; `None` for a repository that does not exist.
    fn repository_lock(&self, name: &RepositoryName) -> Option<Arc<RwLock<()>>> {
        self.repositories.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<Session>>> {
        // The map is whole between any two statements, so a panic elsewhere does not spoil it.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> PathBuf {
        self.config.root.join("blobs")
    }

    fn repos(&self) -> PathBuf {
        self.config.root.join("repos")
    }

    fn uploads(&self) -> PathBuf {
        self.config.root.join("uploads")
    }

    fn temporary(&self) -> PathBuf {
        self.config.root.join("tmp")
    }

    fn repository(&self, name: &RepositoryName) -> PathBuf {
        self.repos().join(name.to_directory())
    }

    fn content(&self, digest: &Digest) -> PathBuf {
        content_path(&self.pool(), digest)
    }

    fn layer_record(&self, name: &RepositoryName, digest: &Digest) -> PathBuf {
        content_path(&self.repository(name).join(LAYERS), digest)
    }

    fn manifest_record(&self, name: &RepositoryName, digest: &Digest) -> PathBuf {
        content_path(&self.repository(name).join(MANIFESTS), digest)
    }

    fn tags_directory(&self, name: &RepositoryName) -> PathBuf {
        self.repository(name).join(TAGS)
    }

    fn tag_record(&self, name: &RepositoryName, tag: &Tag) -> PathBuf {
        self.tags_directory(name).join(tag.as_str())
    }
}

const LAYERS: &str = "_layers";
const MANIFESTS: &str = "_manifests";
const TAGS: &str = "_tags";
const REFERRERS: &str = "_referrers";

fn content_path(base: &Path, digest: &Digest) -> PathBuf {
    base.join(digest.algorithm().as_str()).join(digest.hex())
}

/// Makes durable the directory a file was just put into or removed from.
fn sync_parent(file: &Path) -> Result<(), Error> {
    file.parent().map_or(Ok(()), disk::sync_directory)
}
