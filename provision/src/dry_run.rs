//! The preview of a job. A dry run writes nothing, sends nothing to a BMC and imports no image.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::order::{JobOrder, OrderError};
use super::outputs::Validated;
use super::services::Services;
use super::steps::{BuiltTaskImage, ImageName, task_image};
use bmc::bmc_address;
use engine::{StepPolicy, Workflow};
use model::{Effect, NewRun, RunId, Server, Snapshot, Stage, StepName, Time};
use recipe::{Delivery, Lint, Recipe};

/// One step of the preview.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The stage: forward, or finish.
    pub stage: Stage,
    /// The name of the step.
    pub step: StepName,
    /// Time limit of all attempts together, in seconds.
    pub budget_s: u64,
    /// Time limit of one call, in seconds.
    pub call_s: u64,
    /// Time limit of waits, in seconds, if one is set.
    pub wait_s: Option<u64>,
    /// Maximum number of attempts.
    pub attempts: u32,
    /// Whether a cancel request interrupts the step.
    pub interruptible: bool,
}

/// An image that the job would build or use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedImage {
    /// The source of the image, without the query, which may be a signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The digest, if known.
    pub sha256: Option<String>,
    /// The length in bytes, if known.
    pub size: Option<u64>,
}

/// The preview of a job.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// The run that would be created.
    pub run: NewRun,
    /// The steps in order.
    pub steps: Vec<PlannedStep>,
    /// The slot plan of the server's last discovery.
    pub slot_plan: Option<Value>,
    /// The task image of this job id. Every job has another digest because the image contains the job id.
    pub task_image: PlannedImage,
    /// The maintenance image.
    pub maintenance_image: PlannedImage,
    /// Whether this controller's registry holds the OS image; `None` when the recipe names none.
    pub os_image_held: Option<bool>,
    /// Advice about the valid recipe.
    pub lints: Vec<Lint>,
    /// The reasons, as sentences, why the job would fail now.
    pub blocked_by: Vec<String>,
}

impl Services {
    /// Returns the preview of the job an order would create.
    ///
    /// # Errors
    /// Returns the error with which the order would be refused.
    pub async fn dry_run(
        &self,
        workflow: &dyn Workflow,
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
        let (task_image, os_image_held) = match self.preview(&run, &ready.recipe, server, &known, now).await {
            Ok(preview) => preview,
            Err(why) => {
                blocked_by.push(why);
                (PlannedImage { location: None, sha256: None, size: None }, None)
            }
        };
        if os_image_held == Some(false) {
            blocked_by.push(
                "the registry of this controller does not hold the OS image of the recipe; push it, unless another registry holds it"
                    .to_owned(),
            );
        }
        Ok(DryRun {
            steps: self.planned_steps(workflow, &run, &ready.recipe, now),
            slot_plan: server.observed.as_ref().and_then(|observed| observed.get("slot_plan").cloned()),
            task_image,
            maintenance_image: PlannedImage {
                location: Some(media::shown_location(&location)),
                sha256: known.as_ref().map(|image| image.digest.to_hex()),
                size: known.as_ref().map(|image| image.len),
            },
            os_image_held,
            lints: ready.lints,
            blocked_by,
            run,
        })
    }

    /// Plans the task image of a run that does not exist, and looks up its OS image in the registry.
    async fn preview(
        &self,
        run: &NewRun,
        recipe: &Recipe,
        server: &Server,
        known: &Option<media::ImportedImage>,
        now: Time,
    ) -> Result<(PlannedImage, Option<bool>), String> {
        let os_image = match recipe.delivery {
            Delivery::Network => None,
            Delivery::Media => {
                let (_, image) = self.medium_image(recipe).await.map_err(|why| why.to_string())??;
                Some(image)
            }
        };
        let held =
            match recipe.oci_url.as_deref().filter(|_| self.settings.registry).and_then(ImageName::parse) {
                Some(image) => {
                    let held = self.images.holds(&image.repository, &image.reference).await;
                    Some(held.map_err(|why| why.to_string())?)
                }
                None => None,
            };
        let bmc = bmc_address(server).await?;
        let bases = self.bmc.addresses.media_for(server, bmc)?;
        let validated = Validated {
            controller_url: self.bmc.addresses.controller_for(bmc)?,
            media_base: bases.first,
            secure_media_base: bases.secure,
            boot_digest: known.as_ref().map(|image| image.digest.to_hex()).unwrap_or_default(),
            boot_len: known.as_ref().map_or(0, |image| image.len),
            own_registry: held == Some(true),
            os_image,
        };
        let open = match &validated.os_image {
            Some(image) => {
                let opened = self.grants.open_os_image(image).await;
                Some(opened.map_err(|why| model::error_chain(&why).to_string())?)
            }
            None => None,
        };
        let tokens = media::tokens_of(&Snapshot::new(run, now)).map_err(|why| why.to_string())?;
        let BuiltTaskImage { inputs, .. } =
            task_image(self, (run.id, now), &tokens, (&server.serial, None), recipe, &validated, open)
                .map_err(|error| error.to_string())?;
        let image =
            PlannedImage { location: None, sha256: Some(inputs.digest().to_hex()), size: Some(inputs.len()) };
        Ok((image, held))
    }

    fn planned_steps(
        &self,
        workflow: &dyn Workflow,
        new: &NewRun,
        recipe: &Recipe,
        now: Time,
    ) -> Vec<PlannedStep> {
        let snapshot = Snapshot::new(new, now);
        let stage = |stage: Stage, instances: &[model::StepInstance]| {
            instances
                .iter()
                .map(|instance| {
                    let policy: StepPolicy = workflow.policy(&instance.name, &snapshot);
                    let StepPolicy { call, budget, attempts, wait, interruptible, .. } = policy;
                    let installs = self.installs_within(&instance.name, Some(recipe));
                    let wait = wait.or(installs.map(|within| within.min(new.deadline_at.since(now))));
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
}
