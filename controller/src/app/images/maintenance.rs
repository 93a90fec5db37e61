//! The registry kept tidy, by the clock and when an operator asks.
//!
//! ```text
//!  every hour        abandoned uploads go
//!  GC_INTERVAL       tags RETENTION does not keep go; then what no tag and no job needs, after GC_GRACE_PERIOD
//!  SCRUB_INTERVAL    everything is hashed once more, slowly, beside all else; rot is put aside and said
//!  read-only         nothing of this happens, and pushes and deletes are refused, until an operator ends it
//!  at the end        the OCI image layouts of all repositories are brought up to date
//! ```
//!
//! What was done is an event, and the last reports and the read-only switch are kept in the database, so that a restart
//! forgets neither.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use registry::{GcOptions, Registry, RetentionRule, Scrubbed};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::api::{
    Collect, PATIENCE, PeriodicStatus, QuotaStatus, RegistryAdmin, RegistryAdminError, RegistryStatus,
    ScrubStatus,
};
use crate::config::Settings;
use engine::model::{Clock, NewEvent, Time, error_chain};
use engine::store::{Store, StoreError};

/// How often is looked whether something is due.
const LOOK: Duration = Duration::from_secs(60);
/// How often abandoned uploads are swept.
const SWEEP: Duration = Duration::from_secs(3600);
/// Who does what nobody asked for.
const SCHEDULE: &str = "registry";
/// Names in one event; the report of a request has all.
const NAMED: usize = 100;

const READ_ONLY: &str = "registry.read_only";
const LAST_GC: &str = "registry.last_gc";
const LAST_RETENTION: &str = "registry.last_retention";

/// How a registry is kept tidy.
#[derive(Clone, Debug)]
pub(in crate::app) struct Care {
    collect_every: Duration,
    grace: Duration,
    untagged: bool,
    scrub_every: Duration,
    scrub_rate: NonZeroU64,
    retention: Vec<RetentionRule>,
    read_only: bool,
}

impl Care {
    pub(in crate::app) fn of(settings: &Settings) -> Self {
        Self {
            collect_every: settings.registry_gc_interval,
            grace: settings.registry_gc_grace_period,
            untagged: settings.registry_gc_untagged,
            scrub_every: settings.registry_scrub_interval,
            scrub_rate: NonZeroU64::new(settings.registry_scrub_rate).unwrap_or(NonZeroU64::MIN),
            retention: settings.registry_retention.clone(),
            read_only: settings.registry_read_only,
        }
    }
}

/// Takes care of a registry. Clones are the same one.
#[derive(Clone)]
pub(in crate::app) struct RegistryMaintenance(Arc<Inner>);

struct Inner {
    registry: Registry,
    store: Store,
    clock: Arc<dyn Clock>,
    care: Care,
    /// One collection or retention at a time.
    turn: Mutex<()>,
    /// One change of the read-only switch at a time.
    switching: Mutex<()>,
    collecting: AtomicBool,
    retaining: AtomicBool,
    scrubbing: AtomicBool,
    scrub_asked: Notify,
}

/// Says that something goes on for as long as it lives.
struct Running<'a>(&'a AtomicBool);

