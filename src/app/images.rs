//! The registry as part of the appliance: opened with its settings, kept tidy, its images held for the jobs that need them.
//!
//! ```text
//!  every hour        abandoned uploads go
//!  GC_INTERVAL       what no tag and no job needs goes, after GC_GRACE_PERIOD
//!  SCRUB_INTERVAL    everything is hashed once more, slowly; rot is put aside and said
//!  at the end        the OCI image layouts of all repositories are brought up to date
//! ```

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime};

use registry::{Config, GcOptions, Registry, Reserve};
use tokio_util::sync::CancellationToken;

use super::{StartError, lock, make_folder, setting};
use crate::config::Settings;
use crate::model::chain;

/// How often is looked whether something is due.
const LOOK: Duration = Duration::from_secs(60);
/// How often abandoned uploads are swept.
const SWEEP: Duration = Duration::from_secs(3600);

/// Opens the registry of a data directory.
pub(super) async fn open(settings: &Settings) -> Result<Registry, StartError> {
    make_folder(&settings.registry_storage)?;
    let mut config = Config::new(settings.registry_storage.clone());
    config.max_blob_size = settings.registry_max_blob_size;
    config.reserve = settings.registry_reserve.parse::<Reserve>().map_err(setting("use REGISTRY_RESERVE"))?;
    Registry::open(config).await.map_err(|why| StartError::Registry(Box::new(why)))
}

/// A registry for a command that works on it while no controller runs.
pub struct Offline {
    /// The registry.
    pub registry: Registry,
    _lock: lock::DataLock,
}

impl Offline {
    /// Opens the registry of a data directory that no controller works on.
    ///
    /// # Errors
    /// When a controller runs on it, or it cannot be opened.
    pub async fn open(settings: &Settings) -> Result<Self, StartError> {
        make_folder(&settings.storage_root)?;
        if let Some(folder) = settings.db_path.parent() {
            make_folder(folder)?;
        }
        let lock = lock::DataLock::take(&settings.db_path)?;
        Ok(Self { registry: open(settings).await?, _lock: lock })
    }
}

/// How a registry is kept tidy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Care {
    pub(super) collect_every: Duration,
    pub(super) grace: Duration,
    pub(super) scrub_every: Duration,
    pub(super) scrub_rate: NonZeroU64,
}

impl Care {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            collect_every: settings.registry_gc_interval,
            grace: settings.registry_gc_grace_period,
            scrub_every: settings.registry_scrub_interval,
            scrub_rate: NonZeroU64::new(settings.registry_scrub_rate).unwrap_or(NonZeroU64::MIN),
        }
    }
}

/// Keeps a registry tidy until `stop`.
pub(super) async fn keep(registry: Registry, care: Care, stop: CancellationToken) {
    let began = tokio::time::Instant::now();
    let (mut swept, mut collected) = (None, began);
    let mut scrubbed = began - overdue(&registry, care.scrub_every).min(began.elapsed());
    while !stop.is_cancelled() {
        let now = tokio::time::Instant::now();
        if swept.is_none_or(|at| now - at >= SWEEP) {
            swept = Some(now);
            if let Err(error) = registry.sweep(SystemTime::now()).await {
                tracing::warn!(error = %chain(&error), "abandoned uploads were not swept");
            }
        }
        if now - collected >= care.collect_every {
            collected = now;
            collect(&registry, care.grace).await;
        }
        if now - scrubbed >= care.scrub_every {
            scrubbed = now;
            tokio::select! {
                () = stop.cancelled() => break,
                () = scrub(&registry, care.scrub_rate) => {}
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    if let Err(error) = registry.flush_layouts().await {
        tracing::warn!(error = %chain(&error), "the image layouts were not brought up to date; the next start does it");
    }
}

/// How long ago the last complete scrub ended, as far as that is known.
fn overdue(registry: &Registry, every: Duration) -> Duration {
    let last = registry.last_scrub().and_then(|last| last.completed);
    last.and_then(|last| SystemTime::now().duration_since(last).ok()).unwrap_or(every)
}

async fn collect(registry: &Registry, grace: Duration) {
    let options = GcOptions { grace, ..GcOptions::at(SystemTime::now()) };
    match registry.collect(options).await {
        Ok(report) => {
            let damaged: Vec<String> = report.damaged.iter().map(ToString::to_string).collect();
            if !damaged.is_empty() {
                tracing::warn!(
                    ?damaged,
                    "repositories with a damaged manifest were not collected; push their images again"
                );
            }
            if report.blobs > 0 {
                tracing::info!(blobs = report.blobs, bytes = report.bytes, "collected what no image needs");
            }
        }
        Err(registry::Error::ReadOnly(_)) => {}
        Err(error) => tracing::warn!(error = %chain(&error), "garbage was not collected; trying again later"),
    }
}

async fn scrub(registry: &Registry, rate: NonZeroU64) {
    match registry.scrub(rate).await {
        Ok(scrubbed) if scrubbed.damaged.is_empty() => {
            tracing::info!(blobs = scrubbed.blobs, bytes = scrubbed.bytes, "every image was verified");
        }
        Ok(scrubbed) => {
            let damaged: Vec<String> = scrubbed.damaged.iter().map(ToString::to_string).collect();
            tracing::error!(
                ?damaged,
                "content had rotted on the disk and was put aside; push these images again"
            );
        }
        Err(error) => {
            tracing::warn!(error = %chain(&error), "the images were not verified; trying again later")
        }
    }
}
