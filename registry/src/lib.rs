//! A small OCI registry that never loses a byte: an axum router over a store of its own.
//!
//! ```text
//!                 Authorizer (the embedding program's, or AccessControl, TokenAuthority)    Audit
//!                     ^ Caller, Access                                                        ^ AuditEvent
//!  client -> http::path -> http::{blobs, uploads, manifests, …} -> Registry -> store (blocking threads) -> disk
//!                                                                        ^
//!  embedding program: resolve, blob, tags, pin, collect, scrub, retain --+
//!                     import, export, quotas, sweep, set_read_only, …
//! ```
//!
//! The crate knows the distribution specification and a directory, nothing else: no jobs, no configuration files, no
//! database, and of users only what an [`Authenticator`] says of them ([`Htpasswd`] is one). What it answers with 201 is on disk, file and directory, before the answer
//! leaves; what it serves was hashed while it was written. Every body, wait and buffer has a bound in
//! [`Config`].
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
//! Nothing happens by itself but one thing: the OCI image layouts on disk follow the registry a moment later. When garbage
//! is collected, rot is looked for and abandoned uploads are swept is the embedding program's to decide; each of these
//! can be called at any time, beside everything else.
//!
//! Specification: OCI distribution-spec, image-spec, image-layout.

mod access;
mod config;
mod digest;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod manifest;
mod name;
mod pattern;
mod store;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Notify, Semaphore};

pub use crate::access::{
    Access, AccessControl, Action, AllowAll, Audit, AuditCounters, AuditEvent, Audited, Authenticator,
    Authorizer, Caller, Credentials, Decision, Denied, Htpasswd, HtpasswdOptions, ImmutableTags,
    InvalidImmutableTags, InvalidRule, NoAudit, Policy, Realm, Reason, Request, Rights, Rule, Secret,
    Subject, TokenAuthority, TokenOptions, Who, decide,
};
pub use crate::config::{Config, InvalidReserve, Reserve};
pub use crate::digest::{Algorithm, Digest, InvalidDigest};
pub use crate::error::Error;
pub use crate::name::{InvalidReference, InvalidRepositoryName, InvalidTag, Reference, RepositoryName, Tag};
pub use crate::pattern::{InvalidRepositoryPattern, RepositoryPattern};
pub use crate::store::{
    BlobFile, Expired, GcOptions, GcReport, Imported, InvalidPinOwner, InvalidTagPattern, Manifest, Pin,
    PinOwner, Quota, QuotaUsage, Rebuilt, RetentionRule, Scrubbed, Swept, TagPattern,
};

pub use crate::wire::{FileSender, Wire};

use crate::store::{Checked, PARTS, Scrubs, Store};

/// How much later than a change the layout on disk is written.
const LAYOUT_DELAY: Duration = Duration::from_millis(100);
/// How long after a failure it is tried again.
const LAYOUT_RETRY: Duration = Duration::from_secs(30);

/// An open registry. Clones share it.
#[derive(Clone)]
pub struct Registry {
    store: Arc<Store>,
    /// One permit per request body being received.
    receiving: Arc<Semaphore>,
}

