//! `redfish.mount.maintenance` and `redfish.mount.task`: an image is in its slot, and a read says so.

use std::sync::Arc;

use redfish::InsertOptions;
use serde_json::json;

use super::super::classify::{failure, from_redfish};
use super::super::outputs::{Built, Discovered, Mounted, Validated};
use super::super::services::Site;
use super::super::slots::Refusal;
use super::super::waits;
use super::iso_build::Use;
use super::slot_fallback::{in_force, next_plan, outdated, refusal};
use super::{Host, bmc_policy, class, discovered_bmc, left, settled, settling, step};
use engine::model::{Artifact, NewEvent};
use engine::{StepContext, StepReport};
use media::{self, Suffix};

step!(
    /// Puts the boot image into its slot.
    MountMaintenance,
    bmc_policy,
    maintenance
);

step!(
    /// Puts the task image into its slot.
    MountTask,
    bmc_policy,
    task
);

async fn maintenance(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.mount.maintenance";
    let validated: Validated = left(STEP, context, "validate")?;
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    if outdated(context, &found) {
        return Ok(StepReport::skipped());
    }
    mount(STEP, site, context, &host, &found, &Image::to_boot(&validated, &found)).await
}

async fn task(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.mount.task";
    let built: Built = left(STEP, context, "iso.build")?;
    let found: Discovered = in_force(&context.snapshot, left(STEP, context, "redfish.discover")?);
    let Some(image) = Image::of_task(&built, &found).filter(|_| !outdated(context, &found)) else {
        return Ok(StepReport::skipped());
    };
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    mount(STEP, site, context, &host, &found, &image).await
}

/// What goes into which slot.
pub(super) struct Image<'a> {
    artifact: Artifact,
    digest: &'a str,
    pub(super) slot: String,
    pub(super) what: &'static str,
}

impl<'a> Image<'a> {
    /// What the machine boots.
    pub(super) fn to_boot(validated: &'a Validated, found: &'a Discovered) -> Self {
        let (digest, what) = match &found.spliced {
            Some(spliced) => (&spliced.identity, "maintenance image with the task in it"),
            None => (&validated.boot_digest, "maintenance image"),
        };
        Self { artifact: Artifact::Boot, digest, slot: found.boot_slot.clone(), what }
    }

    /// The task, where it has a slot of its own.
    pub(super) fn of_task(built: &'a Built, found: &Discovered) -> Option<Self> {
        let slot = found.task_slots.first()?.clone();
        Some(Self { artifact: Artifact::Task, digest: &built.task_digest, slot, what: "task image" })
    }

    /// Where the BMC reads it. Some firmware takes an image for a USB slot by `.img` only.
    pub(super) fn url(
        &self,
        step: &str,
        site: &Site,
        context: &StepContext,
        host: &Host,
        found: &Discovered,
    ) -> Result<String, StepReport> {
        let validated: Validated = left(step, context, "validate")?;
        let unusable = |why: String| {
            StepReport::fail(failure(
                class::MEDIA,
                step,
                why,
                "set MEDIA_BASE_URL to scheme://address[:port], nothing more",
            ))
        };
        let for_use = Use::of(found.plan, found.attempt);
        let token = site
            .media_token_for(context.snapshot.run.id, self.artifact, self.digest, for_use)
            .ok_or_else(|| unusable("the derived grant token is not one".to_owned()))?;
        let slot = found.discovery.slots.iter().find(|slot| slot.uri == self.slot);
        let suffix = match slot.map(|slot| slot.suffix(&host.bmc.profile()) == "img") {
            Some(true) => Suffix::Img,
            _ => Suffix::Iso,
        };
        media::media_url(&validated.media_base, &token, self.artifact, suffix)
            .map_err(|why| unusable(why.to_string()))
    }
}

/// Mounts an image into its slot; when the slot refuses, the report takes the next plan.
async fn mount(
    step: &str,
    site: &Arc<Site>,
    context: &StepContext,
    host: &Host,
    found: &Discovered,
    image: &Image<'_>,
) -> Result<StepReport, StepReport> {
    let url = image.url(step, site, context, host, found)?;
    match mount_into(step, context, host, &image.slot, &url, image.what).await {
        Ok(report) => Ok(host.report(report)),
        Err(Refused::Report(report)) => Err(*report),
        Err(Refused::Definitely(refusal)) => {
            next_plan(step, site, context, host, found, *refusal, image.what).await
        }
    }
}

