//! `redfish.eject`: empties the chosen slots before an insert. Media of an earlier job may look right and not be readable.

use std::sync::Arc;

use super::super::services::Services;
use super::cleanup::{filled, pending_slots};
use super::{bmc_policy, discovered_bmc, names, step};
use bmc::{from_redfish, slots};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::EJECT;

step!(
    /// Empties the slots this job will use.
    Eject,
    bmc_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let mut report = StepReport::done();
    // Slots that this job filled under an earlier slot plan are emptied too.
    let mut uris = filled(&context.snapshot);
    uris.extend(std::iter::once(&found.boot_slot).chain(&found.task_slots).cloned());
    // So are slots that an earlier job could not empty, if they still exist.
    uris.extend(
        pending_slots(&connected.server)
            .iter()
            .filter(|uri| found.discovery.slots.iter().any(|slot| slot.uri == **uri))
            .cloned(),
    );
    uris.sort();
    uris.dedup();
    for uri in &uris {
        let read = match context.previous_wait.is_none() && !context.reentered {
            // Discovery has just read the slot, and the mount step reads it again.
            true => connected.bmc.slot_cached(uri).await,
            false => connected.bmc.slot(uri).await,
        };
        let slot = read.map_err(|error| from_redfish(STEP, &error))?;
        if slot.is_empty() {
            continue;
        }
        if let Some(wait) = slots::eject(STEP, context, &connected, &slot).await? {
            return Ok(StepReport::wait(wait));
        }
        report = report.event(NewEvent::info(
            "redfish.ejected",
            format!("slot {} held media; ejected and read back", slot.id),
        ));
    }
    Ok(connected.report(report))
}
