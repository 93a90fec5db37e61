//! The services that provisioning steps use. The controller implements their traits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::medium_image::MediumImage;
use super::names;
use super::outputs::slot_plan_limits;
use super::slot_refusals::REPEATED_STEPS;
use bmc::{BmcServices, Unavailable};
use media::{Library, MediaGrants, SeedOfRun};
use model::{RunId, Snapshot, StepName};
use recipe::{Recipe, RecipeSchemas};
use secrets::TokenSeeds;

/// Reads OS images in the registry before a machine is changed.
#[async_trait]
pub trait OsImages: Send + Sync {
    /// Pins an image (`reference` is a tag or a digest) for `owner` if this controller's registry holds it. Returns the digest of its
    /// manifest, `sha256:…`; `None` if the registry does not hold it.
    async fn hold(
        &self,
        repository: &str,
        reference: &str,
        owner: &str,
    ) -> Result<Option<String>, Unavailable>;
    /// Returns whether this controller's registry holds this image, without a pin.
    async fn holds(&self, repository: &str, reference: &str) -> Result<bool, Unavailable>;
    /// Returns what this controller's registry holds for a medium under a name: `reference` is a tag or a digest.
    async fn for_medium(&self, repository: &str, reference: &str) -> Result<MediumImage, Unavailable>;
    /// Removes all pins of `owner`.
    async fn release(&self, owner: &str) -> Result<(), Unavailable>;
    /// Checks that the registry can store images.
    async fn ready(&self) -> Result<(), Unavailable>;
}

/// Metrics of the workflow.
pub trait ProvisionMetrics: Send + Sync {
    /// Counts a task image that was planned and hashed.
    fn image_built(&self, took: Duration, size: u64);
}

/// Returns the certificates that machines trust to reach the controller by https, in PEM.
pub type ControllerAuthorities = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The settings of the workflow.
#[derive(Clone)]
pub struct ProvisionSettings {
    /// The maintenance ISO of jobs that give none.
    pub maintenance_iso_url: Option<String>,
    /// The ESXi installer of jobs that give none.
    pub esxi_installer_url: Option<String>,
    /// The time after power-on in which completion signs do not count.
    pub install_min_time: Duration,
    /// The time to wait for completion signs before success is assumed.
    pub install_window: Duration,
    /// The default time until the deadline of a job.
    pub job_timeout: Duration,
    /// Time limit of cleanup.
    pub cleanup_timeout: Duration,
    /// The directory where task images are also written, if set.
    pub task_iso_dir: Option<std::path::PathBuf>,
    /// The controller's CA, for the maintenance OS.
    pub controller_ca: ControllerAuthorities,
    /// Whether the registry of this controller is enabled.
    pub registry: bool,
    /// Limits of concurrency and of step times.
    pub limits: ProvisionLimits,
}

/// Limits of concurrency and of step times.
#[derive(Clone, Debug, Default)]
pub struct ProvisionLimits {
    /// Maximum number of hosts that power on at once.
    pub power_ons: Option<u32>,
    /// The time a host counts as powering on, unless it reads its media earlier.
    pub power_on_settle: Duration,
    /// Maximum number of jobs at once per site.
    pub per_site: Option<u32>,
    /// Time limits of steps, waits included.
    pub steps: BTreeMap<String, Duration>,
}

/// The services that the steps use.
pub struct Services {
    /// The services that every workflow shares.
    pub bmc: Arc<BmcServices>,
    /// The accepted recipe schemas.
    pub schemas: RecipeSchemas,
    /// The OS images of the registry of the controller.
    pub images: Box<dyn OsImages>,
    /// The media grants.
    pub grants: MediaGrants,
    /// The library of imported maintenance images.
    pub library: Library,
    /// Makes the seeds of the tokens of new jobs.
    pub seeds: TokenSeeds,
    /// Metrics of the workflow.
    pub metrics: Arc<dyn ProvisionMetrics>,
    /// The workflow's settings.
    pub settings: ProvisionSettings,
}

impl Services {
    /// The seed of the tokens of a new run.
    pub fn seed(&self, run: RunId) -> SeedOfRun {
        SeedOfRun { token_seed: self.seeds.seed(&run.to_string()) }
    }

    /// Returns the time limit of a step that the order of the job or the settings give. The steps that run again for another slot plan
    /// have the limits of the time of discovery: a setting that is changed at a restart does not move the end of the time they share.
    pub(super) fn time_limit(&self, step: &StepName, snapshot: &Snapshot) -> Option<Duration> {
        let ordered = snapshot.input["timeouts"][step.as_str()].as_u64().map(Duration::from_secs);
        let stored = REPEATED_STEPS.contains(&step).then(|| slot_plan_limits(snapshot)).flatten();
        let limits = stored.as_ref().unwrap_or(&self.settings.limits.steps);
        ordered.or_else(|| limits.get(step.as_str()).copied())
    }

    /// Returns the time limits of the settings for the steps that run again for another slot plan, in milliseconds by step.
    pub(super) fn slot_plan_limits_ms(&self) -> BTreeMap<String, u64> {
        let limit = |step: &&StepName| {
            let limit = self.settings.limits.steps.get(step.as_str())?;
            Some((step.as_str().to_owned(), u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)))
        };
        REPEATED_STEPS.iter().filter_map(limit).collect()
    }

    /// Returns how long a step waits for the installation, unless a time limit is given; `None` for other steps.
    pub(super) fn installs_within(&self, step: &StepName, recipe: Option<&Recipe>) -> Option<Duration> {
        let erase_time = recipe.map_or(Duration::ZERO, Recipe::erase_time);
        match step {
            step if step == names::AWAIT_REPORT => Some(self.settings.job_timeout + erase_time),
            step if step == names::AWAIT_COMPLETION => Some(self.settings.install_window),
            _ => None,
        }
    }
}
