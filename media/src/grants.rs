//! Media grants: how a grant is issued, and how a token from a URL becomes an open grant, or an error.
//!
//! ```text
//! issue: seed of the run, ImageUse ── derive ──> token ──sha256──> Grant { token_hash, inputs: sealed, .. } ──> effect of a step ──> store
//! ```
//!
//! ```text
//! token ──sha256──> cache ──hit──> OpenGrant                                        (microseconds)
//!                     |miss
//!                     v
//!                  store.find ─── none ──> Unknown     ended ──> Ended              (404)
//!                     |         └ no response ────────────────> Unavailable         (503, the BMC tries again)
//!                     v
//!         Task: rebuild, hash   Maintenance: library   Firmware: registry, hash ── other digest ──> Changed    (410)
//!                     |  `── planned or hashed recently by this process: neither
//!                     `── no grant ended meanwhile? ──> cached
//! ```
//!
//! Invariants: when [`MediaGrants::end`] or [`MediaGrants::forget`] returns, the grant is not in the cache, even if it was
//! being loaded; a connection that still reads from it is broken at its next chunk; the cache is bounded in entries and
//! bytes; the bytes of a grant have the recorded digest; a token is never kept, logged or compared, only its hash is.

mod counting;
pub(super) mod sealed_inputs;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use http::request::Parts;
use model::{Clock, Grant, GrantReads, RunId, Serial, StoredGrant, Time, error_chain};
use parking_lot::Mutex;
use secrets::{Key, MasterKey, SealError};
use tokio::sync::Semaphore;
use tracing::{Instrument as _, Span};

use super::body::{ImageBody, ImageDigest};
use super::boot::BootExtents;
use super::grant_error::GrantError;
use super::grant_store::{GrantStore, GrantStoreUnavailable};
use super::least_used::LeastUsed;
use super::library::Library;
use super::offload::{WorkLost, blocking_if, offload};
use super::os_medium::{BeaconChannel, OpenBlob, OpenOsImage, OsBlobs, OsImage};
use super::reads::{PendingReads, ReadRecorder, within_timeout};
use super::recent_images::RecentImages;
use super::refusals::Refusals;
use super::serve::{ReadObserver, empty, respond};
use super::spliced::{SpliceInputs, SplicedError};
use super::task_image::TaskInputs;
use super::task_image_error::TaskImageError;
use super::token::{Artifact, ImageUse, MediaPath, MediaToken};
use super::verified_files::VerifiedFiles;

/// The maximum number of images that are rebuilt at the same time.
const REBUILDS_MAX: usize = 2;
/// The maximum number of lookups of one request; a lookup is repeated when another grant ended meanwhile.
const LOOKUPS_MAX: usize = 16;
/// The length of inputs above which they are not sealed in a moment.
const LONG_INPUTS: usize = 256 << 10;
/// The approximate memory of an open firmware image, whose bytes stay in its file.
const FIRMWARE_WEIGHT: usize = 1024;

/// Receives the news of the beacon of a medium. Called on the thread of a request: an implementation must not block.
pub trait BeaconListener: Send + Sync {
    /// Called for each message and for the end of a channel, in the span of the grant. A message can come more than once, also
    /// before the power-on.
    fn heard(&self, run: RunId, news: beacon::News);
}

/// The limits of the cache of open grants.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// The maximum number of grants.
    pub grants: usize,
    /// The approximate maximum of memory in bytes; a single grant may exceed it.
    pub bytes: usize,
}

impl Default for CacheLimits {
    /// 4,096 grants and 32 MiB: enough for the usual task images of every machine of a large installation.
    fn default() -> Self {
        Self { grants: 4096, bytes: 32 << 20 }
    }
}

/// The media grants of a controller, with a cache of the open ones. Cheap to clone.
#[derive(Clone)]
pub struct MediaGrants(Arc<Inner>);

