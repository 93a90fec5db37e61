//! Job orders: turns a client's request into a run, or into the errors why it is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::services::Services;
use super::{Provision, VERSION, WORKFLOW, cannot_report, former_disk, report};
use engine::ChildRefused;
use media::{FormerDisk, SeedOfRun};
use model::{
    BatchId, Effect, Idempotency, Job, JobRecipe, LockRequest, NewEvent, NewJob, NewRun, OnConflict, Purpose,
    RunId, RunRequest, Serial, Snapshot, Time, bmc_lock, error_chain, server_lock,
};
use recipe::{FieldError, Lint, Network, Recipe, TaskTarget};
use secrets::{JobTokens, token_hash};

/// A request for a job, from a client or from another workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobOrder {
    /// The server to install.
    pub server_serial: Serial,
    /// The recipe, byte for byte as submitted.
    pub recipe: String,
    /// The maintenance ISO, if not the controller's default.
    #[serde(default)]
    pub maintenance_iso_url: Option<String>,
    /// Labels of the operator.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The priority: higher runs start first.
    #[serde(default)]
    pub priority: i32,
    /// The client's idempotency key. A job that another workflow orders has none.
    #[serde(skip)]
    pub idempotency: Option<Idempotency>,
    /// The ended job that this job retries.
    #[serde(default)]
    pub retry_of: Option<RunId>,
    /// The disk that the former attempt wrote, of a retry. The maintenance OS writes to no other one.
    #[serde(default)]
    pub disk_before: Option<FormerDisk>,
    /// The batch of the job, and the maximum of its jobs that run at once.
    #[serde(default)]
    pub batch: Option<(BatchId, Option<u32>)>,
    /// Whether the job is a canary of its batch, for which the others wait.
    #[serde(default)]
    pub canary: bool,
    /// The deadline, if not the controller's default.
    #[serde(default)]
    pub deadline: Option<Time>,
    /// The number of jobs of its batch that run one after the other: a default deadline has the time of as many. Zero is one.
    #[serde(default)]
    pub rounds: u32,
    /// Time limits of steps in seconds, where they differ from the default.
    #[serde(default)]
    pub timeouts: BTreeMap<String, u64>,
    /// The value of the server's label `site`, if it has one.
    #[serde(default)]
    pub site: Option<String>,
    /// The address of the server's BMC, if other servers are registered with the same BMC.
    #[serde(default)]
    pub shared_bmc: Option<String>,
    /// The network in the record of the server, for a recipe that has none.
    #[serde(default)]
    pub network: Option<Value>,
}

impl JobOrder {
    /// Builds the order that repeats an ended job.
    ///
    /// # Errors
    /// Returns an error when the stored input of the job cannot be read.
    pub fn retry_of(
        job: &Job,
        snapshot: &Snapshot,
        idempotency: Option<Idempotency>,
    ) -> Result<Self, ChildRefused> {
        let unreadable =
            |why: String| ChildRefused(format!("the order of job {} cannot be read: {why}", job.run.id));
        let input: JobInput =
            JobInput::deserialize(&*snapshot.input).map_err(|why| unreadable(why.to_string()))?;
        let recipe = snapshot.recipe.as_ref().ok_or_else(|| unreadable("it has no recipe".to_owned()))?;
        Ok(Self {
            server_serial: input.server,
            recipe: recipe.json.clone(),
            maintenance_iso_url: Some(input.maintenance_iso_url),
            labels: job.labels.clone(),
            priority: job.run.priority,
            idempotency,
            retry_of: Some(job.run.id),
            disk_before: former_disk::of_attempt(snapshot, report::SIGNAL, input.disk_before),
            batch: None,
            canary: false,
            deadline: None,
            rounds: 1,
            timeouts: input.timeouts,
            site: None,
            shared_bmc: None,
            network: None,
        })
    }
}

/// An accepted order.
#[derive(Clone, Debug)]
pub struct ReadyOrder {
    /// The run to create.
    pub run: NewRun,
    /// The recipe, validated.
    pub recipe: Recipe,
    /// Advice about the valid recipe.
    pub lints: Vec<Lint>,
}

/// The reason why an order is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OrderError {
    /// The recipe is invalid.
    #[error("the recipe has {} error(s)", .0.len())]
    Recipe(Vec<FieldError>),
    /// No maintenance ISO is configured or given.
    #[error(
        "no maintenance ISO: set MAINTENANCE_ISO_URL on the controller or give maintenance_iso_url with the job"
    )]
    NoMaintenanceIso,
    /// No ESXi installer is configured or given.
    #[error(
        "no ESXi installer: set ESXI_INSTALLER_URL on the controller or give maintenance_iso_url with the job; the \
         maintenance ISO does not install ESXi"
    )]
    NoInstaller,
    /// The location of the maintenance ISO cannot be used.
    #[error("{0}")]
    MaintenanceIso(String),
    /// The OS image cannot be put onto a medium.
    #[error("{0}")]
    OsImage(String),
    /// The network in the record of the server has no form that this version knows.
    #[error(
        "the network in the record of the server cannot be read: {0}; give it again (shoal server update --network), or \
         give the recipe a network"
    )]
    ServerNetwork(String),
    /// The deadline has passed, so the job could only fail.
    #[error("the deadline has already passed; give a later one")]
    DeadlinePassed,
}

