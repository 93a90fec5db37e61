//! `redfish.eject`: the chosen slots are empty before anything goes in. Media of an earlier job may look right and be dead.

use std::sync::Arc;

use super::super::fault::of_redfish;
use super::super::site::Site;
use super::super::waits;
use super::{bmc_policy, known_host, settled, settling, step};
use crate::engine::{StepContext, StepReport};
use crate::model::NewEvent;

const STEP: &str = "redfish.eject";

step!(
    /// Empties the slots this job is going to use.
    Eject,
    bmc_policy,
    run
);

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (host, found) = known_host(STEP, site, context).await?;
    let mut report = StepReport::done();
    for uri in std::iter::once(&found.boot_slot).chain(&found.task_slots) {
        let looked = match context.waited.is_none() && !context.reentered {
            // Discovery has read it a moment ago, and who mounts reads it again.
            true => host.bmc.slot_lately(uri).await,
            false => host.bmc.slot(uri).await,
        };
        let slot = looked.map_err(|error| of_redfish(STEP, &error))?;
        if slot.is_empty() {
            continue;
        }
        let ejected = host.bmc.eject(uri).await.map_err(|error| of_redfish(STEP, &error))?;
        if !ejected.confirmed {
            return Ok(settling(
                &waits::EJECT,
                host.bmc.profile().read_back_lag,
                format!("slot {} was told to eject and still shows a medium", slot.id),
            ));
        }
        report = report.event(NewEvent::info(
            "redfish.ejected",
            format!("slot {} held a medium; ejected and read back", slot.id),
        ));
    }
    Ok(host.report(report))
}