struct Inner {
    store: Arc<dyn GrantStore>,
    library: Library,
    /// Seals the recorded inputs of images.
    sealing: Arc<Key>,
    recorder: Arc<ReadRecorder>,
    rebuilds: Semaphore,
    limits: CacheLimits,
    /// Counts the calls that ended grants. A load that sees the count change looks its grant up again.
    ends: AtomicU64,
    cache: Mutex<LeastUsed<OpenGrant>>,
    recent: Mutex<RecentImages>,
    verified: Mutex<VerifiedFiles>,
    refusals: Mutex<Refusals>,
    os_blobs: OnceLock<Arc<dyn OsBlobs>>,
    /// The controller instance, for the log lines.
    worker_id: OnceLock<String>,
    listener: Arc<OnceLock<Arc<dyn BeaconListener>>>,
}

/// A grant whose image can be read now, shared by the requests that use it; each read is reported to it.
pub struct OpenGrant {
    /// The image.
    pub body: ImageBody,
    /// The job that uses the image.
    pub run: RunId,
    /// The server of the job.
    pub server: Option<Serial>,
    /// The name under which the image is served.
    pub artifact: Artifact,
    boot: BootExtents,
    weight: usize,
    ended: AtomicBool,
    reads: Arc<PendingReads>,
    recorder: Arc<ReadRecorder>,
    beacon: Option<BeaconChannel>,
    listener: Arc<OnceLock<Arc<dyn BeaconListener>>>,
}

impl fmt::Debug for OpenGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenGrant")
            .field("body", &self.body)
            .field("run", &self.run)
            .field("artifact", &self.artifact)
            .finish_non_exhaustive()
    }
}

impl ReadObserver for OpenGrant {
    fn read(&self, offset: u64, len: u64) {
        self.recorder.note(&self.reads, len, self.boot.touch(offset, len));
        let news = self.beacon.as_ref().and_then(|beacon| beacon.read(offset, len));
        if let (Some(news), Some(listener), false) = (news, self.listener.get(), self.ended()) {
            self.reads.span().in_scope(|| listener.heard(self.run, news));
        }
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn span(&self) -> Span {
        self.reads.span()
    }
}

/// The span of the log lines about a grant: reads of its image, and the record of these reads. `worker_id`: the controller
/// instance that serves the image. It is the root of its lines, because they come from requests, connections and the recorder
/// alike. Its level is `error`, so that no filter removes the fields while it keeps a line.
pub fn grant_span(stored: &StoredGrant, worker_id: &str) -> Span {
    tracing::error_span!(
        parent: None,
        "media",
        job_id = %stored.grant.run,
        server_serial = stored.server.as_ref().map_or("", |serial| serial.as_str()),
        worker_id,
        artifact = stored.grant.artifact.as_str(),
    )
}

impl MediaGrants {
    /// The grants of `store`, with the maintenance images of `library`. The key of the recorded inputs is derived from `key`;
    /// `clock` dates reads.
    pub fn new(store: Arc<dyn GrantStore>, library: Library, key: &MasterKey, clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(store, library, key, clock, CacheLimits::default())
    }

    /// The grants of `store` as with [`MediaGrants::new`], with other limits of the cache.
    pub fn with_limits(
        store: Arc<dyn GrantStore>,
        library: Library,
        key: &MasterKey,
        clock: Arc<dyn Clock>,
        limits: CacheLimits,
    ) -> Self {
        Self(Arc::new(Inner {
            recorder: Arc::new(ReadRecorder::new(store.clone(), clock)),
            store,
            library,
            sealing: Arc::new(key.derive("media-grants")),
            rebuilds: Semaphore::new(REBUILDS_MAX),
            limits,
            ends: AtomicU64::new(0),
            cache: Mutex::default(),
            recent: Mutex::default(),
            verified: Mutex::default(),
            refusals: Mutex::default(),
            os_blobs: OnceLock::new(),
            worker_id: OnceLock::new(),
            listener: Arc::default(),
        }))
    }

    /// Sets the content store of OS images. Only the first call has an effect.
    pub fn set_os_blobs(&self, blobs: Arc<dyn OsBlobs>) {
        let _ = self.0.os_blobs.set(blobs);
    }

    /// Sets the id of the controller instance, which the log lines about a medium carry. Only the first call has an effect.
    pub fn set_worker_id(&self, worker_id: &str) {
        let _ = self.0.worker_id.set(worker_id.to_owned());
    }

