//! `iso.build`: the task image is planned, its inputs frozen and sealed, its digest recorded, both grants issued.
//!
//! Pure for a given job: the same inputs give the same bytes, tokens and URLs (lock L14), so doing it twice changes nothing.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::super::classify::failure;
use super::super::order::JobInput;
use super::super::outputs::{Built, Validated};
use super::super::services::Site;
use super::super::slots::SlotPlan;
use super::validate::ImageName;
use super::{class, input, left, own_policy, settled, step};
use engine::model::{Artifact, Effect, Grant, NewEvent, RunId, Time};
use engine::{StepContext, StepReport};
use media::{self, Body, JobDocument, MediaToken, PullAccess, RenderInput, TaskImageInput, TaskInputs};
use recipe::{Payload, Recipe};
use secrets::{JOB_USERNAME, seal, token_hash};

const STEP: &str = "iso.build";
/// For which use of an image a grant is: another plan after a refusal, or another try of it, has URLs of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// The slot plan.
    plan: &'static str,
    /// Which try, from 1.
    attempt: u32,
}

impl Use {
    /// The first plan. Both images keep their URLs whatever it is: it is not known yet when they are granted.
    pub(super) const FIRST: Self = Self { plan: "separate", attempt: 1 };

    /// A try of a plan.
    pub(super) fn of(plan: SlotPlan, attempt: u32) -> Self {
        match attempt {
            0 | 1 => Self::FIRST,
            attempt => Self { plan: plan.as_str(), attempt },
        }
    }
}

step!(
    /// Plans the task image and issues the grants.
    IsoBuild,
    own_policy,
    run
);

impl Site {
    /// The token of a job's first grant of an image: derived, so that it is the same after a crash and different for
    /// another image.
    pub fn media_token(&self, job: RunId, artifact: Artifact, digest: &str) -> Option<MediaToken> {
        self.media_token_for(job, artifact, digest, Use::FIRST)
    }

    /// The token of a grant for one use of an image.
    pub(super) fn media_token_for(
        &self,
        job: RunId,
        artifact: Artifact,
        digest: &str,
        for_use: Use,
    ) -> Option<MediaToken> {
        let image = format!("{}:{digest}", artifact.as_str());
        let token = self.tokens.grant_token(&job.to_string(), &image, for_use.plan, for_use.attempt);
        MediaToken::parse(token.expose_secret())
    }
}

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let validated: Validated = left(STEP, context, "validate")?;
    let begun = context.clock.elapsed();
    let TaskImage { frozen, body, pull } = task_of(site, context, &validated)?;
    let digest = frozen.digest().to_hex();
    site.meter.image_built(context.clock.elapsed().saturating_sub(begun), frozen.len());
    let path = match &site.settings.task_iso_dir {
        Some(folder) => Some(write_file(folder, context, &frozen, body.clone()).await?),
        None => None,
    };
    site.grants.keep_recent(&frozen, body);
    let sealed = frozen.to_bytes().map_err(broken)?;
    let task = grant(site, context, Artifact::Task, &digest, Some(&sealed), frozen.len(), Use::FIRST)?;
    let boot =
        grant(site, context, Artifact::Boot, &validated.boot_digest, None, validated.boot_len, Use::FIRST)?;
    let built = Built {
        task_digest: digest.clone(),
        task_grant: task.token_hash.clone(),
        boot_grant: boot.token_hash.clone(),
    };
    let message = format!(
        "task image {} of {} bytes planned, sha256 {}",
        frozen.volume_id(),
        frozen.len(),
        short(&digest)
    );
    let mut report = StepReport::done()
        .leaving(json!(built))
        .event(NewEvent::info("iso.built", message).with(json!({ "sha256": digest, "size": frozen.len() })))
        .effect(Effect::TaskImage { sha256: digest, path })
        .effect(Effect::GrantIssued(Box::new(task)))
        .effect(Effect::GrantIssued(Box::new(boot)));
    if let Some((repository, password)) = pull {
        let token_hash = token_hash(password.expose_secret());
        report = report.effect(Effect::PullGrantIssued { token_hash, repository });
    }
    Ok(report)
}

/// The task image of a job.
pub(crate) struct TaskImage {
    /// What it is made of.
    pub(crate) frozen: TaskInputs,
    /// Its bytes.
    pub(super) body: Body,
    /// The repository its maintenance OS may pull from, and the password in it.
    pull: Option<(String, SecretString)>,
}

/// The task image of a job: pure, the same at every call.
pub(super) fn task_of(
    site: &Site,
    context: &StepContext,
    validated: &Validated,
) -> Result<TaskImage, StepReport> {
    let run = &context.snapshot.run;
    task_image(site, run.id, run.created_at, &input(STEP, context)?, validated)
}

