//! What a job would do, without doing it: nothing is written, nothing is sent to a BMC, no image is imported.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::order::{JobInput, JobOrder, OrderError};
use super::outputs::Validated;
use super::services::Site;
use super::steps::{ImageName, TaskImage, bmc_address, task_image};
use engine::model::{Effect, NewRun, RunId, Server, Snapshot, Stage, Time};
use engine::{Kind, StepPolicy, Verdict};
use recipe::Lint;

/// One step as it would be carried out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// Towards the goal, or after every ending.
    pub stage: Stage,
    /// Its name.
    pub step: String,
    /// How long all its tries may take, in seconds.
    pub budget_s: u64,
    /// How long one call may take, in seconds.
    pub call_s: u64,
    /// How long it may wait, in seconds, where that was set.
    pub wait_s: Option<u64>,
    /// How often it is tried.
    pub attempts: u32,
    /// Whether a cancel interrupts it.
    pub interruptible: bool,
}

/// An image as it would be made or used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedImage {
    /// Where it comes from, without what may be a signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Its digest, if it is known.
    pub sha256: Option<String>,
    /// Its length in bytes, if it is known.
    pub size: Option<u64>,
}

/// What a job would do.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// The run that would be made.
    pub run: NewRun,
    /// Its steps, in order.
    pub steps: Vec<PlannedStep>,
    /// The slot plan of the server's last discovery.
    pub slot_plan: Option<Value>,
    /// The task image of a job made now under this id. Its digest differs from job to job: the job's id is in it.
    pub task_image: PlannedImage,
    /// The maintenance image.
    pub maintenance_image: PlannedImage,
    /// Whether our registry holds the OS image; `None` when the recipe names none.
    pub os_image_held: Option<bool>,
    /// What is unwise about the recipe, though valid.
    pub lints: Vec<Lint>,
    /// What the job would fail of as things stand, in sentences.
    pub blocked_by: Vec<String>,
}

impl Site {
    /// What an order would come to.
    ///
    /// # Errors
    /// When the order would be refused for what it says.
    pub async fn dry_run(
        &self,
        kind: &dyn Kind,
        order: JobOrder,
        server: &Server,
        by: &str,
        now: Time,
    ) -> Result<DryRun, OrderError> {
        let ready = self.accept(order, RunId::new(), by, now)?;
        let run = ready.run;
        let mut blocked_by = Vec::new();
        let location = run.effects.iter().find_map(|effect| match effect {
            Effect::JobCreated(job) => Some(job.maintenance_iso_url.clone()),
            _ => None,
        });
        let location = location.unwrap_or_default();
        let known = self.library.known(&location);
        let (task_image, os_image_held) = match self.preview(&run, server, &known, now).await {
            Ok(thought) => thought,
            Err(why) => {
                blocked_by.push(why);
                (PlannedImage { location: None, sha256: None, size: None }, None)
            }
        };
        if os_image_held == Some(false) {
            blocked_by.push(
                "our registry does not hold the OS image of the recipe; unless it is elsewhere, push it"
                    .to_owned(),
            );
        }
        Ok(DryRun {
            steps: steps(kind, &run, now),
            slot_plan: server.observed.as_ref().and_then(|observed| observed.get("slot_plan").cloned()),
            task_image,
            maintenance_image: PlannedImage {
                location: Some(location.split('?').next().unwrap_or_default().to_owned()),
                sha256: known.as_ref().map(|image| image.digest.to_hex()),
                size: known.as_ref().map(|image| image.len),
            },
            os_image_held,
            lints: ready.lints,
            blocked_by,
            run,
        })
    }

    /// The task image of a run that is only thought of, and whether our registry holds its OS image.
    async fn preview(
        &self,
        run: &NewRun,
        server: &Server,
        known: &Option<media::ImportedImage>,
        now: Time,
    ) -> Result<(PlannedImage, Option<bool>), String> {
        let asked: JobInput = JobInput::deserialize(&run.input).map_err(|why| why.to_string())?;
        let recipe =
            self.schemas.validate(&asked.recipe).map_err(|_| "the recipe no longer holds".to_owned())?;
        let held =
            match recipe.oci_url.as_deref().filter(|_| self.settings.registry).and_then(ImageName::parse) {
                Some(image) => {
                    let held = self.images.holds(&image.repository, &image.reference).await;
                    Some(held.map_err(|why| why.to_string())?)
                }
                None => None,
            };
        let bmc = bmc_address(server).await?;
        let validated = Validated {
            controller_url: self.addresses.controller_for(bmc)?,
            media_base: self.addresses.media_for(server, bmc)?,
            boot_digest: known.as_ref().map(|image| image.digest.to_hex()).unwrap_or_default(),
            boot_len: known.as_ref().map_or(0, |image| image.len),
            own_registry: held == Some(true),
        };
        let TaskImage { frozen, .. } =
            task_image(self, run.id, now, &asked, &validated).map_err(|report| match report.verdict {
                Verdict::Fail(failure) | Verdict::Retry(failure) => failure.summary,
                _ => "the task image could not be made".to_owned(),
            })?;
        let image =
            PlannedImage { location: None, sha256: Some(frozen.digest().to_hex()), size: Some(frozen.len()) };
        Ok((image, held))
    }
}

fn steps(kind: &dyn Kind, new: &NewRun, now: Time) -> Vec<PlannedStep> {
    let snapshot = Snapshot::new(new, now);
    let stage = |stage: Stage, instances: &[engine::model::StepInstance]| {
        instances
            .iter()
            .map(|instance| {
                let policy: StepPolicy = kind.policy(&instance.name, &snapshot);
                let StepPolicy { call, budget, attempts, wait, interruptible, .. } = policy;
                PlannedStep {
                    stage,
                    step: instance.name.clone(),
                    budget_s: budget.as_secs(),
                    call_s: call.as_secs(),
                    wait_s: wait.as_ref().map(Duration::as_secs),
                    attempts,
                    interruptible,
                }
            })
            .collect::<Vec<_>>()
    };
    [stage(Stage::Forward, &new.plan.forward), stage(Stage::Finish, &new.plan.finish)].concat()
}