    /// Sets the listener of beacons. Only the first call has an effect.
    pub fn set_beacon_listener(&self, listener: Arc<dyn BeaconListener>) {
        let _ = self.0.listener.set(listener);
    }

    /// Opens the contents of an OS image.
    ///
    /// # Errors
    /// [`GrantError::OsImage`] when a content is gone, [`GrantError::Unavailable`] when the content store does not respond.
    pub async fn open_os_image(&self, image: &OsImage) -> Result<OpenOsImage, GrantError> {
        let blobs = self.0.os_blobs.get().ok_or_else(|| unreadable("the registry is disabled".to_owned()))?;
        let opened = OpenOsImage::open(image.clone(), &**blobs).await;
        opened.map_err(|why| match why.gone {
            true => GrantError::OsImage(why.reason),
            false => unreadable(why.reason),
        })
    }

    /// A new grant with `token` for one use of an image of `size` bytes, with the inputs from which the image is rebuilt. The store keeps
    /// the grant when the step commits it; nothing is stored here.
    ///
    /// # Errors
    /// [`SealError`] when the inputs cannot be sealed.
    pub fn issue(
        &self,
        token: &MediaToken,
        run: RunId,
        image: &ImageUse<'_>,
        size: u64,
        inputs: Option<&[u8]>,
        now: Time,
    ) -> Result<Grant, SealError> {
        let seal = |inputs: &[u8]| {
            blocking_if(inputs.len() > LONG_INPUTS, || sealed_inputs::seal(&self.0.sealing, run, inputs))
        };
        Ok(Grant {
            token_hash: token.hash(),
            run,
            artifact: image.artifact,
            inputs: inputs.map(seal).transpose()?,
            sha256: image.digest.to_owned(),
            size,
            created_at: now,
        })
    }

    /// Serves a request to the media listener.
    pub async fn serve(&self, request: &Parts) -> axum::response::Response {
        let Some(path) = MediaPath::parse(request.uri.path()) else {
            return empty(StatusCode::NOT_FOUND, &[]);
        };
        match self.open_token(&path.token).await {
            Ok(grant) if grant.artifact == path.artifact => respond(&grant.body, request, grant.clone()),
            Ok(_) => empty(StatusCode::NOT_FOUND, &[]),
            Err(error) => {
                // At `debug`: every client on the network can request unknown paths, and this must not fill the log. What
                // keeps a known grant from being served was logged where it failed.
                tracing::debug!(error = %error, "media request refused");
                empty(error.status(), &[])
            }
        }
    }

    /// Opens the grant with this token.
    ///
    /// # Errors
    /// [`GrantError`] when the token gives no right to read or the image cannot be served.
    pub async fn open(&self, token: &str) -> Result<Arc<OpenGrant>, GrantError> {
        self.open_token(&MediaToken::parse(token).ok_or(GrantError::Unknown)?).await
    }

    /// Opens the grant with a token that was already parsed from a path.
    ///
    /// # Errors
    /// [`GrantError`] when the token gives no right to read or the image cannot be served.
    pub async fn open_token(&self, token: &MediaToken) -> Result<Arc<OpenGrant>, GrantError> {
        let token_hash = token.hash();
        match self.cached(&token_hash) {
            Some(open) => Ok(open),
            None => self.load(token_hash).await,
        }
    }

    /// Keeps a task image that was just planned for the first request of its grant, so that it is not planned twice.
    pub fn keep_recent(&self, task: &TaskInputs, image: ImageBody) {
        self.0.recent.lock().keep(image, task.weight());
    }

    /// Keeps a firmware file that was just hashed for the first request of its grant, so that it is not opened and hashed
    /// twice. The caller guarantees that its bytes have the digest of the grant.
    pub fn keep_verified(&self, grant: &Grant, file: OpenBlob) {
        self.0.verified.lock().keep(grant.token_hash.clone(), grant.run, file);
    }

    /// Drops all grants of a job from the cache. Call this after their end is durable.
    pub fn end(&self, run: RunId) {
        self.0.verified.lock().end(run);
        self.0.refusals.lock().end(run);
        self.drop_where(|_, open| open.run == run);
    }

