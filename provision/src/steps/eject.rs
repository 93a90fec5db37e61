//! `redfish.eject`: empties the chosen slots before an insert. Media of an earlier job may look right and not be readable.

use std::sync::Arc;

use redfish::{ErrorKind, Slot};

use super::super::classify::from_redfish;
use super::super::services::Services;
use super::super::waits;
use super::cleanup::{filled, pending_slots};
use super::{ConnectedBmc, bmc_policy, discovered_bmc, into_report, step, wait_for_bmc};
use engine::model::NewEvent;
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.eject";

step!(
    /// Empties the slots this job will use.
    Eject,
    bmc_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let mut report = StepReport::done();
    // Slots that this job filled under an earlier slot plan are emptied too.
    let mut slots = filled(&context.snapshot);
    slots.extend(std::iter::once(&found.boot_slot).chain(&found.task_slots).cloned());
    // So are slots that an earlier job could not empty, if they still exist.
    slots.extend(
        pending_slots(&connected.server)
            .into_iter()
            .filter(|uri| found.discovery.slots.iter().any(|slot| slot.uri == *uri)),
    );
    slots.sort();
    slots.dedup();
    for uri in &slots {
        let read = match context.previous_wait.is_none() && !context.reentered {
            // Discovery has just read the slot, and the mount step reads it again.
            true => connected.bmc.slot_cached(uri).await,
            false => connected.bmc.slot(uri).await,
        };
        let slot = read.map_err(|error| from_redfish(STEP, &error))?;
        if slot.is_empty() {
            continue;
        }
        if let Some(waiting) = empty(STEP, context, &connected, &slot).await? {
            return Ok(waiting);
        }
        report = report.event(NewEvent::info(
            "redfish.ejected",
            format!("slot {} held media; ejected and read back", slot.id),
        ));
    }
    Ok(connected.report(report))
}

/// Ejects the media of a slot; returns a wait while a read does not show the slot empty.
///
/// A refusal after a wait is no failure: a BMC that shows its slots late refuses to repeat the eject.
pub(super) async fn empty(
    step: &str,
    context: &StepContext,
    connected: &ConnectedBmc,
    slot: &Slot,
) -> Result<Option<StepReport>, StepReport> {
    let sent_before = context.previous_wait.as_ref().is_some_and(|wait| wait.reason == waits::EJECT.name);
    match connected.bmc.eject(&slot.uri).await {
        Ok(ejected) if ejected.confirmed => return Ok(None),
        Ok(_) => {}
        Err(error) if sent_before && matches!(error.kind, ErrorKind::Refused { .. }) => {}
        Err(error) => return Err(from_redfish(step, &error)),
    }
    let detail = format!("the eject of slot {} was requested; it still shows its media", slot.id);
    Ok(Some(wait_for_bmc(&waits::EJECT, connected.bmc.profile().read_back_lag, detail)))
}
