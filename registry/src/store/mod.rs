//! The registry's content on disk. Blocking throughout: callers run it off the async threads.
//!
//! ```text
//! ROOT/
//!   blobs/sha256/<hex>                  one pool of content, manifests included, one copy of each
//!   blobs/sha512/<hex>
//!   repos/<name, "/" as "=">/
//!     _layers/<algorithm>/<hex>         empty: the repository has this blob; mtime: its last use
//!     _manifests/<algorithm>/<hex>      the descriptor (JSON) of a manifest the repository has
//!     _tags/<tag>                       the descriptor (JSON) of the manifest the tag names
//!     _referrers/<algorithm>/<hex>/     by subject: one descriptor (JSON) for each manifest that names it
//!     _pins/<hash of digest and owner>  the pins: content and owner (JSON)
//!     oci-layout, index.json, blobs     derived: the repository as an OCI image layout
//!   uploads/<uuid>=<name, "/" as "=">   the bytes received so far of one upload session
//!   states/<uuid>                       the running hash of a session
//!   trash/<algorithm>-<hex>             unreferenced content about to be removed
//!   quarantine/                         corrupted content
//!   scrub.json                          the first open of the registry, and the progress of the scrub
//!   tmp/                                temporary files, removed at start
//! ```
//!
//! References are files, so no index can disagree with the disk: a repository has what is in its directories, and a
//! restart or a restored backup needs no repair.
//!
//! The steps of each change, in this order; "sync" is an fsync, and the response is sent after the last one:
//!
//! ```text
//!  push blob      write, sync file -> [rename into pool, create layer record] -> sync pool -> sync records
//!  mount          [source still has it? create layer record] -> sync pool -> sync records
//!  put manifest   references exist? -> write + sync temps -> [rename into pool, rename record] -> sync both
//!                 -> rename tag record -> sync tags
//!  delete         remove tags -> sync tags -> [remove record] -> sync records -> remove referrer record
//!  pin, unpin     write, sync, rename, sync; remove, sync
//!  collect        remove unreachable records -> sync records -> [rename content into trash] -> sync pool -> unlink
//!                 -> remove empty repositories -> sync repos (see `vacant`)
//! ```
//!
//! `[ ]` is done under the transition lock of the digest (see `locks`): to all other operations it is atomic.
//!
//! Invariants:
//! - A file in the pool was fsynced and had the digest of its name before it was renamed there. A torn write is a file
//!   in `uploads/` or `tmp/` and never becomes content.
//! - Content is visible in a repository only through `_layers` or `_manifests`, never through the pool alone, so a
//!   client cannot find out what another repository contains. A record without its content shows nothing either.
//! - A tag that names a manifest the repository does not have is treated as absent.
//! - Blob commits share no lock but the transition lock of their digest, for two system calls. Putting manifests to one
//!   repository shares a lock that only deletes and collections of that repository take exclusively: a reference of a
//!   manifest cannot vanish between check and commit.
//! - Reading, deleting and collecting need no free space.
//! - Manifests, and the lengths of blobs, are also served from memory. A rename or removal of a record of `_manifests` or
//!   `_tags` and a removal of a record of `_layers` is made within [`cache::Changes::begin`] of its repository, a removal
//!   of content that records lead to within that of the pool (see `cache` and `lengths`).

mod archive;
mod blobs;
mod cache;
mod catalog;
mod collect;
#[cfg(test)]
mod collect_tests;
#[cfg(test)]
mod commit_tests;
mod describe;
mod disk;
mod embedded;
#[cfg(test)]
mod faults;
mod immutable;
#[cfg(test)]
mod interleave;
mod layout;
mod lengths;
mod locks;
mod manifests;
mod mark;
#[cfg(test)]
mod model;
mod order;
mod pins;
mod quota;
mod referrers;
#[cfg(test)]
mod request_tests;
mod resume;
mod retention;
mod scrub;
mod sessions;
mod space;
mod tags;
mod touch;
mod uploads;
mod vacant;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use uuid::Uuid;

pub use self::archive::Imported;
pub use self::blobs::BlobFile;
pub(crate) use self::blobs::read_ahead;
pub use self::collect::{GcOptions, GcReport};
pub use self::describe::TagEntry;
pub use self::layout::Rebuilt;
pub use self::manifests::Manifest;
pub use self::pins::{InvalidPinOwner, Pin, PinOwner};
pub use self::quota::QuotaUsage;
pub use self::retention::{ExpiredTag, RetentionRule};
pub use self::scrub::Scrubbed;
pub(crate) use self::scrub::{CheckProgress, PARTS, Scrubs};
pub use self::sessions::UploadSession;
pub use self::uploads::Swept;
pub(crate) use self::uploads::{Session, Sink, UploadLock};

use self::cache::Cache;
use self::disk::Disk;
use self::lengths::Lengths;
use self::locks::{Locks, References};
use self::pins::Pins;
use self::quota::Quotas;
use self::space::SpaceWatch;
use self::touch::Touches;
use crate::config::Config;
use crate::digest::{Algorithm, Digest};
use crate::error::Error;
use crate::name::{RepositoryName, Tag};

