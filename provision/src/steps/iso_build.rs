//! `iso.build`: plans the task image, seals its inputs, records its digest and issues both grants.
//!
//! Pure for a given job: equal inputs give equal bytes, tokens and URLs (decision D14), so a repetition changes nothing.

use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::super::order::JobInput;
use super::super::outputs::{Built, Validated};
use super::super::services::Services;
use super::validate::ImageName;
use super::{class, input, names, own_policy, recipe, step};
use bmc::slots::SlotPlan;
use bmc::{failure, output_of};
use engine::{StepContext, StepError, StepReport};
use media::{
    self, FormerDisk, ImageBody, ImageUse, JobDocument, MediaToken, NoTokenSeed, OpenOsImage, PullAccess,
    RenderInput, TaskImageInput, TaskInputs,
};
use model::{Artifact, Effect, Grant, NewEvent, PullGrant, RunId, Serial, Snapshot, StepName, Time};
use recipe::{Payload, Recipe};
use secrets::{JOB_USERNAME, JobTokens, token_hash};

const STEP: &StepName = names::ISO_BUILD;
/// The use of an image that a grant is for. Every slot plan attempt after the first has separate URLs.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantUse {
    /// The slot plan.
    plan: &'static str,
    /// The number of the attempt, from 1.
    attempt: u32,
}

impl GrantUse {
    /// The first attempt. The URLs do not depend on its plan, which is not known when the grants are issued.
    pub(super) const FIRST: Self = Self { plan: "separate", attempt: 1 };

    /// Returns the use of a slot plan attempt.
    pub(super) fn of(plan: SlotPlan, attempt: u32) -> Self {
        match attempt {
            0 | 1 => Self::FIRST,
            attempt => Self { plan: plan.as_str(), attempt },
        }
    }

    /// Returns this use of one image.
    fn image(self, artifact: Artifact, digest: &str) -> ImageUse<'_> {
        ImageUse { artifact, digest, slot_plan: self.plan, attempt: self.attempt }
    }
}

step!(
    /// Plans the task image and issues the grants.
    IsoBuild,
    own_policy,
    run
);

impl Services {
    /// Derives the token of a job's first grant of an image.
    ///
    /// # Errors
    /// Returns an error when the input of the job has no seed of its tokens.
    pub fn media_token(
        &self,
        job: &Snapshot,
        artifact: Artifact,
        digest: &str,
    ) -> Result<MediaToken, NoTokenSeed> {
        media_token_for(job, artifact, digest, GrantUse::FIRST)
    }
}

/// Derives the token of a grant for one use of an image. It is equal after a crash or a rotation of a key, and different for
/// another image.
pub(super) fn media_token_for(
    job: &Snapshot,
    artifact: Artifact,
    digest: &str,
    for_use: GrantUse,
) -> Result<MediaToken, NoTokenSeed> {
    Ok(MediaToken::derive(&media::tokens_of(job)?, job.run.id, &for_use.image(artifact, digest)))
}

/// Removes the task images of jobs that `TASK_ISO_MODE=file` wrote to files.
pub async fn remove_task_images(folder: &Path, jobs: &[RunId]) {
    for job in jobs {
        let folder = folder.join(job.to_string());
        match tokio::fs::remove_dir_all(&folder).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "a task image was not removed"),
        }
    }
}

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let validated: Validated = output_of(STEP, context, names::VALIDATE)?;
    let begun = context.clock.elapsed();
    let BuiltTaskImage { inputs, body, pull, .. } = task_of(services, context, &validated).await?;
    let digest = inputs.digest().to_hex();
    services.metrics.image_built(context.clock.elapsed().saturating_sub(begun), inputs.len());
    // An image with an OS image is never stored: its bytes are in the registry.
    let path = match (&services.settings.task_iso_dir, &body) {
        (Some(folder), Some(body)) => Some(write_file(folder, context, &inputs, body.clone()).await?),
        _ => None,
    };
    if let Some(body) = body {
        services.grants.keep_recent(&inputs, body);
    }
    let sealed = inputs.to_bytes().map_err(broken)?;
    let task =
        grant(services, context, Artifact::Task, &digest, Some(&sealed), inputs.len(), GrantUse::FIRST)?;
    let boot = grant(
        services,
        context,
        Artifact::Boot,
        &validated.boot_digest,
        None,
        validated.boot_len,
        GrantUse::FIRST,
    )?;
    let built = Built {
        task_digest: digest.clone(),
        task_grant: task.token_hash.clone(),
        boot_grant: boot.token_hash.clone(),
    };
    let message = format!(
        "task image {} of {} bytes planned, sha256 {}",
        inputs.volume_id(),
        inputs.len(),
        short(&digest)
    );
    let mut report = StepReport::done()
        .with_output(json!(built))
        .event(NewEvent::info("iso.built", message).with(json!({ "sha256": digest, "size": inputs.len() })))
        .effect(Effect::TaskImage { sha256: digest, path })
        .effect(Effect::GrantIssued(Box::new(task)))
        .effect(Effect::GrantIssued(Box::new(boot)));
    if let Some((repository, password)) = pull {
        let token_hash = token_hash(password.expose_secret());
        let pull = PullGrant { token_hash, run: context.snapshot.run.id, repository };
        report = report.effect(Effect::PullGrantIssued(pull));
    }
    Ok(report)
}

