//! `redfish.mount.maintenance` and `redfish.mount.task`: insert an image into its slot and read it back.

use std::sync::Arc;

use super::super::outputs::{Built, Discovered, Validated};
use super::super::services::Services;
use super::iso_build::{GrantUse, media_token_for};
use super::slot_fallback::{Refused, current, is_outdated, next_plan};
use super::{bmc_policy, class, discovered_bmc, names, step};
use bmc::slots::{self, InsertError, Insertion};
use bmc::{ConnectedBmc, failure, output_of};
use engine::{StepContext, StepError, StepReport};
use media::{self, MediaToken, NoTokenSeed, Suffix};
use model::{Artifact, StepName};

step!(
    /// Inserts the boot image into its slot.
    MountMaintenance,
    bmc_policy,
    maintenance
);

step!(
    /// Inserts the task image into its slot.
    MountTask,
    bmc_policy,
    task
);

async fn maintenance(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::MOUNT_MAINTENANCE;
    let validated: Validated = output_of(STEP, context, names::VALIDATE)?;
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    if is_outdated(context, &found) {
        return Ok(StepReport::skipped());
    }
    mount(STEP, services, context, &connected, &found, &SlotImage::to_boot(&validated, &found)).await
}

async fn task(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    const STEP: &StepName = names::MOUNT_TASK;
    let built: Built = output_of(STEP, context, names::ISO_BUILD)?;
    let found: Discovered = current(&context.snapshot, output_of(STEP, context, names::DISCOVER)?);
    let Some(image) = SlotImage::of_task(&built, &found).filter(|_| !is_outdated(context, &found)) else {
        return Ok(StepReport::skipped());
    };
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    mount(STEP, services, context, &connected, &found, &image).await
}

/// An image and the slot it goes into.
pub(super) struct SlotImage<'a> {
    artifact: Artifact,
    digest: &'a str,
    pub(super) slot: String,
    pub(super) what: &'static str,
}

impl<'a> SlotImage<'a> {
    /// Returns the boot image.
    pub(super) fn to_boot(validated: &'a Validated, found: &'a Discovered) -> Self {
        let (digest, what) = match &found.spliced {
            Some(spliced) => (&spliced.identity, "maintenance image with the task in it"),
            None => (&validated.boot_digest, "maintenance image"),
        };
        Self { artifact: Artifact::Boot, digest, slot: found.boot_slot.clone(), what }
    }

    /// Returns the task image, if the slot plan has a slot for it.
    pub(super) fn of_task(built: &'a Built, found: &Discovered) -> Option<Self> {
        let slot = found.task_slots.first()?.clone();
        Some(Self { artifact: Artifact::Task, digest: &built.task_digest, slot, what: "task image" })
    }

    /// Returns the URL of the image. Some firmware accepts an image for a USB slot only with the suffix `.img`.
    pub(super) fn url(
        &self,
        step: &StepName,
        context: &StepContext,
        connected: &ConnectedBmc,
        found: &Discovered,
    ) -> Result<String, StepError> {
        let validated: Validated = output_of(step, context, names::VALIDATE)?;
        let for_use = GrantUse::of(found.plan, found.attempt);
        let token = self.token(context, for_use).map_err(|why| {
            StepError::fail(failure(class::MEDIA, step, why.to_string(), "create the job again"))
        })?;
        let slot = found.discovery.slots.iter().find(|slot| slot.uri == self.slot);
        let suffix = match slot.map(|slot| slot.suffix(&connected.bmc.profile()) == "img") {
            Some(true) => Suffix::Img,
            _ => Suffix::Iso,
        };
        media::media_url(validated.base_for(Some(found)), &token, self.artifact, suffix).map_err(|why| {
            let next = "set MEDIA_BASE_URL to scheme://address[:port], nothing more";
            StepError::fail(failure(class::MEDIA, step, why.to_string(), next))
        })
    }
}

impl SlotImage<'_> {
    fn token(&self, context: &StepContext, for_use: GrantUse) -> Result<MediaToken, NoTokenSeed> {
        media_token_for(&context.snapshot, self.artifact, self.digest, for_use)
    }

    /// Returns the number of bytes that the BMC has read of the image; `None` when it cannot be read.
    async fn bytes_read(
        &self,
        services: &Services,
        context: &StepContext,
        found: &Discovered,
    ) -> Option<u64> {
        let token = self.token(context, GrantUse::of(found.plan, found.attempt)).ok()?;
        Some(services.grants.reads_of(&token.hash()).await.ok()?.bytes)
    }
}

/// Inserts an image into its slot; when the slot refuses, the report selects the next slot plan.
async fn mount(
    step: &StepName,
    services: &Arc<Services>,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    image: &SlotImage<'_>,
) -> Result<StepReport, StepError> {
    let url = image.url(step, context, connected, found)?;
    // The boot image is inserted first.
    let second = image.artifact == Artifact::Task;
    let insertion = Insertion { slot: &image.slot, url: &url, what: image.what, second };
    match slots::insert(step, context, connected, insertion).await {
        Ok(report) => Ok(connected.report(report)),
        Err(InsertError::Step(error)) => Err(error),
        Err(InsertError::Refused(refusal)) => {
            let bytes_read = image.bytes_read(services, context, found).await;
            let refused = Refused { refusal: *refusal, image: image.what, bytes_read };
            next_plan(step, services, context, connected, found, refused).await
        }
    }
}
