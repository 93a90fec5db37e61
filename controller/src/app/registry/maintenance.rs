//! Maintenance of the registry, by schedule and on request.
//!
//! ```text
//!  every hour        abandoned uploads are removed
//!  GC_INTERVAL       tags that RETENTION does not keep are removed; then garbage older than GC_GRACE_PERIOD
//!  SCRUB_INTERVAL    all content is hashed again at a limited rate; corrupted content is quarantined and reported;
//!                    the first time counts from the first open of the registry; a pass that a stop interrupted continues
//!  read-only         collection and retention pause, pushes and deletes are refused, until an operator ends it
//!  at stop           the OCI image layouts of all repositories are updated
//! ```
//!
//! Every action is an event. The last reports and the read-only switch are stored in the database and survive a restart.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use registry::{
    AuditEvent, Audited, Digest, GcOptions, Reference, Registry, RepositoryName, RetentionRule, Scrubbed, Tag,
};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::audit::audit_event;
use super::times::rfc3339;
use api::{
    GcRequest, PeriodicStatus, QuotaStatus, RESPONSE_WAIT, RegistryAdmin, RegistryAdminError, RegistryStatus,
    RepositoryDetailView, RepositoryView, ScrubStatus, TagToDelete, UploadView, UploadsStatus,
};
use model::{Clock, NewEvent, Time, error_chain};
use settings::Settings;
use store::{Store, StoreError};
use telemetry::Metrics;

/// The interval of checks for due work.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The interval in which abandoned uploads are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// The time after which a scrub that failed continues.
const SCRUB_RETRY: Duration = Duration::from_secs(3600);
/// The actor of scheduled work.
const SCHEDULE: &str = "registry";
/// The maximum of tags named in one event; the report of a request names all.
const NAMED: usize = 100;

const READ_ONLY: &str = "registry.read_only";
const LAST_GC: &str = "registry.last_gc";
const LAST_RETENTION: &str = "registry.last_retention";

/// The settings of registry maintenance.
#[derive(Clone, Debug)]
pub(in crate::app) struct MaintenanceSettings {
    collect_every: Duration,
    grace: Duration,
    untagged: bool,
    scrub_every: Duration,
    scrub_rate: NonZeroU64,
    retention: Vec<RetentionRule>,
    read_only: bool,
}

impl MaintenanceSettings {
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

/// Runs the maintenance of a registry. Clones share one state.
#[derive(Clone)]
pub(in crate::app) struct RegistryMaintenance(Arc<Inner>);

struct Inner {
    registry: Registry,
    store: Store,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    settings: MaintenanceSettings,
    /// One collection or retention at a time.
    collect_lock: Mutex<()>,
    /// One change of the read-only switch at a time.
    read_only_lock: Mutex<()>,
    collecting: AtomicBool,
    retaining: AtomicBool,
    scrubbing: AtomicBool,
    scrub_requested: Notify,
}

/// Marks work as running until it is dropped.
struct ActiveGuard<'a>(&'a AtomicBool);

