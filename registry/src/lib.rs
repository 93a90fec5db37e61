//! A small OCI registry whose acknowledged content is durable: an axum router over its own store.
//!
//! ```text
//!                 Authorizer (of the embedding program, or AccessControl, TokenAuthority)     Audit
//!                     ^ Caller, Access                                                        ^ AuditEvent
//!  client -> http::path -> http::{blobs, uploads, manifests, …} -> Registry -> store (blocking threads) -> disk
//!                                                                        ^
//!  embedding program: resolve, blob, tags, pin, collect, scrub, retain --+
//!                     import, export, quotas, sweep, set_read_only, …
//! ```
//!
//! The crate knows the distribution specification and a directory. It has no jobs, no configuration files and no
//! database, and gets users from a [`UserAuthenticator`] ([`Htpasswd`] is one). Before a 201 is sent, the content is on
//! disk, both the file and its directory; served content was hashed while it was written. Every body, wait and buffer
//! has a limit in [`Config`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use registry::{AllowAll, Config, Registry};
//!
//! # async fn run() -> Result<(), registry::Error> {
//! let registry = Registry::open(Config::new("/var/lib/example/oci")).await?;
//! let router: axum::Router = registry.router(Arc::new(AllowAll));
//! # let _ = router; Ok(())
//! # }
//! ```
//!
//! With users of an htpasswd file, rules, and Docker's token flow:
//!
//! ```no_run
//! use std::sync::Arc;
//! use registry::{AccessControl, Htpasswd, HtpasswdOptions, Policy, TokenAuthority, TokenOptions};
//!
//! # async fn run(registry: registry::Registry) -> Result<(), Box<dyn std::error::Error>> {
//! let users = Htpasswd::open("/etc/example/htpasswd", HtpasswdOptions::default()).await?;
//! let rules = vec!["os-images/** anonymous read".parse()?, "os-images/** group:ops read,create,update".parse()?];
//! let control = AccessControl::new(Arc::new(users), Policy { rules, ..Policy::default() });
//! let authority = Arc::new(TokenAuthority::new(control, TokenOptions::default()));
//! let router = registry.router(Arc::clone(&authority) as _).merge(authority.token_router());
//! # let _: axum::Router = router; Ok(())
//! # }
//! ```
//!
//! The registry does one thing by itself: it updates the OCI image layouts on disk a moment after each change. The
//! embedding program decides when to collect garbage, to scrub, to apply retention rules and to sweep abandoned
//! uploads; each of these can run at any time, concurrently with everything else.
//!
//! Specification: OCI distribution-spec, image-spec, image-layout.

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod access;
mod config;
mod digest;
mod embedded;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod immutable;
mod links;
mod manifest;
mod name;
mod pattern;
mod places;
mod store;
mod uploader;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

pub use crate::access::{
    Access, AccessControl, AccessRequest, Action, AllowAll, Audit, AuditCounters, AuditEvent, Audited,
    Authorizer, Caller, ClientScheme, Credentials, Decision, Denied, Htpasswd, HtpasswdOptions, InvalidRule,
    LocalAddress, NoAudit, OverTls, Policy, PolicyRule, PolicySubject, Realm, Reason, Rights, Secret,
    SigningKeys, SubjectPattern, TokenAuthority, TokenOptions, UserAuthenticator, decide,
};
pub use crate::config::{Config, InvalidReserve, Quota, Reserve};
pub use crate::digest::{Algorithm, Digest, InvalidDigest};
pub use crate::error::{Error, UploadLimit};
pub use crate::http::{READ_BUFFER, client_host, is_proxied};
pub use crate::immutable::{ImmutableTags, InvalidImmutableTags};
pub use crate::name::{InvalidReference, InvalidRepositoryName, InvalidTag, Reference, RepositoryName, Tag};
pub use crate::pattern::{InvalidRepositoryPattern, InvalidTagPattern, RepositoryPattern, TagPattern};
pub use crate::store::{
    BlobFile, ExpiredTag, GcOptions, GcReport, Imported, InvalidPinOwner, Manifest, Pin, PinOwner,
    QuotaUsage, Rebuilt, RetentionRule, Scrubbed, Swept, TagEntry, UploadSession,
};

pub use crate::uploader::Uploader;
pub use crate::wire::{FileSender, SendfileStream};

