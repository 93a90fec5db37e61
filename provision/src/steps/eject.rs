//! `redfish.eject`: the chosen slots are empty before anything goes in. Media of an earlier job may look right and be dead.

use std::sync::Arc;

use redfish::{ErrorKind, Slot};

use super::super::classify::from_redfish;
use super::super::services::Site;
use super::super::waits;
use super::cleanup::{filled, owed};
use super::{Host, bmc_policy, discovered_bmc, settled, settling, step};
use engine::model::NewEvent;
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.eject";

step!(
    /// Empties the slots this job is going to use.
    Eject,
    bmc_policy,
    run
);

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let mut report = StepReport::done();
    // What this job has filled under an earlier plan goes too.
    let mut slots = filled(&context.snapshot);
    slots.extend(std::iter::once(&found.boot_slot).chain(&found.task_slots).cloned());
    // And what an earlier job could not empty, as far as there still is such a slot.
    slots.extend(
        owed(&host.server)
            .into_iter()
            .filter(|uri| found.discovery.slots.iter().any(|slot| slot.uri == *uri)),
    );
    slots.sort();
    slots.dedup();
    for uri in &slots {
        let looked = match context.waited.is_none() && !context.reentered {
            // Discovery has read it a moment ago, and who mounts reads it again.
            true => host.bmc.slot_cached(uri).await,
            false => host.bmc.slot(uri).await,
        };
        let slot = looked.map_err(|error| from_redfish(STEP, &error))?;
        if slot.is_empty() {
            continue;
        }
        if let Some(waiting) = empty(STEP, context, &host, &slot).await? {
            return Ok(waiting);
        }
        report = report.event(NewEvent::info(
            "redfish.ejected",
            format!("slot {} held a medium; ejected and read back", slot.id),
        ));
    }
    Ok(host.report(report))
}

/// Ejects what a slot shows; answers a wait while a read does not show it empty.
///
/// A refusal after a wait is no failure: a BMC that shows its slots late refuses to do what is done.
pub(super) async fn empty(
    step: &str,
    context: &StepContext,
    host: &Host,
    slot: &Slot,
) -> Result<Option<StepReport>, StepReport> {
    let told = context.waited.as_ref().is_some_and(|wait| wait.reason == waits::EJECT.name);
    match host.bmc.eject(&slot.uri).await {
        Ok(ejected) if ejected.confirmed => return Ok(None),
        Ok(_) => {}
        Err(error) if told && matches!(error.kind, ErrorKind::Refused { .. }) => {}
        Err(error) => return Err(from_redfish(step, &error)),
    }
    let detail = format!("slot {} was told to eject and still shows a medium", slot.id);
    Ok(Some(settling(&waits::EJECT, host.bmc.profile().read_back_lag, detail)))
}