impl<'a> ActiveGuard<'a> {
    fn begin(flag: &'a AtomicBool) -> Self {
        flag.store(true, Ordering::SeqCst);
        Self(flag)
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl RegistryMaintenance {
    /// Restores the stored read-only switch of the registry.
    pub(in crate::app) async fn new(
        registry: Registry,
        store: Store,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        settings: MaintenanceSettings,
    ) -> Result<Self, StoreError> {
        let reason = match settings.read_only {
            true => Some("REGISTRY_READ_ONLY is set".to_owned()),
            false => store.setting(READ_ONLY).await?,
        };
        registry.set_read_only(reason);
        Ok(Self(Arc::new(Inner {
            registry,
            store,
            clock,
            metrics,
            settings,
            collect_lock: Mutex::default(),
            read_only_lock: Mutex::default(),
            collecting: AtomicBool::default(),
            retaining: AtomicBool::default(),
            scrubbing: AtomicBool::default(),
            scrub_requested: Notify::new(),
        })))
    }

    /// Removes abandoned uploads, expired tags and garbage by schedule until `stop`.
    pub(in crate::app) async fn run(self, stop: CancellationToken) {
        let settings = &self.0.settings;
        let mut swept = None;
        let mut due = tokio::time::Instant::now() + self.until_collection().await;
        while !stop.is_cancelled() {
            let now = tokio::time::Instant::now();
            if swept.is_none_or(|at| now - at >= SWEEP_INTERVAL) {
                swept = Some(now);
                if let Err(error) = self.0.registry.sweep(SystemTime::now()).await {
                    tracing::warn!(error = %error_chain(&error), "abandoned uploads were not removed; the next attempt is in an hour");
                }
            }
            if now >= due {
                due = now + settings.collect_every;
                self.run_due().await;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(CHECK_INTERVAL.min(settings.collect_every)) => {}
            }
        }
        if let Err(error) = self.0.registry.flush_layouts().await {
            tracing::warn!(error = %error_chain(&error), "the image layouts were not updated; the next start updates them");
        }
    }

    /// The time until the next collection: the interval counts from the last one, also over restarts.
    async fn until_collection(&self) -> Duration {
        let last = self.last(LAST_GC).await.ok().flatten();
        let last = last.and_then(|last| last["at"].as_str().and_then(|at| at.parse().ok()));
        left(self.0.settings.collect_every, last, self.0.clock.now())
    }

    async fn run_due(&self) {
        if self.0.registry.read_only().is_some() {
            return;
        }
        if !self.0.settings.retention.is_empty()
            && let Err(error) = self.retain_now(false, SCHEDULE).await
        {
            tracing::warn!(%error, "expired tags were not removed; the next attempt is at the next interval");
        }
        let request = GcRequest { dry_run: false, untagged: None, grace: None };
        if let Err(error) = self.collect_now(request, SCHEDULE).await {
            tracing::warn!(%error, "garbage was not collected; the next attempt is at the next interval");
        }
    }

    /// Scrubs by schedule and on request, until `stop`.
    pub(in crate::app) async fn run_scrubs(self, stop: CancellationToken) {
        let every = self.0.settings.scrub_every;
        let mut next = tokio::time::Instant::now() + until_due(&self.0.registry, every);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.scrub_requested.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            let running = ActiveGuard::begin(&self.0.scrubbing);
            // A scrub continues after a restart where it stopped.
            let scrubbed = tokio::select! {
                () = stop.cancelled() => return,
                scrubbed = self.0.registry.scrub(self.0.settings.scrub_rate) => scrubbed,
            };
            let pause = if scrubbed.is_ok() { every } else { SCRUB_RETRY };
            self.record_scrub(scrubbed).await;
            drop(running);
            next = tokio::time::Instant::now() + pause;
        }
    }

    async fn record_scrub(&self, scrubbed: Result<Scrubbed, registry::Error>) {
        match scrubbed {
            Ok(scrubbed) if scrubbed.corrupted.is_empty() && scrubbed.unreadable.is_empty() => {
                let message = format!(
                    "scrub finished: {} blobs, {} bytes, no corruption",
                    scrubbed.blobs, scrubbed.bytes
                );
                self.record_event(NewEvent::info("registry.scrubbed", message).by(SCHEDULE), None).await;
            }
            Ok(scrubbed) => {
                let names = |digests: &[registry::Digest]| -> Vec<String> {
                    digests.iter().map(ToString::to_string).collect()
                };
                let (corrupted, unreadable) = (names(&scrubbed.corrupted), names(&scrubbed.unreadable));
                tracing::error!(
                    ?corrupted,
                    ?unreadable,
                    "corrupted content was quarantined, unreadable content was left; push these images again"
                );
                let event = NewEvent::error("registry.corrupted", found(corrupted.len(), unreadable.len()));
                let data = json!({ "quarantined": corrupted, "unreadable": unreadable });
                self.record_event(event.by(SCHEDULE).with(data), None).await;
            }
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "the scrub did not finish; it continues in an hour");
            }
        }
    }

    /// Stores an event, and with it a setting such as the last report.
    async fn record_event(&self, event: NewEvent, saved: Option<(&'static str, Value)>) {
        let now = self.0.clock.now();
        let written = match saved {
            Some((key, value)) => {
                self.0.store.set_setting(key, Some(value.to_string()), vec![event], now).await
            }
            None => self.0.store.append(None, None, vec![event], now).await,
        };
        if let Err(error) = written {
            tracing::warn!(error = %error_chain(&error), "an event of registry maintenance could not be stored");
        }
    }

    async fn collect_now(&self, request: GcRequest, by: &str) -> Result<Value, RegistryAdminError> {
        let _lock = self.0.collect_lock.lock().await;
        let _active = ActiveGuard::begin(&self.0.collecting);
        let options = GcOptions {
            grace: request.grace.unwrap_or(self.0.settings.grace),
            untagged: request.untagged.unwrap_or(self.0.settings.untagged),
            dry_run: request.dry_run,
            ..GcOptions::at(SystemTime::now())
        };
        let report = self.0.registry.collect(options).await.map_err(failed)?;
        let corrupted: Vec<String> = report.corrupted.iter().map(ToString::to_string).collect();
        if !corrupted.is_empty() {
            tracing::warn!(
                ?corrupted,
                "repositories with a corrupted manifest were not collected; push their images again"
            );
        }
        let report_json = json!({
            "at": self.0.clock.now(), "by": by, "dry_run": request.dry_run, "manifests": report.manifests,
            "layers": report.layers, "blobs": report.blobs, "bytes": report.bytes, "corrupted": corrupted,
        });
        if !request.dry_run {
            let message =
                format!("garbage collection removed {} blobs, {} bytes", report.blobs, report.bytes);
            let event = NewEvent::info("registry.collected", message).by(by).with(report_json.clone());
            // A scheduled collection that removed nothing is no event.
            let saved = (LAST_GC, report_json.clone());
            if report.blobs + report.manifests + report.layers > 0 || by != SCHEDULE {
                self.record_event(event, Some(saved)).await;
            } else {
                self.save_report(saved).await;
            }
        }
        Ok(report_json)
    }

    async fn save_report(&self, (key, value): (&'static str, Value)) {
        let now = self.0.clock.now();
        if let Err(error) = self.0.store.set_setting(key, Some(value.to_string()), Vec::new(), now).await {
            tracing::warn!(error = %error_chain(&error), "an event of registry maintenance could not be stored");
        }
    }

    async fn retain_now(&self, dry_run: bool, by: &str) -> Result<Value, RegistryAdminError> {
        let _lock = self.0.collect_lock.lock().await;
        let _active = ActiveGuard::begin(&self.0.retaining);
        let rules = self.0.settings.retention.clone();
        let expired = self.0.registry.retain(rules, SystemTime::now(), dry_run).await.map_err(failed)?;
        let tags: Vec<String> =
            expired.iter().map(|expired| format!("{}:{}", expired.repository, expired.tag)).collect();
        let report_json = json!({ "at": self.0.clock.now(), "by": by, "dry_run": dry_run, "tags": tags });
        // A scheduled retention that removed nothing is no event.
        if !dry_run && (!tags.is_empty() || by != SCHEDULE) {
            let short = json!({ "at": report_json["at"], "by": by, "count": tags.len() });
            let named = &tags[..tags.len().min(NAMED)];
            let message = format!("retention removed {} tags", tags.len());
            let event = NewEvent::info("registry.tags-expired", message).by(by);
            self.record_event(event.with(json!({ "tags": named })), Some((LAST_RETENTION, short))).await;
        }
        Ok(report_json)
    }

    async fn delete_tag_now(
        &self,
        repository: RepositoryName,
        tag: Tag,
        digest: Option<Digest>,
        by: &str,
    ) -> Result<(), RegistryAdminError> {
        let deleted = self.0.registry.delete_tag(&repository, &tag, digest.as_ref()).await;
        deleted.map_err(|why| match why {
            registry::Error::ManifestUnknown => RegistryAdminError::UnknownTag,
            registry::Error::TagKept(tag) => RegistryAdminError::Immutable(tag.to_string()),
            registry::Error::TagMoved { digest, .. } => RegistryAdminError::TagMoved(digest.to_string()),
            other => failed(other),
        })?;
        self.0.metrics.registry_deleted("tag");
        self.record_event(tag_deleted(repository, tag, digest, by), None).await;
        Ok(())
    }

    async fn last(&self, key: &str) -> Result<Option<Value>, RegistryAdminError> {
        let text = self.0.store.setting(key).await.map_err(unavailable)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

/// What is left of an interval that began at `last`; the whole interval without one, and after the clock was set back.
fn left(every: Duration, last: Option<Time>, now: Time) -> Duration {
    let since = last.filter(|last| *last <= now).map(|last| now.since(last));
    every.saturating_sub(since.unwrap_or(Duration::ZERO))
}

/// Describes the content that a scrub found damaged or unreadable.
fn found(corrupted: usize, unreadable: usize) -> String {
    let quarantined = "corrupted blobs were quarantined; push the images that contain them again";
    let left = "blobs could not be opened; see the log of the controller, and check the disk";
    match (corrupted, unreadable) {
        (_, 0) => format!("{corrupted} {quarantined}"),
        (0, _) => format!("{unreadable} {left}"),
        _ => format!("{corrupted} {quarantined}; {unreadable} {left}"),
    }
}

/// The time until the next scrub is due: none for a pass that did not end.
fn until_due(registry: &Registry, every: Duration) -> Duration {
    if registry.scrub_unfinished() {
        return Duration::ZERO;
    }
    let last = registry.last_scrub().and_then(|last| last.completed).or_else(|| registry.first_opened());
    // After the clock was set back, the interval begins anew.
    let since = last.and_then(|last| SystemTime::now().duration_since(last).ok());
    every.saturating_sub(since.unwrap_or(Duration::ZERO))
}

fn failed(error: registry::Error) -> RegistryAdminError {
    match error {
        registry::Error::ReadOnly(reason) => RegistryAdminError::ReadOnly(reason),
        other => {
            tracing::warn!(error = %error_chain(&other), "maintenance of the registry failed");
            RegistryAdminError::Failed(
                "the registry operation failed; see the log of the controller, then try again".to_owned(),
            )
        }
    }
}

fn unavailable(error: StoreError) -> RegistryAdminError {
    tracing::warn!(error = %error_chain(&error), "the state of registry maintenance could not be read or written");
    RegistryAdminError::Failed("the database cannot be used now; see /readyz, then try again".to_owned())
}

fn interrupted() -> RegistryAdminError {
    RegistryAdminError::Failed("the work was interrupted; try again".to_owned())
}

/// Waits for work up to [`RESPONSE_WAIT`]; after that the work continues without a waiting request.
async fn bounded(
    work: impl Future<Output = Result<Value, RegistryAdminError>> + Send + 'static,
) -> Result<Option<Value>, RegistryAdminError> {
    match tokio::time::timeout(RESPONSE_WAIT, tokio::spawn(work)).await {
        Ok(Ok(report)) => report.map(Some),
        Ok(Err(_stopped)) => Err(interrupted()),
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
            uploads: uploads_status(registry.upload_load()),
            quotas: quotas.collect(),
            gc: work(&self.0.collecting, self.last(LAST_GC).await?),
            retention: work(&self.0.retaining, self.last(LAST_RETENTION).await?),
            scrub: ScrubStatus {
                running: self.0.scrubbing.load(Ordering::SeqCst),
                last_verified: scrub.completed.and_then(rfc3339),
                blobs: scrub.blobs,
                bytes: scrub.bytes,
                quarantined: scrub.corrupted.iter().map(ToString::to_string).collect(),
            },
        })
    }

    async fn repositories(&self) -> Result<Vec<RepositoryView>, RegistryAdminError> {
        let mut shown = Vec::new();
        let mut pins: HashMap<RepositoryName, usize> = HashMap::new();
        for pin in self.0.registry.pins() {
            *pins.entry(pin.repository).or_default() += 1;
        }
        for name in self.0.registry.repositories().await {
            let tags = match self.0.registry.tags(&name).await {
                Ok(tags) => tags,
                // It was removed since it was listed.
                Err(registry::Error::RepositoryUnknown) => continue,
                Err(error) => return Err(failed(error)),
            };
            let names = tags.iter().take(NAMED).map(ToString::to_string).collect();
            let (bytes, changed) = self.0.registry.size_of(&name);
            let (changed_at, pins) =
                (changed.and_then(rfc3339), pins.get(&name).copied().unwrap_or_default());
            shown.push(RepositoryView {
                name: name.to_string(),
                tags: tags.len(),
                names,
                bytes,
                changed_at,
                pins,
            });
        }
        Ok(shown)
    }

    async fn repository(
        &self,
        name: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Option<RepositoryDetailView>, RegistryAdminError> {
        // No repository has an invalid name.
        let Ok(name) = name.parse() else { return Ok(None) };
        match super::shown::repository(&self.0.registry, &name, after, limit).await {
            Ok(shown) => Ok(Some(shown)),
            Err(registry::Error::RepositoryUnknown) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    async fn set_read_only(&self, reason: Option<String>, by: &str) -> Result<(), RegistryAdminError> {
        if self.0.settings.read_only {
            return Err(RegistryAdminError::Fixed(
                "REGISTRY_READ_ONLY is set; restart without it to use this switch",
            ));
        }
        let _lock = self.0.read_only_lock.lock().await;
        if self.0.registry.read_only() == reason {
            return Ok(());
        }
        let event = match &reason {
            Some(reason) => {
                NewEvent::warn("registry.read-only", format!("the registry is read-only: {reason}"))
            }
            None => NewEvent::info("registry.writable", "the registry accepts pushes and deletes again"),
        };
        let written =
            self.0.store.set_setting(READ_ONLY, reason.clone(), vec![event.by(by)], self.0.clock.now());
        written.await.map_err(unavailable)?;
        self.0.registry.set_read_only(reason);
        Ok(())
    }

    async fn collect(&self, request: GcRequest, by: &str) -> Result<Option<Value>, RegistryAdminError> {
        let (maintenance, by) = (self.clone(), by.to_owned());
        bounded(async move { maintenance.collect_now(request, &by).await }).await
    }

    async fn retain(&self, dry_run: bool, by: &str) -> Result<Option<Value>, RegistryAdminError> {
        let (maintenance, by) = (self.clone(), by.to_owned());
        bounded(async move { maintenance.retain_now(dry_run, &by).await }).await
    }

    async fn scrub(&self, by: &str) -> Result<bool, RegistryAdminError> {
        if self.0.scrubbing.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.record_event(NewEvent::info("registry.scrub-requested", "a scrub was requested").by(by), None)
            .await;
        self.0.scrub_requested.notify_one();
        Ok(true)
    }

    async fn delete_tag(&self, gone: TagToDelete<'_>, by: &str) -> Result<(), RegistryAdminError> {
        // No repository has an invalid name, and none an invalid tag.
        let (Ok(repository), Ok(tag)) = (gone.repository.parse(), gone.tag.parse()) else {
            return Err(RegistryAdminError::UnknownTag);
        };
        let digest = gone
            .digest
            .map(str::parse)
            .transpose()
            .map_err(|why: registry::InvalidDigest| RegistryAdminError::InvalidDigest(why.to_string()))?;
        let (maintenance, by) = (self.clone(), by.to_owned());
        // The event of a deleted tag does not depend on the client, which may leave.
        let work =
            tokio::spawn(async move { maintenance.delete_tag_now(repository, tag, digest, &by).await });
        work.await.unwrap_or_else(|_stopped| Err(interrupted()))
    }

    async fn uploads(&self) -> Result<Vec<UploadView>, RegistryAdminError> {
        let sessions = self.0.registry.uploads().await.map_err(failed)?;
        let view = |session: registry::UploadSession| UploadView {
            id: session.id,
            repository: session.repository.to_string(),
            uploader: session.uploader.to_string(),
            begun: rfc3339(session.begun),
            written: rfc3339(session.written),
            received_bytes: session.received,
            active: session.active,
        };
        Ok(sessions.into_iter().map(view).collect())
    }

    async fn cancel_upload(&self, id: &str, by: &str) -> Result<bool, RegistryAdminError> {
        let cancelled = self.0.registry.cancel_upload(id).await.map_err(failed)?;
        if cancelled {
            let message = format!("the upload session {id} was cancelled");
            self.record_event(NewEvent::info("registry.upload-cancelled", message).by(by), None).await;
        }
        Ok(cancelled)
    }
}

/// The event of a deleted tag: that of a delete by `/v2/`.
fn tag_deleted(repository: RepositoryName, tag: Tag, digest: Option<Digest>, by: &str) -> NewEvent {
    audit_event(
        &AuditEvent {
            time: SystemTime::now(),
            subject: Some(by.to_owned()),
            peer: None,
            what: Audited::DeleteTag,
            repository: Some(repository),
            reference: Some(Reference::Tag(tag)),
            digest,
            size: None,
        },
        1,
    )
}

fn uploads_status(load: registry::UploadLoad) -> UploadsStatus {
    let registry::UploadLoad { sessions, sessions_max, receiving, receiving_max, exhausted } = load;
    UploadsStatus { sessions, sessions_max, receiving, receiving_max, exhausted }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// The time until a scrub of a registry with this record is due.
    async fn due(record: Value) -> Duration {
        let root = tempfile::tempdir().unwrap();
        if !record.is_null() {
            std::fs::write(root.path().join("scrub.json"), record.to_string()).unwrap();
        }
        let registry = Registry::open(registry::Config::new(root.path())).await.unwrap();
        until_due(&registry, 7 * DAY)
    }

    #[tokio::test]
    async fn the_first_scrub_counts_from_the_first_open_and_an_unfinished_one_continues_at_once() {
        let ago = |days: u64| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            since.as_secs() - days * DAY.as_secs()
        };
        let about = |due: Duration, days: u32| {
            let expected = days * DAY;
            due <= expected && expected - due < Duration::from_secs(60)
        };
        let pass = |started: Option<u64>, completed: Option<u64>| json!({ "started": started, "completed": completed, "blobs": 0, "bytes": 0, "corrupted": [] });
        let never = json!({ "opened": ago(5), "last": null, "present": pass(None, None), "part": 0 });
        let complete = pass(Some(ago(3)), Some(ago(3)));
        let last = json!({ "opened": ago(50), "last": complete, "present": complete, "part": 32 });
        let unfinished =
            json!({ "opened": ago(5), "last": complete, "present": pass(Some(ago(1)), None), "part": 3 });
        assert!(about(due(Value::Null).await, 7), "a new registry");
        assert!(about(due(never).await, 2));
        assert!(about(due(last).await, 4));
        assert_eq!(due(unfinished).await, Duration::ZERO);
        // A record of an earlier version.
        assert!(about(due(json!({ "last": complete, "present": complete, "part": 32 })).await, 4));
    }

    #[test]
    fn an_interval_of_collections_goes_on_over_restarts() {
        let now: Time = "2026-01-10T00:00:00Z".parse().unwrap();
        let at = |text: &str| Some(text.parse().unwrap());
        assert_eq!(left(7 * DAY, None, now), 7 * DAY, "a new registry");
        assert_eq!(left(7 * DAY, at("2026-01-08T00:00:00Z"), now), 5 * DAY);
        assert_eq!(
            left(7 * DAY, at("2026-01-02T00:00:00Z"), now),
            Duration::ZERO,
            "due, however often it was restarted"
        );
        assert_eq!(left(7 * DAY, at("2026-02-01T00:00:00Z"), now), 7 * DAY, "the clock was set back");
    }

    #[test]
    fn an_event_names_what_a_scrub_left() {
        assert!(found(2, 0).contains("quarantined") && !found(2, 0).contains("opened"));
        assert!(found(0, 1).starts_with("1 blobs could not be opened"));
        assert!(found(2, 1).contains("quarantined") && found(2, 1).contains("1 blobs could not"));
    }
}
