//! `redfish.mount.maintenance` and `redfish.mount.task`: insert an image into its slot and read it back.

use std::sync::Arc;

use redfish::InsertOptions;
use serde_json::json;

use super::super::classify::{failure, from_redfish};
use super::super::outputs::{Built, Discovered, Mounted, Validated};
use super::super::services::Services;
use super::super::slots::SlotRefusal;
use super::super::waits;
use super::iso_build::GrantUse;
use super::slot_fallback::{current, is_outdated, next_plan, refusal};
use super::{ConnectedBmc, bmc_policy, class, discovered_bmc, into_report, output_of, step, wait_for_bmc};
use engine::model::{Artifact, NewEvent};
use engine::{StepContext, StepReport};
use media::{self, Suffix};

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

async fn maintenance(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.mount.maintenance";
    let validated: Validated = output_of(STEP, context, "validate")?;
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    if is_outdated(context, &found) {
        return Ok(StepReport::skipped());
    }
    mount(STEP, services, context, &connected, &found, &SlotImage::to_boot(&validated, &found)).await
}

async fn task(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.mount.task";
    let built: Built = output_of(STEP, context, "iso.build")?;
    let found: Discovered = current(&context.snapshot, output_of(STEP, context, "redfish.discover")?);
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
        step: &str,
        services: &Services,
        context: &StepContext,
        connected: &ConnectedBmc,
        found: &Discovered,
    ) -> Result<String, StepReport> {
        let validated: Validated = output_of(step, context, "validate")?;
        let unusable = |why: String| {
            StepReport::fail(failure(
                class::MEDIA,
                step,
                why,
                "set MEDIA_BASE_URL to scheme://address[:port], nothing more",
            ))
        };
        let for_use = GrantUse::of(found.plan, found.attempt);
        let token = services
            .media_token_for(context.snapshot.run.id, self.artifact, self.digest, for_use)
            .ok_or_else(|| unusable("the derived media token is invalid".to_owned()))?;
        let slot = found.discovery.slots.iter().find(|slot| slot.uri == self.slot);
        let suffix = match slot.map(|slot| slot.suffix(&connected.bmc.profile()) == "img") {
            Some(true) => Suffix::Img,
            _ => Suffix::Iso,
        };
        media::media_url(&validated.media_base, &token, self.artifact, suffix)
            .map_err(|why| unusable(why.to_string()))
    }
}

/// Inserts an image into its slot; when the slot refuses, the report selects the next slot plan.
async fn mount(
    step: &str,
    services: &Arc<Services>,
    context: &StepContext,
    connected: &ConnectedBmc,
    found: &Discovered,
    image: &SlotImage<'_>,
) -> Result<StepReport, StepReport> {
    let url = image.url(step, services, context, connected, found)?;
    match mount_into(step, context, connected, &image.slot, &url, image.what).await {
        Ok(report) => Ok(connected.report(report)),
        Err(InsertRefusal::Report(report)) => Err(*report),
        Err(InsertRefusal::Definitely(refusal)) => {
            next_plan(step, services, context, connected, found, *refusal, image.what).await
        }
    }
}

enum InsertRefusal {
    /// The slot refused the image.
    Definitely(Box<SlotRefusal>),
    /// Any other error, as a report.
    Report(Box<StepReport>),
}

async fn mount_into(
    step: &str,
    context: &StepContext,
    connected: &ConnectedBmc,
    uri: &str,
    url: &str,
    what: &str,
) -> Result<StepReport, InsertRefusal> {
    let failed = |error: &redfish::RedfishError| InsertRefusal::Report(Box::new(from_redfish(step, error)));
    let sent_before =
        context.own_output::<Mounted>().filter(|mounted| mounted.slot == uri && !mounted.refused);
    let read = match sent_before {
        None => connected.bmc.slot_cached(uri).await,
        Some(_) => connected.bmc.slot(uri).await,
    };
    let slot = read.map_err(|error| failed(&error))?;
    // A bare file name identifies no job, unless this job has inserted an image into the slot.
    if slot.holds(url) || (sent_before.is_some() && slot.may_hold(url)) {
        let sent_at = sent_before.map_or(context.now(), |mounted| mounted.sent_at);
        let mounted = Mounted { slot: uri.to_owned(), sent_at, refused: false, slot_fallback: None };
        return Ok(StepReport::done()
            .with_output(json!(mounted))
            .event(NewEvent::info("redfish.mounted", format!("{what} in slot {}, read back", slot.id))));
    }
    if let Some(mounted) = &sent_before
        && context.now().since(mounted.sent_at) < connected.bmc.profile().read_back_lag
    {
        return Ok(wait_for_image(connected, mounted, &slot.id, what));
    }
    if !slot.is_empty() {
        connected.bmc.eject(uri).await.map_err(|error| failed(&error))?;
    }
    // The checkpoint names the slot before the insert is sent, so that cleanup knows the slot after a crash.
    let mounted =
        Mounted { slot: uri.to_owned(), sent_at: context.now(), refused: false, slot_fallback: None };
    context
        .checkpoint(json!(mounted))
        .await
        .map_err(|_lost| InsertRefusal::Report(Box::new(lease_lost(step))))?;
    let inserted = connected.bmc.insert(uri, url, InsertOptions::default()).await;
    let retry_left = context.record.attempt < connected.tries;
    let inserted = inserted.map_err(|error| match refusal(&error, &slot, retry_left) {
        Some(refusal) => InsertRefusal::Definitely(Box::new(refusal)),
        // After a definite refusal there is nothing to wait for: the next attempt sends the insert at once.
        None => {
            let refused = Mounted { refused: !error.maybe_applied(), ..mounted.clone() };
            InsertRefusal::Report(Box::new(from_redfish(step, &error).with_output(json!(refused))))
        }
    })?;
    if inserted.confirmed {
        return Ok(StepReport::done()
            .with_output(json!(mounted))
            .event(NewEvent::info("redfish.mounted", format!("{what} in slot {}, read back", slot.id))));
    }
    // Two inserts and a wait in between without effect: the slot accepts images but never shows one.
    let waited = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::MOUNT.name);
    if waited && sent_before.is_some() {
        let words = "it accepted the image twice and never showed it".to_owned();
        let (slot, slot_id) = (slot.uri, slot.id);
        return Err(InsertRefusal::Definitely(Box::new(SlotRefusal {
            slot,
            slot_id,
            words,
            one_image: false,
        })));
    }
    Ok(wait_for_image(connected, &mounted, &slot.id, what))
}

fn wait_for_image(connected: &ConnectedBmc, mounted: &Mounted, slot: &str, what: &str) -> StepReport {
    wait_for_bmc(
        &waits::MOUNT,
        connected.bmc.profile().read_back_lag,
        format!("the {what} was inserted into slot {slot}, which does not show it yet"),
    )
    .with_output(json!(mounted))
}

/// Builds the report after the lease was lost; the engine does not commit it.
pub(super) fn lease_lost(step: &str) -> StepReport {
    StepReport::new(engine::StepOutcome::Retry(failure(
        class::TRANSIENT,
        step,
        "the lease was lost",
        "nothing; another worker continues the job",
    )))
}