    /// Drops one grant from the cache; the next request reads the store.
    pub fn forget(&self, token_hash: &str) {
        self.0.refusals.lock().forget(token_hash);
        self.drop_where(|hash, _| hash == token_hash);
    }

    /// The reads of a grant: the recorded ones and the pending ones.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn reads_of(&self, token_hash: &str) -> Result<GrantReads, GrantStoreUnavailable> {
        // Pending reads first: a read that is recorded in between counts twice in bytes, but is never missed.
        let pending = self.0.recorder.pending(token_hash);
        let recorded = within_timeout(self.0.store.reads(token_hash)).await?;
        Ok(recorded.unwrap_or_default().merge(pending))
    }

    fn cached(&self, token_hash: &str) -> Option<Arc<OpenGrant>> {
        self.0.cache.lock().get(token_hash)
    }

    async fn load(&self, token_hash: String) -> Result<Arc<OpenGrant>, GrantError> {
        let mut loaded: Option<Arc<OpenGrant>> = None;
        for _ in 0..LOOKUPS_MAX {
            let ends = self.0.ends.load(Ordering::SeqCst);
            // Before the store is read: these reads may be recorded meanwhile, and each is counted once.
            let counted = self.0.recorder.queued(&token_hash);
            let found = within_timeout(self.0.store.find(&token_hash)).await.map_err(|error| {
                tracing::warn!(error = %error, "a medium cannot be served: its grant cannot be looked up");
                GrantError::Unavailable(error)
            })?;
            let stored = found.ok_or(GrantError::Unknown)?;
            if stored.ended_at.is_some() {
                return Err(GrantError::Ended);
            }
            let open = match &loaded {
                Some(open) => open,
                None => match self.restored_or_refused(stored, counted).await? {
                    RestoredImage::Elsewhere(open) => return Ok(open),
                    RestoredImage::Here(open) => loaded.insert(open),
                },
            };
            if let Some(open) = self.keep(&token_hash, open, ends) {
                return Ok(open);
            }
        }
        Err(GrantError::Unavailable(GrantStoreUnavailable {
            reason: "grants keep ending while one is looked up".to_owned(),
        }))
    }

    /// Makes the image of a grant, unless that failed a moment ago. Only the first failure of a grant has its reason.
    async fn restored_or_refused(
        &self,
        stored: StoredGrant,
        counted: Option<Arc<PendingReads>>,
    ) -> Result<RestoredImage, GrantError> {
        let (token_hash, run) = (stored.grant.token_hash.clone(), stored.grant.run);
        if self.0.refusals.lock().is_recent(&token_hash) {
            return Err(GrantError::StillRefused);
        }
        let restored = self.restore_in_span(stored, counted).await;
        let is_final = restored.as_ref().is_err_and(|error| error.status() == StatusCode::GONE);
        match restored {
            Err(_) if is_final && !self.0.refusals.lock().is_first(&token_hash, run) => {
                Err(GrantError::StillRefused)
            }
            restored => restored,
        }
    }

    /// Makes the image of a grant as [`Self::restore`] does, and logs a failure with the ids of the job.
    async fn restore_in_span(
        &self,
        stored: StoredGrant,
        counted: Option<Arc<PendingReads>>,
    ) -> Result<RestoredImage, GrantError> {
        let worker_id = self.0.worker_id.get().map_or("", String::as_str);
        let span = grant_span(&stored, worker_id);
        let restored = self.restore(stored, counted, span.clone()).instrument(span.clone()).await;
        if let Err(error) = &restored {
            let status = error.status().as_u16();
            span.in_scope(
                || tracing::warn!(status, error = %error_chain(error), "a medium cannot be served"),
            );
        }
        restored
    }

