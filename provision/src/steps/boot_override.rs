//! `redfish.boot-override`: only the next boot is from the boot media.

use std::sync::Arc;

use super::super::services::Services;
use super::{bmc_policy, discovered_bmc, names, step};
use bmc::boot;
use engine::model::{NewEvent, StepName};
use engine::{StepContext, StepError, StepReport};

const STEP: &StepName = names::BOOT_OVERRIDE;

step!(
    /// Sets the one-time boot from the boot media and reads it back.
    SetBootOverride,
    bmc_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let from = (&found.discovery, found.boot_slot.as_str());
    let detail = "the one-time boot was requested; a read does not show it yet";
    let target = boot::set_once(STEP, &connected, from, detail).await?;
    Ok(connected.report(
        StepReport::done()
            .event(NewEvent::info("redfish.boot-once", format!("boots once from {target}, read back"))),
    ))
}