impl<'a> Running<'a> {
    fn begin(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::SeqCst);
        Self(flag)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl RegistryMaintenance {
    /// Takes over: the registry is as read-only as it was.
    pub(in crate::app) async fn new(
        registry: Registry,
        store: Store,
        clock: Arc<dyn Clock>,
        care: Care,
    ) -> Result<Self, StoreError> {
        let reason = match care.read_only {
            true => Some("REGISTRY_READ_ONLY is set".to_owned()),
            false => store.setting(READ_ONLY).await?,
        };
        registry.set_read_only(reason);
        Ok(Self(Arc::new(Inner {
            registry,
            store,
            clock,
            care,
            turn: Mutex::default(),
            switching: Mutex::default(),
            collecting: AtomicBool::default(),
            retaining: AtomicBool::default(),
            scrubbing: AtomicBool::default(),
            scrub_asked: Notify::new(),
        })))
    }

    /// Keeps the registry tidy until `stop`.
    pub(in crate::app) async fn keep(self, stop: CancellationToken) {
        let care = &self.0.care;
        let (mut swept, mut collected) = (None, tokio::time::Instant::now());
        while !stop.is_cancelled() {
            let now = tokio::time::Instant::now();
            if swept.is_none_or(|at| now - at >= SWEEP) {
                swept = Some(now);
                if let Err(error) = self.0.registry.sweep(SystemTime::now()).await {
                    tracing::warn!(error = %error_chain(&error), "abandoned uploads were not swept");
                }
            }
            if now - collected >= care.collect_every {
                collected = now;
                self.tidy().await;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(LOOK.min(care.collect_every)) => {}
            }
        }
        if let Err(error) = self.0.registry.flush_layouts().await {
            tracing::warn!(error = %error_chain(&error), "the image layouts were not brought up to date; the next start does it");
        }
    }

    async fn tidy(&self) {
        if self.0.registry.read_only().is_some() {
            return;
        }
        if !self.0.care.retention.is_empty()
            && let Err(error) = self.retain_now(false, SCHEDULE).await
        {
            tracing::warn!(%error, "old tags were not removed; trying again later");
        }
        let order = Collect { dry_run: false, untagged: None, grace: None };
        if let Err(error) = self.collect_now(order, SCHEDULE).await {
            tracing::warn!(%error, "garbage was not collected; trying again later");
        }
    }

    /// Verifies everything from time to time and when asked, until `stop`.
    pub(in crate::app) async fn keep_verified(self, stop: CancellationToken) {
        let every = self.0.care.scrub_every;
        let mut next = tokio::time::Instant::now() + until_due(&self.0.registry, every);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.scrub_asked.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            let running = Running::begin(&self.0.scrubbing);
            // What was read so far is not read again after a restart.
            tokio::select! {
                () = stop.cancelled() => return,
                scrubbed = self.0.registry.scrub(self.0.care.scrub_rate) => self.verified(scrubbed).await,
            }
            drop(running);
            next = tokio::time::Instant::now() + every;
        }
    }

    async fn verified(&self, scrubbed: Result<Scrubbed, registry::Error>) {
        match scrubbed {
            Ok(scrubbed) if scrubbed.damaged.is_empty() => {
                let message = format!("{} contents of {} bytes verified", scrubbed.blobs, scrubbed.bytes);
                self.tell(NewEvent::info("registry.scrubbed", message).by(SCHEDULE), None).await;
            }
            Ok(scrubbed) => {
                let damaged: Vec<String> = scrubbed.damaged.iter().map(ToString::to_string).collect();
                tracing::error!(
                    ?damaged,
                    "content had rotted on the disk and was put aside; push these images again"
                );
                let message = format!(
                    "{} contents had rotted on the disk and were put aside; push the images they belong to again",
                    damaged.len()
                );
                let event = NewEvent::error("registry.corrupted", message).by(SCHEDULE);
                self.tell(event.with(json!({ "quarantined": damaged })), None).await;
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the images were not verified; trying again later");
            }
        }
    }

