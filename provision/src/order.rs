//! Taking an order: from what a client asks for to a run that could be made, or every reason why not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::services::Site;
use super::{KIND, Provision, VERSION, cannot_report};
use engine::Refusal;
use engine::model::{
    BatchId, Effect, Job, LockRequest, NewEvent, NewJob, NewRun, OnConflict, RunId, Serial, Time,
};
use recipe::{FieldError, Lint, Recipe};
use secrets::token_hash;

/// What a client asks for; also a run's input, and what another workflow orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobOrder {
    /// The server to install.
    pub server_serial: Serial,
    /// The recipe, byte for byte as submitted.
    pub recipe: String,
    /// The maintenance ISO, when it is not the controller's.
    #[serde(default)]
    pub maintenance_iso_url: Option<String>,
    /// Operator's labels.
    #[serde(default)]
    pub labels: Value,
    /// Larger goes first.
    #[serde(default)]
    pub priority: i32,
    /// The caller's idempotency key.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request, to tell a replay from another request under the same key.
    #[serde(default)]
    pub request_sha256: String,
    /// The ended job this one tries again.
    #[serde(default)]
    pub retry_of: Option<RunId>,
    /// The batch it belongs to, and how many of that may work at once.
    #[serde(default)]
    pub batch: Option<(BatchId, Option<u32>)>,
    /// When it must have an outcome, if not after the controller's usual time.
    #[serde(default)]
    pub deadline: Option<Time>,
    /// How long steps may take, in seconds, if not as usual.
    #[serde(default)]
    pub timeouts: BTreeMap<String, u64>,
    /// The site of the server (its label), when it is known.
    #[serde(default)]
    pub site: Option<String>,
    /// The server's BMC, when other servers are registered with it too.
    #[serde(default)]
    pub shared_bmc: Option<String>,
}

impl JobOrder {
    /// The order that asks once more for what an ended job was asked for.
    ///
    /// # Errors
    /// When the job's input is not one this program wrote.
    pub fn again(job: &Job, input: &Value, idempotency_key: Option<String>) -> Result<Self, Refusal> {
        let input: JobInput = JobInput::deserialize(input)
            .map_err(|why| Refusal(format!("the order of job {} cannot be read: {why}", job.run.id)))?;
        Ok(Self {
            server_serial: input.server,
            recipe: input.recipe,
            maintenance_iso_url: Some(input.maintenance_iso_url),
            labels: job.labels.clone(),
            priority: job.run.priority,
            idempotency_key,
            request_sha256: format!("retry of {}", job.run.id),
            retry_of: Some(job.run.id),
            batch: None,
            deadline: None,
            timeouts: input.timeouts,
            site: None,
            shared_bmc: None,
        })
    }
}

/// An order that can be made a run.
#[derive(Clone, Debug)]
pub struct ReadyOrder {
    /// The run.
    pub run: NewRun,
    /// What is unwise about the recipe, though valid.
    pub lints: Vec<Lint>,
}

/// Why an order is refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OrderError {
    /// The recipe does not hold.
    #[error("the recipe has {} error(s)", .0.len())]
    Recipe(Vec<FieldError>),
    /// There is no maintenance ISO to boot.
    #[error(
        "no maintenance ISO: set MAINTENANCE_ISO_URL on the controller or give maintenance_iso_url with the job"
    )]
    NoMaintenanceIso,
    /// There is no installer to boot.
    #[error(
        "no ESXi installer: set ESXI_INSTALLER_URL on the controller or give maintenance_iso_url with the job; the \
         maintenance ISO does not install ESXi"
    )]
    NoInstaller,
    /// Its location cannot be used.
    #[error("{0}")]
    MaintenanceIso(String),
    /// It could only fail.
    #[error("the deadline has passed already")]
    DeadlinePassed,
}