impl Registry {
    /// Opens the registry stored under `config.root`, creating it when missing. Unfinished uploads of an earlier
    /// process can be continued; its torn drafts are removed.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let receiving =
            Arc::new(Semaphore::new(config.max_concurrent_uploads.clamp(1, Semaphore::MAX_PERMITS)));
        let store = Arc::new(blocking(move || Store::open(config)).await?);
        tokio::spawn(write_layouts(Arc::downgrade(&store), Arc::clone(&store.layouts_changed)));
        Ok(Registry { store, receiving })
    }

    /// The distribution API under `/v2`, to be merged into the embedding program's router.
    pub fn router(&self, authorizer: Arc<dyn Authorizer>) -> axum::Router {
        http::router(self.clone(), authorizer, Arc::new(NoAudit))
    }

    /// The same, telling `audit` of every change and every refusal.
    pub fn audited_router(&self, authorizer: Arc<dyn Authorizer>, audit: Arc<dyn Audit>) -> axum::Router {
        http::router(self.clone(), authorizer, audit)
    }

    /// The manifest `reference` names in `repository`. What is returned was hashed when it was read.
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

    /// A blob by its content, whichever repository has it. Open for as long as the result lives.
    pub async fn blob(&self, digest: &Digest) -> Result<BlobFile, Error> {
        let digest = digest.clone();
        self.run(move |store| store.blob(&digest)).await
    }

    /// Every repository, in the order of names.
    pub async fn repositories(&self) -> Vec<RepositoryName> {
        self.store.repositories()
    }

    /// Every tag of a repository, in byte order.
    pub async fn tags(&self, repository: &RepositoryName) -> Result<Vec<Tag>, Error> {
        let repository = repository.clone();
        self.run(move |store| store.tags(&repository, None, usize::MAX)).await.map(|page| page.tags)
    }

    /// Removes upload sessions nothing was written to for [`Config::upload_session_age`] before `now`.
    pub async fn sweep(&self, now: SystemTime) -> Result<Swept, Error> {
        self.run(move |store| store.sweep_uploads(now)).await
    }

    /// Removes what nobody refers to, while everything else goes on. See [`GcOptions`] for what stays.
    pub async fn collect(&self, options: GcOptions) -> Result<GcReport, Error> {
        self.run(move |store| store.collect(&options)).await
    }

    /// Brings the OCI image layouts on disk up to date, which otherwise happens a moment after each change. To be
    /// called before the process ends.
    pub async fn flush_layouts(&self) -> Result<(), Error> {
        self.run(|store| store.flush_layouts()).await
    }

    /// Makes anew everything that is derived from manifests and tags: layouts, and who refers to what.
    pub async fn rebuild(&self) -> Result<Rebuilt, Error> {
        self.run(|store| store.rebuild()).await
    }

    /// Reads everything again at `bytes_per_second` and puts what has rotted into quarantine. A pass that was
    /// interrupted, by a restart or because this future was dropped, is continued; what it found is returned.
    pub async fn scrub(&self, bytes_per_second: NonZeroU64) -> Result<Scrubbed, Error> {
        let mut scrubs = self.store.scrubs();
        if scrubs.part == PARTS || scrubs.present.started.is_none() {
            scrubs = Scrubs { last: scrubs.last, ..Scrubs::default() };
            scrubs.present.started = Some(SystemTime::now());
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
            let noted = scrubs.clone();
            self.run(move |store| {
                store.note_scrubs(noted);
                Ok(())
            })
            .await?;
        }
        Ok(scrubs.present)
    }

    async fn scrub_one(
        &self,
        digest: Digest,
        bytes_per_second: NonZeroU64,
        found: &mut Scrubbed,
    ) -> Result<(), Error> {
        let Some(mut check) = self.run(move |store| store.check(&digest)).await? else { return Ok(()) };
        loop {
            match self.run(move |store| store.check_piece(check)).await? {
                Checked::More(next, read) => {
                    check = next;
                    let wait = Duration::from_secs_f64(read as f64 / bytes_per_second.get() as f64);
                    tokio::time::sleep(wait).await;
                }
                Checked::Whole(bytes) => {
                    found.blobs += 1;
                    found.bytes += bytes;
                    return Ok(());
                }
                Checked::Damaged(digest) => {
                    found.add_damaged(digest);
                    return Ok(());
                }
            }
        }
    }

    /// The last complete pass of [`Registry::scrub`]: when everything was last verified, and what was found.
    pub fn last_scrub(&self) -> Option<Scrubbed> {
        self.store.scrubs().last
    }

    /// Refuses every push and delete with `reason` and collects nothing, or ends that. Reads are not affected.
    pub fn set_read_only(&self, reason: Option<String>) {
        self.store.set_read_only(reason);
    }

    /// Why nothing may be changed at the moment; `None` when it may.
    pub fn read_only(&self) -> Option<String> {
        self.store.read_only()
    }

    /// Removes the tags `rules` do not keep, or only says which. What is pinned stays.
    pub async fn retain(
        &self,
        rules: Vec<RetentionRule>,
        now: SystemTime,
        dry_run: bool,
    ) -> Result<Vec<Expired>, Error> {
        self.run(move |store| store.retain(&rules, now, dry_run)).await
    }

    /// Imports the images of an OCI image layout (a directory or a tar) or of what `docker save` wrote into a repository.
    pub async fn import(&self, source: &Path, repository: &RepositoryName) -> Result<Imported, Error> {
        let (source, repository) = (source.to_owned(), repository.clone());
        self.run(move |store| store.import(&source, &repository)).await
    }

    /// Imports every tag of every repository in the directory of another registry: one that has
    /// `docker/registry/v2/repositories` in it.
    pub async fn import_registry(&self, root: &Path) -> Result<BTreeMap<RepositoryName, Imported>, Error> {
        let root = root.to_owned();
        self.run(move |store| store.import_registry(&root)).await
    }

    /// Writes the tags of a repository, or some of them, with everything below them as a tar of an OCI image layout. The
    /// same content gives the same bytes.
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

    /// Every quota and what is taken of it.
    pub fn quotas(&self) -> Vec<QuotaUsage> {
        self.store.quotas()
    }

    /// Keeps a manifest with everything below it, or a blob, until it is unpinned: it cannot be deleted and is not
    /// collected. Durable when this returns. Pinning again changes nothing.
    pub async fn pin(
        &self,
        repository: &RepositoryName,
        digest: &Digest,
        owner: &PinOwner,
    ) -> Result<(), Error> {
        let (repository, digest, owner) = (repository.clone(), digest.clone(), owner.clone());
        self.run(move |store| store.pin(&repository, &digest, &owner, SystemTime::now())).await
    }

    /// Ends a pin; whether there was one.
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

    /// Free bytes of the file system the registry is on, for readiness checks.
    pub async fn free_bytes(&self) -> Result<u64, Error> {
        self.run(|store| store.free_bytes()).await
    }

    /// Whether pushes are accepted at this moment: more than [`Config::reserve`] are free.
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

    /// Runs one operation of the store on a blocking thread. It ends even if nobody waits for it any more.
    async fn run<T, F>(&self, operation: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Store>) -> Result<T, Error> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        blocking(move || operation(&store)).await
    }
}

/// Writes layouts a moment after something changed, for as long as the store is there. What comes in between is
/// covered by the same write; a layout that takes long to write is written less often.
async fn write_layouts(store: Weak<Store>, changed: Arc<Notify>) {
    loop {
        changed.notified().await;
        tokio::time::sleep(LAYOUT_DELAY).await;
        let Some(store) = store.upgrade() else { return };
        let began = Instant::now();
        let flushed = blocking(move || store.flush_layouts()).await;
        let mut pause = began.elapsed() * 9;
        if let Err(error) = flushed {
            tracing::warn!(error = %error, "an OCI image layout could not be written; it is behind the registry");
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
