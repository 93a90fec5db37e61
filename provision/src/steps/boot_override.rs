//! `redfish.boot-override`: only the next boot is from the boot media.

use std::sync::Arc;

use super::super::classify::from_redfish_change;
use super::super::services::Services;
use super::super::waits;
use super::{bmc_policy, discovered_bmc, into_report, step, wait_for_bmc};
use engine::model::NewEvent;
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.boot-override";

step!(
    /// Sets the one-time boot from the boot media and reads it back.
    SetBootOverride,
    bmc_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let set = connected
        .bmc
        .boot_media_once(&found.discovery, &found.boot_slot)
        .await
        .map_err(|error| from_redfish_change(STEP, &error))?;
    if !set.confirmed {
        return Ok(wait_for_bmc(
            &waits::BOOT_OVERRIDE,
            connected.bmc.profile().read_back_lag,
            "the one-time boot was requested; a read does not show it yet",
        ));
    }
    let target = set.observed.target.as_ref().map_or("Cd", |target| target.as_str()).to_owned();
    Ok(connected.report(
        StepReport::done()
            .event(NewEvent::info("redfish.boot-once", format!("boots once from {target}, read back"))),
    ))
}