    /// Makes the image of a grant and checks its digest. `counted`: its reads, if not all of them are recorded.
    async fn restore(
        &self,
        stored: StoredGrant,
        counted: Option<Arc<PendingReads>>,
        span: Span,
    ) -> Result<RestoredImage, GrantError> {
        let StoredGrant { grant, server, reads, .. } = stored;
        let digest = ImageDigest::parse(&grant.sha256)
            .ok_or_else(|| unreadable("the stored digest of a grant is not a SHA-256 digest".to_owned()))?;
        let (body, boot, weight, beacon) = match (grant.artifact, grant.inputs) {
            (Artifact::Task, inputs) => {
                let _permit = self.0.rebuilds.acquire().await;
                // A BMC begins with several parallel requests: the others waited here for the first one.
                if let Some(open) = self.cached(&grant.token_hash) {
                    return Ok(RestoredImage::Elsewhere(open));
                }
                let recent = self.0.recent.lock().take(digest);
                let (body, weight, beacon) = match (recent, inputs) {
                    (Some((body, weight)), _) => (body, weight, None),
                    (None, Some(inputs)) => self.rebuild(grant.run, inputs).await?,
                    (None, None) => {
                        return Err(unreadable(
                            "an open grant of a task image has no recorded inputs".to_owned(),
                        ));
                    }
                };
                (body, BootExtents::default(), weight, beacon)
            }
            (Artifact::Boot, Some(inputs)) => {
                let _permit = self.0.rebuilds.acquire().await;
                if let Some(open) = self.cached(&grant.token_hash) {
                    return Ok(RestoredImage::Elsewhere(open));
                }
                let (sealing, run) = (Arc::clone(&self.0.sealing), grant.run);
                let read = move || {
                    let inputs = sealed_inputs::open(&sealing, run, &inputs)?;
                    SpliceInputs::from_bytes(&inputs).map_err(GrantError::Spliced)
                };
                let splice = offload(read).await.map_err(stopped)??;
                let image = self.0.library.image(splice.maintenance()).await.map_err(GrantError::Library)?;
                let os_image = self.os_image_of(splice.task()).await?;
                let weight = splice.weight() + os_image.as_ref().map_or(0, OpenOsImage::weight);
                let work = move || {
                    let (body, boot, beacon) = splice.rebuild(&image.body, os_image.as_ref(), digest)?;
                    Ok((
                        body,
                        boot,
                        beacon.and_then(|offset| BeaconChannel::new(offset, splice.task().job())),
                    ))
                };
                let rebuilt = offload(work).await.map_err(stopped)?;
                let (body, boot, beacon) = rebuilt.map_err(|error| match error {
                    SplicedError::Changed { expected, found } => GrantError::Changed { expected, found },
                    other => GrantError::Spliced(other),
                })?;
                (body, boot, weight, beacon)
            }
            (Artifact::Firmware, _) => {
                let _permit = self.0.rebuilds.acquire().await;
                if let Some(open) = self.cached(&grant.token_hash) {
                    return Ok(RestoredImage::Elsewhere(open));
                }
                let body = self.firmware_body(&grant.token_hash, digest, grant.size).await?;
                (body, BootExtents::default(), FIRMWARE_WEIGHT, None)
            }
            (Artifact::Boot, None) => {
                let image = self.0.library.image(digest).await.map_err(GrantError::Library)?;
                if image.body.len() != grant.size {
                    return Err(GrantError::Changed { expected: digest, found: image.body.digest() });
                }
                (image.body, image.boot, 1024, None)
            }
        };
        if body.digest() != digest {
            return Err(GrantError::Changed { expected: digest, found: body.digest() });
        }
        Ok(RestoredImage::Here(Arc::new(OpenGrant {
            body: body.modified_at(grant.created_at.timestamp()),
            run: grant.run,
            server,
            artifact: grant.artifact,
            boot,
            weight,
            ended: AtomicBool::new(false),
            reads: counted.unwrap_or_else(|| Arc::new(PendingReads::new(grant.token_hash, span, reads))),
            recorder: self.0.recorder.clone(),
            beacon,
            listener: Arc::clone(&self.0.listener),
        })))
    }