enum Refused {
    /// This slot does not take this image.
    Definitely(Box<Refusal>),
    /// Anything else, already as a report.
    Report(Box<StepReport>),
}

async fn mount_into(
    step: &str,
    context: &StepContext,
    host: &Host,
    uri: &str,
    url: &str,
    what: &str,
) -> Result<StepReport, Refused> {
    let failed = |error: &redfish::RedfishError| Refused::Report(Box::new(from_redfish(step, error)));
    let sent_before = context.own::<Mounted>().filter(|mounted| mounted.slot == uri && !mounted.refused);
    let looked = match sent_before {
        None => host.bmc.slot_cached(uri).await,
        Some(_) => host.bmc.slot(uri).await,
    };
    let slot = looked.map_err(|error| failed(&error))?;
    // A file name says nothing of which job's image it is, unless this job has put one there.
    if slot.holds(url) || (sent_before.is_some() && slot.may_hold(url)) {
        let sent_at = sent_before.map_or(context.now(), |mounted| mounted.sent_at);
        let mounted = Mounted { slot: uri.to_owned(), sent_at, refused: false, replanned: None };
        return Ok(StepReport::done()
            .leaving(json!(mounted))
            .event(NewEvent::info("redfish.mounted", format!("{what} in slot {}, read back", slot.id))));
    }
    if let Some(mounted) = &sent_before
        && context.now().since(mounted.sent_at) < host.bmc.profile().read_back_lag
    {
        return Ok(waiting(host, mounted, &slot.id, what));
    }
    if !slot.is_empty() {
        host.bmc.eject(uri).await.map_err(|error| failed(&error))?;
    }
    // The intent names the slot before the insert is sent, so that cleanup knows it after a crash.
    let mounted = Mounted { slot: uri.to_owned(), sent_at: context.now(), refused: false, replanned: None };
    context.checkpoint(json!(mounted)).await.map_err(|_lost| Refused::Report(Box::new(lost(step))))?;
    let inserted = host.bmc.insert(uri, url, InsertOptions::default()).await;
    let patient = context.record.attempt < host.tries;
    let inserted = inserted.map_err(|error| match refusal(&error, &slot, patient) {
        Some(refusal) => Refused::Definitely(Box::new(refusal)),
        // A definite no leaves nothing to wait for: the next try sends it again at once.
        None => {
            let refused = Mounted { refused: !error.maybe_applied(), ..mounted.clone() };
            Refused::Report(Box::new(from_redfish(step, &error).leaving(json!(refused))))
        }
    })?;
    if inserted.confirmed {
        return Ok(StepReport::done()
            .leaving(json!(mounted))
            .event(NewEvent::info("redfish.mounted", format!("{what} in slot {}, read back", slot.id))));
    }
    // Waited for once already, and done once more since: this slot only says that it takes images.
    let waited = context.waited.as_ref().is_some_and(|wait| wait.reason == waits::MOUNT.name);
    if waited && sent_before.is_some() {
        let words = "it took the image twice and never showed it".to_owned();
        let (slot, slot_id) = (slot.uri, slot.id);
        return Err(Refused::Definitely(Box::new(Refusal { slot, slot_id, words, one_image: false })));
    }
    Ok(waiting(host, &mounted, &slot.id, what))
}

fn waiting(host: &Host, mounted: &Mounted, slot: &str, what: &str) -> StepReport {
    settling(
        &waits::MOUNT,
        host.bmc.profile().read_back_lag,
        format!("the {what} was inserted into slot {slot}, which does not show it yet"),
    )
    .leaving(json!(mounted))
}

/// The lease is gone; whatever is reported here is not written.
pub(super) fn lost(step: &str) -> StepReport {
    StepReport::new(engine::Verdict::Retry(failure(
        class::TRANSIENT,
        step,
        "the lease was lost",
        "nothing; another worker goes on",
    )))
}