    /// Writes an event down, with what is to be remembered beside it.
    async fn tell(&self, event: NewEvent, remembered: Option<(&'static str, Value)>) {
        let now = self.0.clock.now();
        let written = match remembered {
            Some((key, value)) => {
                self.0.store.set_setting(key, Some(value.to_string()), vec![event], now).await
            }
            None => self.0.store.append(None, None, vec![event], now).await,
        };
        if let Err(error) = written {
            tracing::warn!(error = %error_chain(&error), "what was done in the registry could not be written down");
        }
    }

    async fn collect_now(&self, order: Collect, by: &str) -> Result<Value, RegistryAdminError> {
        let _turn = self.0.turn.lock().await;
        let _running = Running::begin(&self.0.collecting);
        let options = GcOptions {
            grace: order.grace.unwrap_or(self.0.care.grace),
            untagged: order.untagged.unwrap_or(self.0.care.untagged),
            dry_run: order.dry_run,
            now: SystemTime::now(),
        };
        let report = self.0.registry.collect(options).await.map_err(failed)?;
        let damaged: Vec<String> = report.damaged.iter().map(ToString::to_string).collect();
        if !damaged.is_empty() {
            tracing::warn!(
                ?damaged,
                "repositories with a damaged manifest were not collected; push their images again"
            );
        }
        let told = json!({
            "at": self.0.clock.now(), "by": by, "dry_run": order.dry_run, "manifests": report.manifests,
            "layers": report.layers, "blobs": report.blobs, "bytes": report.bytes, "damaged": damaged,
        });
        if !order.dry_run {
            let message = format!(
                "{} contents of {} bytes that no image needs were removed",
                report.blobs, report.bytes
            );
            let event = NewEvent::info("registry.collected", message).by(by).with(told.clone());
            // An hourly line that nothing happened helps nobody.
            let remembered = (LAST_GC, told.clone());
            if report.blobs + report.manifests + report.layers > 0 || by != SCHEDULE {
                self.tell(event, Some(remembered)).await;
            } else {
                self.remember(remembered).await;
            }
        }
        Ok(told)
    }

    async fn remember(&self, (key, value): (&'static str, Value)) {
        let now = self.0.clock.now();
        if let Err(error) = self.0.store.set_setting(key, Some(value.to_string()), Vec::new(), now).await {
            tracing::warn!(error = %error_chain(&error), "what was done in the registry could not be written down");
        }
    }

    async fn retain_now(&self, dry_run: bool, by: &str) -> Result<Value, RegistryAdminError> {
        let _turn = self.0.turn.lock().await;
        let _running = Running::begin(&self.0.retaining);
        let rules = self.0.care.retention.clone();
        let expired = self.0.registry.retain(rules, SystemTime::now(), dry_run).await.map_err(failed)?;
        let tags: Vec<String> =
            expired.iter().map(|expired| format!("{}:{}", expired.repository, expired.tag)).collect();
        let told = json!({ "at": self.0.clock.now(), "by": by, "dry_run": dry_run, "tags": tags });
        if !dry_run && !tags.is_empty() {
            let short = json!({ "at": told["at"], "by": by, "count": tags.len() });
            let named = &tags[..tags.len().min(NAMED)];
            let message = format!("{} tags that no rule keeps were removed", tags.len());
            let event = NewEvent::info("registry.tags-expired", message).by(by);
            self.tell(event.with(json!({ "tags": named })), Some((LAST_RETENTION, short))).await;
        }
        Ok(told)
    }

    async fn last(&self, key: &str) -> Result<Option<Value>, RegistryAdminError> {
        let text = self.0.store.setting(key).await.map_err(unavailable)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

/// How long until everything has to be verified again, as far as is known when it last was.
fn until_due(registry: &Registry, every: Duration) -> Duration {
    let last = registry.last_scrub().and_then(|last| last.completed);
    let since = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    // Never verified counts from now: an empty registry has nothing that could have rotted.
    every.saturating_sub(since.unwrap_or(Duration::ZERO))
}

fn failed(error: registry::Error) -> RegistryAdminError {
    match error {
        registry::Error::ReadOnly(reason) => RegistryAdminError::ReadOnly(reason),
        other => {
            tracing::warn!(error = %error_chain(&other), "work on the registry failed");
            RegistryAdminError::Failed(
                "the registry could not do this; see the log, then try again".to_owned(),
            )
        }
    }
}

fn unavailable(error: StoreError) -> RegistryAdminError {
    tracing::warn!(error = %error_chain(&error), "the state of the registry could not be read or written");
    RegistryAdminError::Failed(
        "the database cannot be used right now; see /readyz, then try again".to_owned(),
    )
}

/// Waits for work, bounded; it goes on also when nobody waits any longer.
async fn bounded(
    work: impl Future<Output = Result<Value, RegistryAdminError>> + Send + 'static,
) -> Result<Option<Value>, RegistryAdminError> {
    match tokio::time::timeout(PATIENCE, tokio::spawn(work)).await {
        Ok(Ok(report)) => report.map(Some),
        Ok(Err(_stopped)) => Err(RegistryAdminError::Failed("the work was stopped; try again".to_owned())),
        Err(_elapsed) => Ok(None),
    }
}

#[async_trait]
impl RegistryAdmin for RegistryMaintenance {
    async fn status(&self) -> Result<RegistryStatus, RegistryAdminError> {
        let Inner { registry, .. } = &*self.0;
        let scrub = registry.last_scrub().unwrap_or_default();
        let quotas = registry.quotas().into_iter().map(|usage| QuotaStatus {
            repositories: usage.quota.repositories.to_string(),
            limit_bytes: usage.quota.bytes,
            used_bytes: usage.used,
            reserved_bytes: usage.reserved,
        });
        let work = |flag: &AtomicBool, last| PeriodicStatus { running: flag.load(Ordering::SeqCst), last };
        Ok(RegistryStatus {
            read_only: registry.read_only(),
            accepts_pushes: registry.accepts_pushes().await.map_err(failed)?,
            free_bytes: registry.free_bytes().await.map_err(failed)?,
            repositories: registry.repositories().await.len(),
            pins: registry.pins().len(),
            quotas: quotas.collect(),
            gc: work(&self.0.collecting, self.last(LAST_GC).await?),
            retention: work(&self.0.retaining, self.last(LAST_RETENTION).await?),
            scrub: ScrubStatus {
                running: self.0.scrubbing.load(Ordering::SeqCst),
                last_verified: scrub.completed.and_then(shown),
                blobs: scrub.blobs,
                bytes: scrub.bytes,
                quarantined: scrub.damaged.iter().map(ToString::to_string).collect(),
            },
        })
    }

    async fn set_read_only(&self, reason: Option<String>, by: &str) -> Result<(), RegistryAdminError> {
        if self.0.care.read_only {
            return Err(RegistryAdminError::Fixed(
                "REGISTRY_READ_ONLY is set; start without it to decide while running",
            ));
        }
        let _switching = self.0.switching.lock().await;
        if self.0.registry.read_only() == reason {
            return Ok(());
        }
        let event = match &reason {
            Some(reason) => {
                NewEvent::warn("registry.read-only", format!("the registry is read-only: {reason}"))
            }
            None => NewEvent::info("registry.writable", "the registry takes pushes and deletes again"),
        };
        let written =
            self.0.store.set_setting(READ_ONLY, reason.clone(), vec![event.by(by)], self.0.clock.now());
        written.await.map_err(unavailable)?;
        self.0.registry.set_read_only(reason);
        Ok(())
    }

    async fn collect(&self, order: Collect, by: &str) -> Result<Option<Value>, RegistryAdminError> {
        let (caretaker, by) = (self.clone(), by.to_owned());
        bounded(async move { caretaker.collect_now(order, &by).await }).await
    }

    async fn retain(&self, dry_run: bool, by: &str) -> Result<Option<Value>, RegistryAdminError> {
        let (caretaker, by) = (self.clone(), by.to_owned());
        bounded(async move { caretaker.retain_now(dry_run, &by).await }).await
    }

    async fn scrub(&self, by: &str) -> Result<bool, RegistryAdminError> {
        if self.0.scrubbing.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.tell(NewEvent::info("registry.verify", "everything is to be verified").by(by), None).await;
        self.0.scrub_asked.notify_one();
        Ok(true)
    }
}

fn shown(time: SystemTime) -> Option<String> {
    let stamp = jiff::Timestamp::try_from(time).ok()?;
    Some(Time::from_timestamp(stamp).to_string())
}
