//! `redfish.mount.maintenance` and `redfish.mount.task`: an image is in its slot, and a read says so.

use std::sync::Arc;

use redfish::{ErrorKind, InsertOptions};
use serde_json::json;

use super::super::evidence::{Built, Discovered, Mounted, SlotPlan, Validated};
use super::super::fault::{failure, of_redfish};
use super::super::site::Site;
use super::super::waits;
use super::{Host, bmc_policy, class, known_host, left, settled, settling, step};
use crate::engine::{StepContext, StepReport};
use crate::media::{self, Suffix};
use crate::model::{Artifact, NewEvent};

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
    let (host, found) = known_host(STEP, site, context).await?;
    let (digest, what) = match &found.spliced {
        Some(spliced) => (&spliced.identity, "maintenance image with the task in it"),
        None => (&validated.boot_digest, "maintenance image"),
    };
    let url = url(STEP, site, context, &validated, Artifact::Boot, digest)?;
    mount(STEP, context, &host, &[found.boot_slot], &url, what).await.map(|report| host.report(report))
}

async fn task(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    const STEP: &str = "redfish.mount.task";
    let validated: Validated = left(STEP, context, "validate")?;
    let built: Built = left(STEP, context, "iso.build")?;
    let found: Discovered = left(STEP, context, "redfish.discover")?;
    if found.plan == SlotPlan::Single {
        return Ok(StepReport::skipped());
    }
    let (host, found) = known_host(STEP, site, context).await?;
    let url = url(STEP, site, context, &validated, Artifact::Task, &built.task_digest)?;
    mount(STEP, context, &host, &found.task_slots, &url, "task image").await.map(|report| host.report(report))
}

fn url(
    step: &str,
    site: &Site,
    context: &StepContext,
    validated: &Validated,
    artifact: Artifact,
    digest: &str,
) -> Result<String, StepReport> {
    let unusable = |why: String| {
        StepReport::fail(failure(
            class::MEDIA,
            step,
            why,
            "set MEDIA_BASE_URL to scheme://address[:port], nothing more",
        ))
    };
    let token = site
        .media_token(context.snapshot.run.id, artifact, digest)
        .ok_or_else(|| unusable("the derived grant token is not one".to_owned()))?;
    media::media_url(&validated.media_base, &token, artifact, Suffix::Iso)
        .map_err(|why| unusable(why.to_string()))
}

/// Mounts an image into the first of `slots` that takes it; a definite refusal goes on to the next.
async fn mount(
    step: &str,
    context: &StepContext,
    host: &Host,
    slots: &[String],
    url: &str,
    what: &str,
) -> Result<StepReport, StepReport> {
    let mut refusals = Vec::new();
    // A slot that was tried before this call (and is settling) comes first again; those before it have refused.
    let began =
        context.own::<Mounted>().and_then(|mounted| slots.iter().position(|uri| *uri == mounted.slot));
    let slots = &slots[began.unwrap_or(0)..];
    for (place, uri) in slots.iter().enumerate() {
        let last = place + 1 == slots.len();
        match mount_into(step, context, host, uri, url, what).await {
            Ok(mut report) => {
                report.events.splice(0..0, refusals);
                return Ok(report);
            }
            Err(Refused::Definitely(why)) if !last => refusals.push(NewEvent::warn(
                "redfish.mount-refused",
                format!("slot {uri} refused the {what}: {why}; trying the next slot"),
            )),
            Err(Refused::Definitely(why)) => {
                return Err(StepReport::fail(failure(
                    class::BMC_REFUSED,
                    step,
                    format!("the BMC refused the {what}: {why}"),
                    "see whether the BMC can reach the media address shown in the events of validate",
                )));
            }
            Err(Refused::Report(report)) => return Err(*report),
        }
    }
    Err(StepReport::fail(failure(class::UNSUPPORTED, step, "no slot is left", "see the slots of this BMC")))
}

enum Refused {
    /// This slot does not take this image.
    Definitely(String),
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
    let failed = |error: &redfish::RedfishError| match &error.kind {
        ErrorKind::Refused { .. } if !error.maybe_applied() => Refused::Definitely(error.to_string()),
        _ => Refused::Report(Box::new(of_redfish(step, error))),
    };
    let sent_before = context.own::<Mounted>().filter(|mounted| mounted.slot == uri);
    let looked = match sent_before {
        None => host.bmc.slot_lately(uri).await,
        Some(_) => host.bmc.slot(uri).await,
    };
    let slot = looked.map_err(|error| failed(&error))?;
    if slot.holds(url) {
        let sent_at = sent_before.map_or(context.now(), |mounted| mounted.sent_at);
        let mounted = Mounted { slot: uri.to_owned(), sent_at };
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
    let mounted = Mounted { slot: uri.to_owned(), sent_at: context.now() };
    context.checkpoint(json!(mounted)).await.map_err(|_lost| Refused::Report(Box::new(lost(step))))?;
    let inserted =
        host.bmc.insert(uri, url, InsertOptions::default()).await.map_err(|error| failed(&error))?;
    if inserted.confirmed {
        return Ok(StepReport::done()
            .leaving(json!(mounted))
            .event(NewEvent::info("redfish.mounted", format!("{what} in slot {}, read back", slot.id))));
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
    StepReport::new(crate::engine::Verdict::Retry(failure(
        class::TRANSIENT,
        step,
        "the lease was lost",
        "nothing; another worker goes on",
    )))
}