/// The open store.
pub(crate) struct Store {
    pub(crate) config: Config,
    disk: Disk,
    locks: Locks,
    touches: Touches,
    cache: Cache,
    lengths: Lengths,
    pins: Mutex<Pins>,
    /// Held while a pin is made or ended, so that memory and disk never disagree.
    pinning: Mutex<()>,
    quotas: Arc<Quotas>,
    space: SpaceWatch,
    scrubs: Mutex<Scrubs>,
    /// The reason of the read-only mode, while it is set.
    read_only: RwLock<Option<String>>,
    /// Repositories that changed since their layout was written.
    layouts_behind: Mutex<BTreeSet<RepositoryName>>,
    layouts_writing: Mutex<()>,
    /// Notifies the task that writes layouts of a change, or of the end of the store.
    pub(crate) layouts_changed: Arc<Notify>,
    /// Repositories whose directories are known to be durable, each with the lock of its references.
    repositories: RwLock<HashMap<RepositoryName, Arc<References>>>,
    /// Shared while a repository is created, exclusive while one is removed.
    creating: RwLock<()>,
    sessions: Mutex<HashMap<Uuid, Arc<Session>>>,
}

impl Store {
    /// Opens the store under `config.root`, creates what is missing and finds unfinished uploads.
    pub(crate) fn open(config: Config) -> Result<Self, Error> {
        Self::open_on(Disk::default(), config)
    }

    fn open_on(disk: Disk, mut config: Config) -> Result<Self, Error> {
        config.root = std::path::absolute(&config.root).map_err(Error::io("find", &config.root))?;
        disk.create_directories(&config.root)?;
        let quotas = Quotas::new(config.quotas.clone());
        let touches = Touches::new(config.touch_interval);
        let store = Store {
            config,
            disk,
            locks: Locks::new(),
            touches,
            cache: Cache::default(),
            lengths: Lengths::default(),
            pins: Mutex::default(),
            pinning: Mutex::default(),
            quotas,
            space: SpaceWatch::default(),
            scrubs: Mutex::default(),
            read_only: RwLock::default(),
            layouts_behind: Mutex::default(),
            layouts_writing: Mutex::default(),
            layouts_changed: Arc::default(),
            repositories: RwLock::default(),
            creating: RwLock::default(),
            sessions: Mutex::default(),
        };
        let directories = [store.pool(), store.repos(), store.uploads(), store.trash(), store.temporary()];
        for directory in directories.into_iter().chain([store.quarantined(), store.states()]) {
            store.disk.create_directory(&directory)?;
        }
        for algorithm in Algorithm::ALL {
            store.disk.create_directory(&store.pool().join(algorithm.as_str()))?;
        }
        for temp in disk::names(&store.temporary())? {
            store.disk.discard(&store.temporary().join(temp?));
        }
        store.find_repositories()?;
        store.count_usage()?;
        store.find_sessions()?;
        store.remove_orphaned_states()?;
        store.find_pins()?;
        store.find_scrubs()?;
        store.repositories().iter().for_each(|name| store.changed(name));
        Ok(store)
    }

    /// Every repository, in the order of names.
    pub(crate) fn repositories(&self) -> Vec<RepositoryName> {
        let known = self.repositories.read();
        let mut names: Vec<RepositoryName> = known.keys().cloned().collect();
        names.sort();
        names
    }

    /// Refuses every change by clients and collections, with this reason, or ends that.
    pub(crate) fn set_read_only(&self, reason: Option<String>) {
        *self.read_only.write() = reason;
    }

    /// The reason of the read-only mode, while it is set.
    pub(crate) fn read_only(&self) -> Option<String> {
        self.read_only.read().clone()
    }

    fn expect_writable(&self) -> Result<(), Error> {
        match &*self.read_only.read() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
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

    /// Creates the repository's directories, durably, when this process has not seen them yet. The repository stays as
    /// long as the result is held, or anything is recorded in it.
    fn ensure_repository(&self, name: &RepositoryName) -> Result<Arc<References>, Error> {
        if let Some(references) = self.references(name) {
            return Ok(references);
        }
        let _creating = self.creating.read();
        let repository = self.repository(name);
        self.disk.create_directory(&repository)?;
        for kind in [LAYERS, MANIFESTS, REFERRERS] {
            self.disk.create_directory(&repository.join(kind))?;
            for algorithm in Algorithm::ALL {
                self.disk.create_directory(&repository.join(kind).join(algorithm.as_str()))?;
            }
        }
        self.disk.create_directory(&repository.join(PINS))?;
        self.disk.create_directory(&repository.join(TAGS))?;
        let mut known = self.repositories.write();
        Ok(Arc::clone(known.entry(name.clone()).or_default()))
    }

    /// The lock of a repository's references; `None` for a repository that does not exist.
    fn references(&self, name: &RepositoryName) -> Option<Arc<References>> {
        self.repositories.read().get(name).cloned()
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

    fn trash(&self) -> PathBuf {
        self.config.root.join("trash")
    }

    fn states(&self) -> PathBuf {
        self.config.root.join("states")
    }

    fn quarantined(&self) -> PathBuf {
        self.config.root.join("quarantine")
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

impl Drop for Store {
    fn drop(&mut self) {
        self.layouts_changed.notify_one();
    }
}

const LAYERS: &str = "_layers";
const MANIFESTS: &str = "_manifests";
const TAGS: &str = "_tags";
const REFERRERS: &str = "_referrers";
const PINS: &str = "_pins";

fn content_path(base: &Path, digest: &Digest) -> PathBuf {
    base.join(digest.algorithm().as_str()).join(digest.hex())
}