/// The same for any job, also one that is only thought of.
pub(crate) fn task_image(
    site: &Site,
    id: RunId,
    created_at: Time,
    asked: &JobInput,
    validated: &Validated,
) -> Result<TaskImage, StepReport> {
    let recipe = site.schemas.validate(&asked.recipe).map_err(|_| broken("the recipe no longer holds"))?;
    let pull = recipe
        .oci_url
        .as_deref()
        .filter(|_| validated.own_registry)
        .and_then(ImageName::parse)
        .map(|image| (image.repository, site.tokens.pull_password(&id.to_string())));
    let password = pull.as_ref().map(|(_, secret)| secret);
    let document = document(site, (id, created_at), asked, &recipe, validated, password);
    let (frozen, body) = freeze(site, (id, created_at), &recipe, &document)?;
    Ok(TaskImage { frozen, body, pull })
}

/// The right to read one image of this job; what was frozen of it is sealed here.
pub(super) fn grant(
    site: &Site,
    context: &StepContext,
    artifact: Artifact,
    digest: &str,
    frozen: Option<&[u8]>,
    size: u64,
    for_use: Use,
) -> Result<Grant, StepReport> {
    let run = context.snapshot.run.id;
    let token = site
        .media_token_for(run, artifact, digest, for_use)
        .ok_or_else(|| broken("its token is unusable"))?;
    let frozen =
        frozen.map(|bytes| seal(&site.media_key, &grant_context(run), bytes)).transpose().map_err(broken)?;
    Ok(Grant {
        token_hash: token.hash(),
        run,
        artifact,
        frozen,
        sha256: digest.to_owned(),
        size,
        created_at: context.now(),
    })
}

/// What the sealed inputs of a task image are bound to.
pub fn grant_context(run: engine::model::RunId) -> String {
    format!("media-grant/{run}")
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

fn broken(why: impl std::fmt::Display) -> StepReport {
    StepReport::fail(failure(
        class::MEDIA,
        STEP,
        format!("the task image could not be made: {why}"),
        "report it with the recipe (without its secrets)",
    ))
}

fn document(
    site: &Site,
    (id, created_at): (RunId, Time),
    asked: &JobInput,
    recipe: &Recipe,
    validated: &Validated,
    pull_password: Option<&secrecy::SecretString>,
) -> JobDocument {
    let base = &validated.controller_url;
    JobDocument {
        job_id: id.0,
        server_serial: asked.server.to_string(),
        controller_url: base.clone(),
        controller_ca: site.settings.controller_ca.clone(),
        webhook_url: format!("{base}/api/v1/status-webhook/{}", asked.server),
        webhook_token: site.tokens.webhook_token(&id.to_string()).expose_secret().to_owned(),
        registry: pull_password.map(|password| PullAccess {
            url: base.clone(),
            username: JOB_USERNAME.to_owned(),
            password: password.expose_secret().to_owned(),
        }),
        recipe_schema_id: recipe.schema_id.clone(),
        created_at: created_at.timestamp(),
        shoal_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn freeze(
    site: &Site,
    (id, created_at): (RunId, Time),
    recipe: &Recipe,
    document: &JobDocument,
) -> Result<(TaskInputs, Body), StepReport> {
    let schema = site.schemas.text(&recipe.schema_id).ok_or_else(|| broken("its schema is gone"))?;
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
    media::record_inputs_with_body(&TaskImageInput {
        job_id: id.0,
        created_at: created_at.timestamp(),
        files,
        volume_id: recipe.media_label.map(|label| label.as_str().to_owned()),
    })
    .map_err(|why| broken(engine::model::error_chain(&why)))
}

/// Writes the image beside its description (`TASK_ISO_MODE=file`): temporary name, fsync, rename.
async fn write_file(
    folder: &std::path::Path,
    context: &StepContext,
    frozen: &TaskInputs,
    body: Body,
) -> Result<String, StepReport> {
    let id = context.snapshot.run.id;
    let created: Time = context.snapshot.run.created_at;
    let folder = folder.join(id.to_string());
    let frozen = frozen.clone();
    let written = media::offload(move || {
        let path = folder.join("task.iso");
        let description = json!({
            "job_id": id, "path": path, "sha256": frozen.digest().to_hex(), "size_bytes": frozen.len(),
            "volume_id": frozen.volume_id(), "tool": "shoal", "tool_version": env!("CARGO_PKG_VERSION"),
            "source_date_epoch": created.unix_seconds(), "created_at": created,
        });
        media::write_image(&folder, "task.iso", &body)?;
        media::write_bytes(&folder, "task.iso.meta.json", format!("{description:#}\n").as_bytes())?;
        Ok::<_, std::io::Error>(path.to_string_lossy().into_owned())
    })
    .await;
    match written {
        Ok(Ok(path)) => Ok(path),
        Ok(Err(why)) => Err(StepReport::new(engine::Verdict::Retry(failure(
            class::MEDIA,
            STEP,
            format!("the task image could not be written to TASK_ISO_DIR: {why}"),
            "make room there, or set TASK_ISO_MODE=computed",
        )))),
        Err(_panic) => Err(broken("writing it broke off")),
    }
}