/// A planned task image.
pub(crate) struct BuiltTaskImage {
    /// The recorded inputs of the image.
    pub(crate) inputs: TaskInputs,
    /// The bytes of the image; none of an image with an OS image, which is planned again when it is read.
    pub(super) body: Option<ImageBody>,
    /// The OS image with its contents open.
    pub(super) os_image: Option<OpenOsImage>,
    /// The repository the maintenance OS may pull from, and the password in the image.
    pull: Option<(String, SecretString)>,
}

/// Plans the task image of the run; every call returns the same image.
pub(super) async fn task_of(
    services: &Services,
    context: &StepContext,
    validated: &Validated,
) -> Result<BuiltTaskImage, StepError> {
    let run = &context.snapshot.run;
    let JobInput { server, disk_before, .. } = input(STEP, context)?;
    let tokens = media::tokens_of(&context.snapshot).map_err(broken)?;
    let os_image = match &validated.os_image {
        Some(image) => Some(services.grants.open_os_image(image).await.map_err(not_open)?),
        None => None,
    };
    let recipe = recipe(STEP, context)?;
    task_image(
        services,
        (run.id, run.created_at),
        &tokens,
        (&server, disk_before),
        &recipe,
        validated,
        os_image,
    )
}

/// The contents of the OS image cannot be opened.
fn not_open(why: media::GrantError) -> StepError {
    let gone = matches!(why, media::GrantError::OsImage(_));
    let next = "push the OS image to the registry of this controller again, then retry the job";
    let failure = failure(class::MEDIA, STEP, model::error_chain(&why).to_string(), next);
    if gone { StepError::fail(failure) } else { StepError::retry(failure) }
}

/// Plans the task image of any job, also for a dry run.
pub(crate) fn task_image(
    services: &Services,
    (id, created_at): (RunId, Time),
    tokens: &JobTokens,
    machine: (&Serial, Option<FormerDisk>),
    recipe: &Recipe,
    validated: &Validated,
    os_image: Option<OpenOsImage>,
) -> Result<BuiltTaskImage, StepError> {
    let pull = recipe
        .oci_url
        .as_deref()
        .filter(|_| validated.own_registry && os_image.is_none())
        .and_then(ImageName::parse)
        .map(|image| (image.repository, tokens.pull_password(&id.to_string())));
    let id_text = id.to_string();
    let secrets =
        TaskSecrets { webhook: tokens.report_token(&id_text), pull: pull.as_ref().map(|(_, secret)| secret) };
    let document = document(services, (id, created_at), machine, recipe, validated, &secrets);
    let input = image_input(services, (id, created_at), recipe, &document)?;
    let failed = |why| broken(model::error_chain(&why));
    let (inputs, body) = match &os_image {
        Some(os_image) => (media::record_inputs_with_os_image(&input, os_image).map_err(failed)?, None),
        None => {
            let (inputs, body) = media::record_inputs_with_body(&input).map_err(failed)?;
            (inputs, Some(body))
        }
    };
    Ok(BuiltTaskImage { inputs, body, os_image, pull })
}

/// Builds the grant of one image of this job and seals its recorded inputs.
pub(super) fn grant(
    services: &Services,
    context: &StepContext,
    artifact: Artifact,
    digest: &str,
    inputs: Option<&[u8]>,
    size: u64,
    for_use: GrantUse,
) -> Result<Grant, StepError> {
    let image = for_use.image(artifact, digest);
    let token = media_token_for(&context.snapshot, artifact, digest, for_use).map_err(broken)?;
    services
        .grants
        .issue(&token, context.snapshot.run.id, &image, size, inputs, context.now())
        .map_err(broken)
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

fn broken(why: impl std::fmt::Display) -> StepError {
    StepError::fail(failure(
        class::MEDIA,
        STEP,
        format!("the task image could not be built: {why}"),
        "report it with the recipe (without its secrets)",
    ))
}

/// The secrets in a task image.
struct TaskSecrets<'a> {
    webhook: SecretString,
    pull: Option<&'a SecretString>,
}