/// Checks that the library can import from a location, and that the location has no credentials: it is stored and shown.
fn checked_location(location: &str) -> Result<(), String> {
    if location.starts_with('/') {
        return Ok(());
    }
    let url =
        url::Url::parse(location).map_err(|why| format!("not an absolute path and not a URL: {why}"))?;
    match url.scheme() {
        // The library reads the name.
        "oci" => Ok(()),
        "file" | "http" | "https" if url.username().is_empty() && url.password().is_none() => Ok(()),
        "file" | "http" | "https" => {
            Err("remove the credentials from this URL: it is stored and shown".to_owned())
        }
        other => Err(format!(
            "scheme {other}: is not supported; give an absolute path, a file:, http: or https: URL, or oci:REPOSITORY:TAG"
        )),
    }
}

/// The stored input of a run. The recipe is not part of it: [`Snapshot::recipe`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobInput {
    pub(super) server: Serial,
    pub(super) maintenance_iso_url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) timeouts: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) disk_before: Option<FormerDisk>,
    /// The network in the record of the server when the job was accepted: the task image can always be built again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network>,
    /// The tokens of the job are derived from it, so they stay when a key is rotated.
    #[serde(flatten)]
    pub(super) seed: SeedOfRun,
}

impl Services {
    /// Checks an order and builds its run. Nothing is stored.
    ///
    /// # Errors
    /// Returns the reason why the order is refused.
    pub fn accept(
        &self,
        order: JobOrder,
        id: RunId,
        created_by: &str,
        now: Time,
    ) -> Result<ReadyOrder, OrderError> {
        if order.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(OrderError::DeadlinePassed);
        }
        let recipe = self.schemas.validate(&order.recipe).map_err(OrderError::Recipe)?;
        let (default_url, missing) = match cannot_report(recipe.task_target) {
            true => (&self.settings.esxi_installer_url, OrderError::NoInstaller),
            false => (&self.settings.maintenance_iso_url, OrderError::NoMaintenanceIso),
        };
        let maintenance_iso_url =
            order.maintenance_iso_url.clone().or_else(|| default_url.clone()).ok_or(missing)?;
        // A retry names the image of its job. That of the setting may be where no client may point, and have credentials.
        if order.maintenance_iso_url.as_ref().is_some_and(|url| Some(url) != default_url.as_ref()) {
            checked_location(&maintenance_iso_url).map_err(OrderError::MaintenanceIso)?;
            let allowed = self.library.check(&maintenance_iso_url);
            allowed.map_err(|why| OrderError::MaintenanceIso(error_chain(&why).to_string()))?;
        }
        let lints = recipe.lints();
        let network: Option<Network> = order
            .network
            .as_ref()
            .map(Network::deserialize)
            .transpose()
            .map_err(|why| OrderError::ServerNetwork(why.to_string()))?;
        let recipe = match network.clone() {
            Some(network) => recipe.on_network(network),
            None => recipe,
        };
        let run = self.run_of(order, network, &recipe, maintenance_iso_url, (id, now), created_by);
        Ok(ReadyOrder { run, recipe, lints })
    }

    fn run_of(
        &self,
        order: JobOrder,
        network: Option<Network>,
        recipe: &Recipe,
        maintenance_iso_url: String,
        (id, now): (RunId, Time),
        created_by: &str,
    ) -> NewRun {
        let target = recipe.task_target;
        let session = match target {
            TaskTarget::Rescue => recipe.session(),
            _ => recipe.erase_time(),
        };
        let seed = self.seed(id);
        let token = JobTokens::new(&seed.token_seed).report_token(&id.to_string());
        let job = NewJob {
            server: order.server_serial.clone(),
            recipe: Arc::new(JobRecipe { json: recipe.raw.clone(), schema_id: recipe.schema_id.clone() }),
            maintenance_iso_url: maintenance_iso_url.clone(),
            report_token_hash: token_hash(secrecy::ExposeSecret::expose_secret(&token)),
        };
        let request = RunRequest {
            labels: order.labels,
            retry_of: order.retry_of,
            batch: order.batch.map(|(id, _)| id),
            canary: order.canary,
            idempotency: order.idempotency,
        };
        let event = NewEvent::info(
            "job.created",
            format!("{} for {} accepted", recipe.task_target, order.server_serial),
        )
        .by(created_by)
        .with(recipe.summary());
        let input = JobInput {
            server: order.server_serial.clone(),
            maintenance_iso_url,
            timeouts: order.timeouts,
            disk_before: order.disk_before,
            network,
            seed,
        };
        let mut locks = vec![LockRequest {
            resource: server_lock(&order.server_serial),
            capacity: 1,
            on_conflict: OnConflict::Refuse,
        }];
        locks.extend(order.batch.and_then(|(batch, capacity)| {
            Some(LockRequest {
                resource: batch.resource(),
                capacity: capacity?,
                on_conflict: OnConflict::Wait,
            })
        }));
        let wait_for =
            |resource: String, capacity| LockRequest { resource, capacity, on_conflict: OnConflict::Wait };
        let per_site = order.site.zip(self.settings.limits.per_site);
        locks.extend(per_site.map(|(site, capacity)| wait_for(format!("site/{site}"), capacity)));
        locks.extend(order.shared_bmc.map(|address| wait_for(bmc_lock(&address), 1)));
        NewRun {
            id,
            workflow: WORKFLOW.to_owned(),
            workflow_version: VERSION,
            locks,
            server: Some(order.server_serial),
            parent: None,
            purpose: Purpose::Change,
            request,
            priority: order.priority,
            deadline_at: order.deadline.unwrap_or_else(|| {
                now.plus((self.settings.job_timeout + session).saturating_mul(order.rounds.max(1)))
            }),
            created_by: created_by.to_owned(),
            created_at: now,
            input: json!(input),
            plan: Provision::plan(target),
            effects: vec![Effect::JobCreated(Box::new(job))],
            events: vec![event],
        }
    }
}