use crate::places::Places;
use crate::store::{CheckProgress, PARTS, Scrubs, Store};

/// The delay between a change and the update of the layout on disk.
const LAYOUT_DELAY: Duration = Duration::from_millis(100);
/// The delay after a failed update.
const LAYOUT_RETRY: Duration = Duration::from_secs(30);
/// The time that a cancellation waits for the end of the request that writes to the session.
const CANCEL_WAIT: Duration = Duration::from_secs(10);

/// The number of uploads and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadLoad {
    /// Open upload sessions, idle ones included.
    pub sessions: usize,
    /// The limit of open sessions.
    pub sessions_max: usize,
    /// Request bodies being received.
    pub receiving: usize,
    /// The limit of bodies received at one time.
    pub receiving_max: usize,
    /// Whether clients are refused because one of these limits is reached.
    pub exhausted: bool,
}

/// An open registry. Clones share it.
#[derive(Clone)]
pub struct Registry {
    store: Arc<Store>,
    /// One place per request body being received.
    places: Arc<Places>,
}

impl Registry {
    /// Opens the registry stored under `config.root`, creating it when missing. Unfinished uploads of an earlier
    /// process can be continued; its temporary files are removed.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NoSpace`] when the directory cannot be created, read or written.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let places = Arc::new(Places::new(&config));
        let store = Arc::new(blocking(move || Store::open(config)).await?);
        tokio::spawn(write_layouts(Arc::downgrade(&store), Arc::clone(&store.layouts_changed)));
        Ok(Registry { store, places })
    }

    /// The router of the distribution API under `/v2`, to be merged into the embedding program's router.
    pub fn router(&self, authorizer: Arc<dyn Authorizer>) -> axum::Router {
        http::router(self.clone(), authorizer, Arc::new(NoAudit))
    }

    /// The router of the distribution API, which records every change and every refusal in `audit`.
    pub fn audited_router(&self, authorizer: Arc<dyn Authorizer>, audit: Arc<dyn Audit>) -> axum::Router {
        http::router(self.clone(), authorizer, audit)
    }

    /// Returns the manifest that `reference` names in `repository`. Its bytes were hashed when they were read.
    ///
    /// # Errors
    /// [`Error::ManifestUnknown`] when the repository has no such manifest, [`Error::Corrupted`] when the stored bytes
    /// have another digest, [`Error::Io`] when they cannot be read.
    pub async fn resolve(
        &self,
        repository: &RepositoryName,
        reference: &Reference,
    ) -> Result<Manifest, Error> {
        if let Some(manifest) = self.store.resolve_from_memory(repository, reference) {
            return Ok(manifest);
        }
        let (repository, reference) = (repository.clone(), reference.clone());
        self.run(move |store| store.resolve(&repository, &reference)).await
    }

    /// Opens a blob by its digest, in any repository. The file stays open for as long as the result lives.
    ///
    /// # Errors
    /// [`Error::BlobUnknown`] when no such content is stored, [`Error::Io`] when it cannot be opened.
    pub async fn blob(&self, digest: &Digest) -> Result<BlobFile, Error> {
        let digest = digest.clone();
        self.run(move |store| store.blob(&digest)).await
    }

    /// Every repository, in the order of names.
    pub async fn repositories(&self) -> Vec<RepositoryName> {
        self.store.repositories()
    }

    /// Every tag of a repository, in byte order.
    ///
    /// # Errors
    /// [`Error::RepositoryUnknown`] when the repository does not exist, [`Error::Io`] when its tags cannot be read.
    pub async fn tags(&self, repository: &RepositoryName) -> Result<Vec<Tag>, Error> {
        let repository = repository.clone();
        self.run(move |store| store.tags(&repository, None, usize::MAX)).await.map(|page| page.tags)
    }

    /// Up to `limit` tags with what they name, in byte order, beginning after `last`; and whether more follow.
    ///
    /// # Errors
    /// [`Error::RepositoryUnknown`] when the repository does not exist, [`Error::Io`] when its tags cannot be read.
    pub async fn tag_entries(
        &self,
        repository: &RepositoryName,
        last: Option<String>,
        limit: usize,
    ) -> Result<(Vec<TagEntry>, bool), Error> {
        let repository = repository.clone();
        self.run(move |store| store.tag_entries(&repository, last.as_deref(), limit)).await
    }

    /// The bytes of the content of a repository, a blob in two repositories counted in both; and when a tag of it was last
    /// pushed or deleted. Both are known without reading the content.
    pub fn size_of(&self, repository: &RepositoryName) -> (u64, Option<SystemTime>) {
        (self.store.bytes_of(repository), self.store.tags_changed(repository))
    }

    /// Removes upload sessions without a write for [`Config::upload_session_age`] before `now`.
    ///
    /// # Errors
    /// [`Error::Io`] when a session cannot be read or removed.
    pub async fn sweep(&self, now: SystemTime) -> Result<Swept, Error> {
        self.run(move |store| store.sweep_uploads(now)).await
    }

    /// Every open upload session, the one that waits longest for a write first.
    ///
    /// # Errors
    /// [`Error::Io`] when a session cannot be read.
    pub async fn uploads(&self) -> Result<Vec<UploadSession>, Error> {
        self.run(|store| store.upload_sessions()).await
    }

    /// Cancels an upload session and removes its bytes, also while a request writes to it; returns whether it existed.
    /// The client is refused with the reason.
    ///
    /// # Errors
    /// [`Error::UploadBusy`] when the request that writes to it does not end within 10 s; it is refused when it does.
    pub async fn cancel_upload(&self, id: &str) -> Result<bool, Error> {
        let Some(session) = id.parse().ok().and_then(|id| self.store.upload_session(id)) else {
            return Ok(false);
        };
        session.stop();
        let lock = tokio::time::timeout(CANCEL_WAIT, session.lock()).await;
        let lock = lock.map_err(|_| Error::UploadBusy(session.id))?;
        self.run(move |store| Ok(store.end_session(&session, lock))).await
    }

    /// The number of uploads and its limits. The registry is exhausted while every session is taken, or while every place for a
    /// body is taken and a client was refused in the last minute.
    pub fn upload_load(&self) -> UploadLoad {
        let (sessions, sessions_max) = (self.store.open_sessions(), self.config().max_upload_sessions);
        let (receiving, receiving_max) = self.places.in_use();
        let exhausted = sessions >= sessions_max || self.places.exhausted();
        UploadLoad { sessions, sessions_max, receiving, receiving_max, exhausted }
    }

    /// Removes unreferenced content, concurrently with all other operations. See [`GcOptions`] for what stays.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] in read-only mode; [`Error::Io`] when the store cannot be read or changed. The next run
    /// continues.
    pub async fn collect(&self, options: GcOptions) -> Result<GcReport, Error> {
        self.run(move |store| store.collect(&options)).await
    }

    /// Brings the OCI image layouts on disk up to date, which otherwise happens a moment after each change. To be
    /// called before the process ends.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NoSpace`] when a layout cannot be written; it is written later.
    pub async fn flush_layouts(&self) -> Result<(), Error> {
        self.run(|store| store.flush_layouts()).await
    }

    /// Derives again everything that is derived from manifests and tags: layouts, and records of referrers.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::NoSpace`] when a record cannot be read or written.
    pub async fn rebuild(&self) -> Result<Rebuilt, Error> {
        self.run(|store| store.rebuild()).await
    }

    /// Reads all content at `bytes_per_second` and moves corrupted content into quarantine. A pass that was
    /// interrupted, by a restart or because this future was dropped, is continued; the result covers the whole pass. A file
    /// that cannot be opened or moved is in the result and stays.
    ///
    /// # Errors
    /// [`Error::Io`] when the pool cannot be listed, [`Error::ReadOnly`] when content is to be moved in read-only mode.
    pub async fn scrub(&self, bytes_per_second: NonZeroU64) -> Result<Scrubbed, Error> {
        let mut scrubs = self.store.scrubs();
        if !scrubs.unfinished() {
            scrubs = Scrubs { opened: scrubs.opened, last: scrubs.last, ..Scrubs::default() };
            scrubs.present.started = Some(SystemTime::now());
            self.note_scrubs(&scrubs).await?;
        }
        while scrubs.part < PARTS {
            let part = scrubs.part;
            for digest in self.run(move |store| store.scrub_part(part)).await? {
                self.scrub_one(digest, bytes_per_second, &mut scrubs.present).await?;
            }
            scrubs.part += 1;
            if scrubs.part == PARTS {
                scrubs.present.completed = Some(SystemTime::now());
                scrubs.last = Some(scrubs.present.clone());
            }
            self.note_scrubs(&scrubs).await?;
        }
        Ok(scrubs.present)
    }

    async fn note_scrubs(&self, scrubs: &Scrubs) -> Result<(), Error> {
        let noted = scrubs.clone();
        self.run(move |store| {
            store.note_scrubs(noted);
            Ok(())
        })
        .await
    }

    async fn scrub_one(
        &self,
        digest: Digest,
        bytes_per_second: NonZeroU64,
        found: &mut Scrubbed,
    ) -> Result<(), Error> {
        match self.read_one(digest.clone(), bytes_per_second, found).await {
            Err(error @ Error::Io { .. }) => {
                tracing::error!(
                    %digest, error = &error as &dyn std::error::Error,
                    "stored content could not be opened, or not be moved into quarantine; the scrub goes on: check the disk"
                );
                found.add_unreadable(digest);
                Ok(())
            }
            other => other,
        }
    }

    async fn read_one(
        &self,
        digest: Digest,
        bytes_per_second: NonZeroU64,
        found: &mut Scrubbed,
    ) -> Result<(), Error> {
        let Some(mut check) = self.run(move |store| store.check(&digest)).await? else { return Ok(()) };
        loop {
            match self.run(move |store| store.check_piece(check)).await? {
                CheckProgress::More(next, read) => {
                    check = next;
                    let wait = Duration::from_secs_f64(read as f64 / bytes_per_second.get() as f64);
                    tokio::time::sleep(wait).await;
                }
                CheckProgress::Whole(bytes) => {
                    found.blobs += 1;
                    found.bytes += bytes;
                    return Ok(());
                }
                CheckProgress::Corrupted(digest) => {
                    found.add_corrupted(digest);
                    return Ok(());
                }
            }
        }
    }

    /// The last complete pass of [`Registry::scrub`] with its time and result.
    pub fn last_scrub(&self) -> Option<Scrubbed> {
        self.store.scrubs().last
    }

    /// Whether a pass of [`Registry::scrub`] began and did not end; the next one continues it.
    pub fn scrub_unfinished(&self) -> bool {
        self.store.scrubs().unfinished()
    }

    /// When the registry was first opened, as far as it is known.
    pub fn first_opened(&self) -> Option<SystemTime> {
        self.store.scrubs().opened
    }

    /// Starts read-only mode, which refuses every push, delete and collection with `reason`, or ends it. Reads are not
    /// affected.
    pub fn set_read_only(&self, reason: Option<String>) {
        self.store.set_read_only(reason);
    }

    /// The reason of the read-only mode; `None` when changes are allowed.
    pub fn read_only(&self) -> Option<String> {
        self.store.read_only()
    }

    /// Removes the tags that `rules` do not keep, or in a dry run only reports them. Tags of pinned content stay.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] in read-only mode; [`Error::Io`] when tags cannot be read or removed.
    pub async fn retain(
        &self,
        rules: Vec<RetentionRule>,
        now: SystemTime,
        dry_run: bool,
    ) -> Result<Vec<ExpiredTag>, Error> {
        self.run(move |store| store.retain(&rules, now, dry_run)).await
    }

    /// Imports the images of an OCI image layout (a directory or a tar) or of an archive of `docker save` into a
    /// repository.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] when the source is not supported or malformed, [`Error::DigestMismatch`] when its
    /// content differs from its digest, [`Error::AmbiguousTag`] when different images would get one tag, and the errors of
    /// a push, such as [`Error::QuotaExceeded`] or [`Error::NoSpace`].
    pub async fn import(&self, source: &Path, repository: &RepositoryName) -> Result<Imported, Error> {
        let (source, repository) = (source.to_owned(), repository.clone());
        self.run(move |store| store.import(&source, &repository)).await
    }

    /// Imports every tag of every repository in the directory of another registry: one that contains
    /// `docker/registry/v2/repositories`. A tag whose image is damaged is in the result, with the reason.
    ///
    /// # Errors
    /// [`Error::NotAnArchive`] when the directory is none of a registry, [`Error::NoSpace`], [`Error::QuotaExceeded`],
    /// [`Error::ReadOnly`], and [`Error::Io`] when files cannot be read or written.
    pub async fn import_registry(&self, root: &Path) -> Result<BTreeMap<RepositoryName, Imported>, Error> {
        let root = root.to_owned();
        self.run(move |store| store.import_registry(&root)).await
    }

    /// Writes the tags of a repository, or some of them, with everything below them as a tar of an OCI image layout.
    /// Equal content gives equal bytes.
    ///
    /// # Errors
    /// [`Error::RepositoryUnknown`] or [`Error::ManifestUnknown`] when the repository or a tag does not exist,
    /// [`Error::Incomplete`] when content of an image is missing that the repository does not allow to be missing,
    /// [`Error::Io`] when content cannot be read or written.
    pub async fn export<W: Write + Send + 'static>(
        &self,
        repository: &RepositoryName,
        only: Option<BTreeSet<Tag>>,
        mut target: W,
    ) -> Result<W, Error> {
        let repository = repository.clone();
        let export = move |store: &Arc<Store>| {
            store.export(&repository, only.as_ref(), &mut target)?;
            Ok(target)
        };
        self.run(export).await
    }

    /// Every quota and its use.
    pub fn quotas(&self) -> Vec<QuotaUsage> {
        self.store.quotas()
    }

    /// Pins a manifest with everything below it, or a blob, until it is unpinned: it cannot be deleted and is not
    /// collected. Durable when this returns. Pinning again changes nothing.
    ///
    /// # Errors
    /// [`Error::RepositoryUnknown`] or [`Error::ManifestUnknown`] when the repository or the content does not exist;
    /// [`Error::Io`] or [`Error::NoSpace`] when the pin cannot be written.
    pub async fn pin(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        owner: &PinOwner,
    ) -> Result<(), Error> {
        let (repository, digest, owner) = (repository.clone(), digest.clone(), owner.clone());
        self.run(move |store| store.pin(&repository, &digest, &owner, SystemTime::now())).await
    }

    /// Ends a pin; returns whether it existed.
    ///
    /// # Errors
    /// [`Error::Io`] when the pin cannot be removed.
    pub async fn unpin(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        owner: &PinOwner,
    ) -> Result<bool, Error> {
        let (repository, digest, owner) = (repository.clone(), digest.clone(), owner.clone());
        self.run(move |store| store.unpin(&repository, &digest, &owner)).await
    }

    /// Every pin, by repository, digest and owner.
    pub fn pins(&self) -> Vec<Pin> {
        self.store.pins()
    }

    /// Free bytes of the registry's file system, for readiness checks.
    ///
    /// # Errors
    /// [`Error::Io`] when the system cannot report them.
    pub async fn free_bytes(&self) -> Result<u64, Error> {
        self.run(|store| store.free_bytes()).await
    }

    /// Whether pushes are accepted now: more than [`Config::reserve`] is free.
    ///
    /// # Errors
    /// [`Error::Io`] when the free space cannot be read.
    pub async fn accepts_pushes(&self) -> Result<bool, Error> {
        match self.run(|store| store.expect_space_for(0)).await {
            Ok(()) => Ok(true),
            Err(Error::NoSpace) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.store.config
    }

    /// Runs one operation of the store on a blocking thread. It completes even if this future is dropped.
    async fn run<T, F>(&self, operation: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Store>) -> Result<T, Error> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        blocking(move || operation(&store)).await
    }
}

/// Writes layouts a moment after a change, for as long as the store exists. Changes in between are covered by the same
/// write; a layout that takes long to write is written less often.
async fn write_layouts(store: Weak<Store>, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        tokio::time::sleep(LAYOUT_DELAY).await;
        let Some(store) = store.upgrade() else { return };
        let began = Instant::now();
        let flushed = blocking(move || store.flush_layouts()).await;
        let mut pause = began.elapsed() * 9;
        if let Err(error) = flushed {
            tracing::warn!(error = %error, "an OCI image layout could not be written and is out of date; the registry retries");
            changed.notify_one();
            pause = pause.max(LAYOUT_RETRY);
        }
        tokio::time::sleep(pause).await;
    }
}

/// Runs blocking work off the async threads.
async fn blocking<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Error> + Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Stopped)?
}