fn document(
    services: &Services,
    (id, created_at): (RunId, Time),
    (serial, disk_before): (&Serial, Option<FormerDisk>),
    recipe: &Recipe,
    validated: &Validated,
    secrets: &TaskSecrets<'_>,
) -> JobDocument {
    let base = &validated.controller_url;
    JobDocument {
        job_id: id.0,
        server_serial: serial.to_string(),
        controller_url: base.clone(),
        controller_ca: base.starts_with("https:").then(|| (services.settings.controller_ca)()).flatten(),
        webhook_url: format!("{base}/api/v1/status-webhook/{serial}"),
        webhook_token: secrets.webhook.expose_secret().to_owned(),
        registry: secrets.pull.map(|password| PullAccess {
            url: base.clone(),
            username: JOB_USERNAME.to_owned(),
            password: password.expose_secret().to_owned(),
        }),
        // The types of a recipe can always be written as JSON.
        network: recipe.network.as_ref().and_then(|network| serde_json::to_value(network).ok()),
        disk_before,
        recipe_schema_id: recipe.schema_id.clone(),
        created_at: created_at.timestamp(),
        shoal_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn image_input(
    services: &Services,
    (id, created_at): (RunId, Time),
    recipe: &Recipe,
    document: &JobDocument,
) -> Result<TaskImageInput, StepError> {
    let schema = services.schemas.text(&recipe.schema_id).ok_or_else(|| broken("its schema is gone"))?;
    let bytes = |payload: &Option<Payload>| payload.as_ref().map(|payload| payload.as_bytes().to_vec());
    let (user_data, network_config, vendor_data) =
        (bytes(&recipe.user_data), bytes(&recipe.network_config), bytes(&recipe.vendor_data));
    let (unattend_xml, ks_cfg) = (bytes(&recipe.unattend_xml), bytes(&recipe.ks_cfg));
    let files = media::render(&RenderInput {
        job: document,
        recipe: recipe.raw.as_bytes(),
        recipe_schema: schema.as_bytes(),
        user_data: user_data.as_deref(),
        network_config: network_config.as_deref(),
        vendor_data: vendor_data.as_deref(),
        unattend_xml: unattend_xml.as_deref(),
        ks_cfg: ks_cfg.as_deref(),
    })
    .map_err(broken)?;
    Ok(TaskImageInput {
        job_id: id.0,
        created_at: created_at.timestamp(),
        files,
        volume_id: recipe.media_label.map(|label| label.as_str().to_owned()),
    })
}

/// Writes the image and its description (`TASK_ISO_MODE=file`): temporary name, fsync, rename.
async fn write_file(
    folder: &std::path::Path,
    context: &StepContext,
    inputs: &TaskInputs,
    body: ImageBody,
) -> Result<String, StepError> {
    let id = context.snapshot.run.id;
    let created: Time = context.snapshot.run.created_at;
    let folder = folder.join(id.to_string());
    let inputs = inputs.clone();
    let written = media::offload(move || {
        let path = folder.join("task.iso");
        let description = json!({
            "job_id": id, "path": path, "sha256": inputs.digest().to_hex(), "size_bytes": inputs.len(),
            "volume_id": inputs.volume_id(), "tool": "shoal", "tool_version": env!("CARGO_PKG_VERSION"),
            "source_date_epoch": created.unix_seconds(), "created_at": created,
        });
        media::write_image(&folder, "task.iso", &body)?;
        media::write_bytes(&folder, "task.iso.meta.json", format!("{description:#}\n").as_bytes())?;
        Ok::<_, std::io::Error>(path.to_string_lossy().into_owned())
    })
    .await;
    match written {
        Ok(Ok(path)) => Ok(path),
        Ok(Err(why)) => Err(StepError::retry(failure(
            class::MEDIA,
            STEP,
            format!("the task image could not be written to TASK_ISO_DIR: {why}"),
            "make room there, or set TASK_ISO_MODE=computed",
        ))),
        Err(_panic) => Err(broken("writing it panicked")),
    }
}