    /// The bytes of a firmware file: the file that the step hashed, else the file of the registry, hashed here.
    async fn firmware_body(
        &self,
        token_hash: &str,
        digest: ImageDigest,
        size: u64,
    ) -> Result<ImageBody, GrantError> {
        let kept = self.0.verified.lock().take(token_hash);
        if let Some(file) = kept.filter(|file| file.len == size) {
            return Ok(ImageBody::firmware(file, digest));
        }
        let blobs = self.0.os_blobs.get().ok_or_else(|| unreadable("the registry is disabled".to_owned()))?;
        let file = blobs.open(&digest).await.map_err(|why| match why.gone {
            true => GrantError::Firmware(why.reason),
            false => unreadable(why.reason),
        })?;
        let hashed = file.clone();
        let found = offload(move || ImageDigest::of(&hashed)).await;
        let found = found.map_err(|stopped| unreadable(stopped.to_string()))?;
        let found = found.map_err(|why| unreadable(format!("read the firmware file: {why}")))?;
        match found == digest && file.len == size {
            true => Ok(ImageBody::firmware(file, digest)),
            false => Err(GrantError::Changed { expected: digest, found }),
        }
    }

    /// Opens the OS image of a task, if it has one.
    async fn os_image_of(&self, task: &TaskInputs) -> Result<Option<OpenOsImage>, GrantError> {
        match task.os_image() {
            Some(image) => self.open_os_image(image).await.map(Some),
            None => Ok(None),
        }
    }

    /// Rebuilds the image of a task from its recorded inputs and returns it with its weight in bytes and its beacon.
    async fn rebuild(
        &self,
        run: RunId,
        inputs: String,
    ) -> Result<(ImageBody, usize, Option<BeaconChannel>), GrantError> {
        let failed = |error| match error {
            TaskImageError::Changed { expected, found } => GrantError::Changed { expected, found },
            other => GrantError::Task(other),
        };
        let sealing = Arc::clone(&self.0.sealing);
        let read = move || {
            let inputs = sealed_inputs::open(&sealing, run, &inputs)?;
            TaskInputs::from_bytes(&inputs).map_err(GrantError::Task)
        };
        let task = offload(read).await.map_err(stopped)??;
        let os_image = self.os_image_of(&task).await?;
        let work = move || {
            let Some(os_image) = os_image else {
                return Ok((task.rebuild().map_err(failed)?, task.weight(), None));
            };
            let (body, offset) = task.rebuild_with(&os_image).map_err(failed)?;
            Ok((body, task.weight() + os_image.weight(), BeaconChannel::new(offset, task.job())))
        };
        offload(work).await.map_err(stopped)?
    }

    /// Puts a grant into the cache, unless a grant ended since `ends` was read.
    fn keep(&self, token_hash: &str, open: &Arc<OpenGrant>, ends: u64) -> Option<Arc<OpenGrant>> {
        let mut cache = self.0.cache.lock();
        if self.0.ends.load(Ordering::SeqCst) != ends {
            return None;
        }
        if let Some(cached) = cache.get(token_hash) {
            return Some(cached);
        }
        cache.insert(token_hash, open.clone(), open.weight);
        // A grant that leaves the cache while it is read can no longer be marked as ended, and its readers would not be
        // disconnected: idle grants go first.
        cache.trim(self.0.limits.grants, self.0.limits.bytes);
        Some(open.clone())
    }

    fn drop_where(&self, chosen: impl Fn(&str, &OpenGrant) -> bool) {
        let dropped = {
            let mut cache = self.0.cache.lock();
            // Under the lock: a concurrent load either sees the new count, or its grant is removed here.
            self.0.ends.fetch_add(1, Ordering::SeqCst);
            cache.take_where(chosen)
        };
        for open in dropped {
            open.ended.store(true, Ordering::Relaxed);
            self.0.recorder.flush_soon(&open.reads);
        }
    }
}

/// The error of work that ended without a result.
fn stopped(lost: WorkLost) -> GrantError {
    GrantError::Task(TaskImageError::Hash(std::io::Error::other(lost)))
}

fn unreadable(reason: String) -> GrantError {
    GrantError::Unavailable(GrantStoreUnavailable { reason })
}

impl fmt::Debug for MediaGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediaGrants").field("library", &self.0.library).finish_non_exhaustive()
    }
}

enum RestoredImage {
    /// This call made the image.
    Here(Arc<OpenGrant>),
    /// Another request made the image meanwhile; it is in the cache.
    Elsewhere(Arc<OpenGrant>),
}
