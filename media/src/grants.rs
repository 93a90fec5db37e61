//! Who may read which image: a token from a URL becomes an open grant.
//!
//! ```text
//! token ──sha256──> cache ──hit──> OpenGrant                                        (microseconds)
//!                     |miss
//!                     v
//!                  ledger.find ── none ──> Unknown     ended ──> Ended              (404)
//!                     |         └ silent ─────────────────────> Unavailable         (503, the BMC tries again)
//!                     v
//!            Task: thaw, hash   Maintenance: library ── other digest ──> Changed    (410)
//!                     |  `── planned here a moment ago: neither
//!                     `── nothing ended meanwhile? ──> cached
//! ```
//!
//! Invariants: a grant that was ended through [`Grants::end`] or [`Grants::forget`] is not in the cache when the call
//! returns, also when it was being loaded then, and connections still reading from it are broken at their next chunk;
//! the cache is bounded in entries and bytes; the bytes behind a grant are those its digest was recorded for; no token
//! is kept, logged or compared, only its hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::body::{Body, ImageDigest};
use super::boot::BootExtents;
use super::library::{Library, LibraryError};
use super::offload::offload;
use super::reads::{ReadRecorder, ReadSummary, Reads, WallClock, lock, within_timeout};
use super::recent_images::Fresh;
use super::serve::{ReadObserver, empty, respond};
use super::spliced::{SpliceInputs, SplicedError};
use super::task_image::{TaskImageError, TaskInputs};
use super::token::{Artifact, MediaPath, MediaToken};

/// Task images thawed at once.
const THAWS_AT_ONCE: usize = 2;
/// How often a grant is looked up again because another one ended meanwhile.
const LOOKUPS_MAX: usize = 16;

/// The database cannot answer now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("media grants cannot be looked up or recorded: {reason}")]
pub struct GrantStoreUnavailable {
    /// What the database said.
    pub reason: String,
}

/// Where grants are kept.
#[async_trait]
pub trait GrantStore: Send + Sync {
    /// The grant whose token has this hash, ended or not.
    async fn find(&self, token_hash: &str) -> Result<Option<GrantRecord>, GrantStoreUnavailable>;

    /// Adds `reads` to what is recorded, as [`ReadSummary::merge`] does.
    async fn record_read(&self, token_hash: &str, reads: ReadSummary) -> Result<(), GrantStoreUnavailable>;
}

/// What a grant gives a right to.
#[derive(Clone)]
pub enum GrantSource {
    /// A job's own image.
    Task {
        /// [`TaskInputs::to_bytes`], already unsealed.
        frozen: Vec<u8>,
    },
    /// A maintenance image with the task's files in it.
    Spliced {
        /// [`SpliceInputs::to_bytes`], already unsealed.
        frozen: Vec<u8>,
    },
    /// An image of the library.
    Maintenance {
        /// Which one.
        digest: ImageDigest,
        /// Its length.
        len: u64,
    },
}

impl fmt::Debug for GrantSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task { frozen } => write!(f, "Task({} bytes)", frozen.len()),
            Self::Spliced { frozen } => write!(f, "Spliced({} bytes)", frozen.len()),
            Self::Maintenance { digest, len } => write!(f, "Maintenance({digest}, {len} bytes)"),
        }
    }
}

/// A grant as it is recorded.
#[derive(Debug, Clone)]
pub struct GrantRecord {
    /// SHA-256 of the token, hexadecimal.
    pub token_hash: String,
    /// The job that uses the image.
    pub run_id: Uuid,
    /// Under which name it is served.
    pub artifact: Artifact,
    /// What is served.
    pub source: GrantSource,
    /// When the grant was given.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The digest of what is served.
    pub sha256: ImageDigest,
    /// What was read so far.
    pub reads: ReadSummary,
}