/// A location the library can import from, without credentials: it is stored and shown.
fn checked_location(location: &str) -> Result<(), String> {
    if location.starts_with('/') {
        return Ok(());
    }
    let url =
        url::Url::parse(location).map_err(|why| format!("not an absolute path and not a URL: {why}"))?;
    match url.scheme() {
        "file" | "http" | "https" if url.username().is_empty() && url.password().is_none() => Ok(()),
        "file" | "http" | "https" => {
            Err("credentials do not belong into this URL: it is stored and shown".to_owned())
        }
        other => {
            Err(format!("{other}: is not imported from; give an absolute path, a file:, http: or https: URL"))
        }
    }
}

/// What is stored as a run's input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobInput {
    pub(super) server: Serial,
    pub(super) recipe: String,
    pub(super) maintenance_iso_url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) timeouts: BTreeMap<String, u64>,
}

impl Site {
    /// Checks an order and makes the run that would carry it out. Pure but for the derivation of the job's token.
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
        let (usual, missing) = match cannot_report(recipe.task_target) {
            true => (&self.settings.esxi_installer_url, OrderError::NoInstaller),
            false => (&self.settings.maintenance_iso_url, OrderError::NoMaintenanceIso),
        };
        let maintenance_iso_url =
            order.maintenance_iso_url.clone().or_else(|| usual.clone()).ok_or(missing)?;
        if order.maintenance_iso_url.is_some() {
            checked_location(&maintenance_iso_url).map_err(OrderError::MaintenanceIso)?;
        }
        let lints = recipe.lints();
        let run = self.run_of(order, recipe, maintenance_iso_url, id, created_by, now);
        Ok(ReadyOrder { run, lints })
    }

    fn run_of(
        &self,
        order: JobOrder,
        recipe: Recipe,
        maintenance_iso_url: String,
        id: RunId,
        created_by: &str,
        now: Time,
    ) -> NewRun {
        let target = recipe.task_target;
        let token = self.tokens.webhook_token(&id.to_string());
        let job = NewJob {
            server: order.server_serial.clone(),
            recipe_json: recipe.raw.clone(),
            recipe_schema_id: recipe.schema_id.clone(),
            request_sha256: order.request_sha256,
            idempotency_key: order.idempotency_key,
            retry_of: order.retry_of,
            batch: order.batch.map(|(id, _)| id),
            maintenance_iso_url: maintenance_iso_url.clone(),
            webhook_token_hash: token_hash(secrecy::ExposeSecret::expose_secret(&token)),
            labels: if order.labels.is_object() { order.labels } else { json!({}) },
        };
        let event = NewEvent::info(
            "job.created",
            format!("{} for {} accepted", recipe.task_target, order.server_serial),
        )
        .by(created_by)
        .with(recipe.summary());
        let input = JobInput {
            server: order.server_serial.clone(),
            recipe: recipe.raw,
            maintenance_iso_url,
            timeouts: order.timeouts,
        };
        let mut locks = vec![LockRequest {
            resource: format!("server/{}", order.server_serial),
            places: 1,
            on_conflict: OnConflict::Refuse,
        }];
        locks.extend(order.batch.and_then(|(batch, places)| {
            Some(LockRequest { resource: batch.resource(), places: places?, on_conflict: OnConflict::Wait })
        }));
        let line = |resource: String, places| LockRequest { resource, places, on_conflict: OnConflict::Wait };
        let per_site = order.site.zip(self.settings.limits.per_site);
        locks.extend(per_site.map(|(site, places)| line(format!("site/{site}"), places)));
        locks.extend(order.shared_bmc.map(|address| line(format!("bmc/{address}"), 1)));
        NewRun {
            id,
            kind: KIND.to_owned(),
            kind_version: VERSION,
            locks,
            server: Some(order.server_serial),
            parent: None,
            priority: order.priority,
            deadline_at: order.deadline.unwrap_or_else(|| now.plus(self.settings.job_timeout)),
            created_by: created_by.to_owned(),
            created_at: now,
            input: json!(input),
            plan: Provision::plan(target),
            effects: vec![Effect::JobCreated(Box::new(job))],
            events: vec![event],
        }
    }
}