/// Why a token opens nothing.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// No such grant, or not for that image.
    #[error("open media grant: no such grant")]
    Unknown,
    /// It was, but no longer is.
    #[error("open media grant: it ended with its job")]
    Ended,
    /// The image is not what the grant was given for.
    #[error(
        "open media grant: the image now hashes to {found}, the grant was given for {expected}; the job needs a new image"
    )]
    Changed {
        /// What was recorded.
        expected: ImageDigest,
        /// What there is.
        found: ImageDigest,
    },
    /// The frozen task image cannot be used.
    #[error("open media grant: restore the task image")]
    Task(#[source] TaskImageError),
    /// The spliced image cannot be used.
    #[error("open media grant: restore the spliced image")]
    Spliced(#[source] SplicedError),
    /// The maintenance image cannot be used.
    #[error("open media grant: open the maintenance image")]
    Library(#[source] LibraryError),
    /// Not known now.
    #[error("open media grant: look it up; the BMC may try again")]
    Unavailable(#[source] GrantStoreUnavailable),
}

impl GrantError {
    /// What a BMC is answered: 404 for what it has no right to, 410 for what can never be served again, 503 for what
    /// may be served later.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown | Self::Ended => StatusCode::NOT_FOUND,
            Self::Changed { .. } | Self::Task(_) | Self::Spliced(_) => StatusCode::GONE,
            Self::Library(LibraryError::Missing { .. } | LibraryError::Changed { .. }) => StatusCode::GONE,
            Self::Library(_) | Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// How many opened grants are kept ready.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// At most this many.
    pub grants: usize,
    /// With at most about this much in memory, unless it is a single one.
    pub bytes: usize,
}

impl Default for CacheLimits {
    /// 4,096 grants, 32 MiB: images with the usual few files fit for every machine of a large installation.
    fn default() -> Self {
        Self { grants: 4096, bytes: 32 << 20 }
    }
}

/// A grant that may be read from now.
#[derive(Clone)]
pub struct OpenGrant {
    /// What is served.
    pub body: Body,
    /// The job that uses it.
    pub run_id: Uuid,
    /// Under which name it is served.
    pub artifact: Artifact,
    /// Where reads are to be told.
    pub observer: Arc<dyn ReadObserver>,
}

impl fmt::Debug for OpenGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenGrant")
            .field("body", &self.body)
            .field("run_id", &self.run_id)
            .field("artifact", &self.artifact)
            .finish_non_exhaustive()
    }
}

/// All grants. Cheap to clone.
#[derive(Clone)]
pub struct Grants(Arc<Inner>);

struct Inner {
    ledger: Arc<dyn GrantStore>,
    library: Library,
    log: Arc<ReadRecorder>,
    rebuilds: Semaphore,
    limits: CacheLimits,
    /// How often grants were ended; a load that sees it move looks the grant up again.
    ends: AtomicU64,
    cache: Mutex<Cache>,
    fresh: Mutex<Fresh>,
}

#[derive(Default)]
struct Cache {
    grants: HashMap<String, Cached>,
    weight: usize,
    clock: u64,
}

struct Cached {
    live: Arc<LiveGrant>,
    used: u64,
}

/// An opened grant, shared by the requests that use it.
struct LiveGrant {
    body: Body,
    run_id: Uuid,
    artifact: Artifact,
    boot: BootExtents,
    weight: usize,
    ended: AtomicBool,
    reads: Arc<Reads>,
    log: Arc<ReadRecorder>,
}

impl ReadObserver for LiveGrant {
    fn read(&self, offset: u64, len: u64) {
        self.log.note(&self.reads, len, self.boot.touch(offset, len));
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Grants {
    /// Grants out of `ledger`, with the images of `library`; `clock` dates reads.
    pub fn new(ledger: Arc<dyn GrantStore>, library: Library, clock: WallClock) -> Self {
        Self::with_limits(ledger, library, clock, CacheLimits::default())
    }

    /// As [`Grants::new`], with another bound on what is kept ready.
    pub fn with_limits(
        ledger: Arc<dyn GrantStore>,
        library: Library,
        clock: WallClock,
        limits: CacheLimits,
    ) -> Self {
        Self(Arc::new(Inner {
            log: Arc::new(ReadRecorder::new(ledger.clone(), clock)),
            ledger,
            library,
            rebuilds: Semaphore::new(THAWS_AT_ONCE),
            limits,
            ends: AtomicU64::new(0),
            cache: Mutex::default(),
            fresh: Mutex::default(),
        }))
    }

    /// Answers a request to the media listener.
    pub async fn serve(&self, request: &Parts) -> axum::response::Response {
        let Some(path) = MediaPath::parse(request.uri.path()) else {
            return empty(StatusCode::NOT_FOUND, &[]);
        };
        match self.open_token(&path.token).await {
            Ok(grant) if grant.artifact == path.artifact => respond(&grant.body, request, grant.observer),
            Ok(_) => empty(StatusCode::NOT_FOUND, &[]),
            Err(error) => {
                let status = error.status();
                if status == StatusCode::NOT_FOUND {
                    // Anybody can ask for what does not exist: that must not fill a log.
                    tracing::debug!(error = %error, "media request refused");
                } else {
                    tracing::warn!(status = status.as_u16(), error = %error, "media request refused");
                }
                empty(status, &[])
            }
        }
    }

    /// Opens the grant with this token.
    ///
    /// # Errors
    /// When there is no right to read, or nothing that may be served.
    pub async fn open(&self, token: &str) -> Result<OpenGrant, GrantError> {
        self.open_token(&MediaToken::parse(token).ok_or(GrantError::Unknown)?).await
    }

    /// As [`Grants::open`], for a token already taken out of a path.
    ///
    /// # Errors
    /// As [`Grants::open`].
    pub async fn open_token(&self, token: &MediaToken) -> Result<OpenGrant, GrantError> {
        let token_hash = token.hash();
        let live = match self.cached(&token_hash) {
            Some(live) => live,
            None => self.load(token_hash).await?,
        };
        Ok(OpenGrant {
            body: live.body.clone(),
            run_id: live.run_id,
            artifact: live.artifact,
            observer: live,
        })
    }

    /// Keeps the image of a task that was frozen a moment ago for the first reading of its grant, which is about to be given.
    pub fn keep_recent(&self, task: &TaskInputs, image: Body) {
        lock(&self.0.fresh).keep(image, task.weight());
    }

    /// Drops all grants of a job; to be called after their end is durable.
    pub fn end(&self, run_id: Uuid) {
        self.drop_where(|_, live| live.run_id == run_id);
    }

    /// Drops one grant; the next request asks the ledger.
    pub fn forget(&self, token_hash: &str) {
        self.drop_where(|hash, _| hash == token_hash);
    }

    /// What was read through a grant: what is recorded and what is about to be.
    ///
    /// # Errors
    /// When the ledger cannot answer.
    pub async fn evidence(&self, token_hash: &str) -> Result<ReadSummary, GrantStoreUnavailable> {
        // Taken first: reads that are recorded in between then count twice in bytes, and never not at all.
        let pending = self.0.log.pending(token_hash);
        let recorded = within_timeout(self.0.ledger.find(token_hash)).await?;
        Ok(recorded.map(|record| record.reads).unwrap_or_default().merge(pending))
    }

    /// Records all reads now; for the stop of the program.
    pub async fn flush(&self) {
        self.0.log.flush().await;
    }

    fn cached(&self, token_hash: &str) -> Option<Arc<LiveGrant>> {
        let mut cache = lock(&self.0.cache);
        cache.clock += 1;
        let used = cache.clock;
        let cached = cache.grants.get_mut(token_hash)?;
        cached.used = used;
        Some(cached.live.clone())
    }

    async fn load(&self, token_hash: String) -> Result<Arc<LiveGrant>, GrantError> {
        let mut loaded: Option<Arc<LiveGrant>> = None;
        for _ in 0..LOOKUPS_MAX {
            let ends = self.0.ends.load(Ordering::SeqCst);
            let found =
                within_timeout(self.0.ledger.find(&token_hash)).await.map_err(GrantError::Unavailable)?;
            let record = found.ok_or(GrantError::Unknown)?;
            if record.ended_at.is_some() {
                return Err(GrantError::Ended);
            }
            let live = match &loaded {
                Some(live) => live,
                None => match self.restore(&token_hash, record).await? {
                    Restored::Elsewhere(live) => return Ok(live),
                    Restored::Here(live) => loaded.insert(live),
                },
            };
            if let Some(live) = self.keep(&token_hash, live, ends) {
                return Ok(live);
            }
        }
        Err(GrantError::Unavailable(GrantStoreUnavailable {
            reason: "grants keep ending while one is looked up".to_owned(),
        }))
    }

    /// Makes the image of a record, and checks that it is the recorded one.
    async fn restore(&self, token_hash: &str, record: GrantRecord) -> Result<Restored, GrantError> {
        let (body, boot, weight) = match record.source {
            GrantSource::Task { frozen } => {
                let _permit = self.0.rebuilds.acquire().await;
                // A BMC opens with several requests at once: the others have waited for the first one here.
                if let Some(live) = self.cached(token_hash) {
                    return Ok(Restored::Elsewhere(live));
                }
                let fresh = lock(&self.0.fresh).take(record.sha256);
                let (body, weight) = match fresh {
                    Some(fresh) => fresh,
                    None => thaw(frozen).await?,
                };
                (body, BootExtents::default(), weight)
            }
            GrantSource::Spliced { frozen } => {
                let _permit = self.0.rebuilds.acquire().await;
                if let Some(live) = self.cached(token_hash) {
                    return Ok(Restored::Elsewhere(live));
                }
                let frozen = SpliceInputs::from_bytes(&frozen).map_err(GrantError::Spliced)?;
                let image = self.0.library.image(frozen.maintenance()).await.map_err(GrantError::Library)?;
                let (expected, weight) = (record.sha256, frozen.weight());
                let thawed = offload(move || frozen.thaw(&image.body, expected)).await;
                let thawed = thawed.map_err(|stopped| {
                    GrantError::Task(TaskImageError::Hash(std::io::Error::other(stopped)))
                })?;
                let (body, boot) = thawed.map_err(|error| match error {
                    SplicedError::Changed { expected, found } => GrantError::Changed { expected, found },
                    other => GrantError::Spliced(other),
                })?;
                (body, boot, weight)
            }
            GrantSource::Maintenance { digest, len } => {
                let image = self.0.library.image(digest).await.map_err(GrantError::Library)?;
                if image.body.len() != len {
                    return Err(GrantError::Changed { expected: record.sha256, found: image.body.digest() });
                }
                (image.body, image.boot, 1024)
            }
        };
        if body.digest() != record.sha256 {
            return Err(GrantError::Changed { expected: record.sha256, found: body.digest() });
        }
        let boot = if record.artifact == Artifact::Boot { boot } else { BootExtents::default() };
        Ok(Restored::Here(Arc::new(LiveGrant {
            body: body.modified_at(record.created_at),
            run_id: record.run_id,
            artifact: record.artifact,
            boot,
            weight,
            ended: AtomicBool::new(false),
            reads: Arc::new(Reads::new(token_hash.to_owned(), record.reads)),
            log: self.0.log.clone(),
        })))
    }

    /// Puts a grant into the cache, unless some grant ended since `ends` was read.
    fn keep(&self, token_hash: &str, live: &Arc<LiveGrant>, ends: u64) -> Option<Arc<LiveGrant>> {
        let mut cache = lock(&self.0.cache);
        if self.0.ends.load(Ordering::SeqCst) != ends {
            return None;
        }
        cache.clock += 1;
        let used = cache.clock;
        if let Some(cached) = cache.grants.get_mut(token_hash) {
            cached.used = used;
            return Some(cached.live.clone());
        }
        cache.weight += live.weight;
        cache.grants.insert(token_hash.to_owned(), Cached { live: live.clone(), used });
        let CacheLimits { grants, bytes } = self.0.limits;
        while cache.grants.len() > grants.max(1) || (cache.weight > bytes && cache.grants.len() > 1) {
            // Idle ones first: one that is being read would lose the flag that cuts its readers off at its end.
            let oldest = cache
                .grants
                .iter()
                .min_by_key(|(_, cached)| (Arc::strong_count(&cached.live) > 1, cached.used))
                .map(|(hash, _)| hash.clone());
            let Some(cached) = oldest.and_then(|hash| cache.grants.remove(&hash)) else { break };
            cache.weight -= cached.live.weight;
        }
        Some(live.clone())
    }

    fn drop_where(&self, chosen: impl Fn(&str, &LiveGrant) -> bool) {
        let mut dropped = Vec::new();
        {
            let mut cache = lock(&self.0.cache);
            // Under the lock: a load sees either the number moved or its grant taken out again.
            self.0.ends.fetch_add(1, Ordering::SeqCst);
            cache.grants.retain(|hash, cached| {
                let drop = chosen(hash, &cached.live);
                if drop {
                    dropped.push(cached.live.clone());
                }
                !drop
            });
            cache.weight -= dropped.iter().map(|live| live.weight).sum::<usize>();
        }
        for live in dropped {
            live.ended.store(true, Ordering::Relaxed);
            self.0.log.hurry(&live.reads);
        }
    }
}

/// The image of a frozen task and what it weighs: planned and hashed again.
async fn thaw(frozen: Vec<u8>) -> Result<(Body, usize), GrantError> {
    let thaw = move || TaskInputs::from_bytes(&frozen).and_then(|task| Ok((task.thaw()?, task.weight())));
    let thawed = offload(thaw).await;
    let thawed =
        thawed.map_err(|stopped| GrantError::Task(TaskImageError::Hash(std::io::Error::other(stopped))))?;
    thawed.map_err(|error| match error {
        TaskImageError::Changed { expected, found } => GrantError::Changed { expected, found },
        other => GrantError::Task(other),
    })
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grants").field("library", &self.0.library).finish_non_exhaustive()
    }
}

enum Restored {
    /// By this call.
    Here(Arc<LiveGrant>),
    /// By another one meanwhile, and it is in the cache.
    Elsewhere(Arc<LiveGrant>),
}
