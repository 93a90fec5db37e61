//! `redfish.boot-override`: the next boot, and only the next, is from the medium.

use std::sync::Arc;

use super::super::classify::from_redfish_change;
use super::super::services::Site;
use super::super::waits;
use super::{bmc_policy, discovered_bmc, settled, settling, step};
use engine::model::NewEvent;
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.boot-override";

step!(
    /// Sets the one-time boot from the medium and reads it back.
    SetBootOverride,
    bmc_policy,
    run
);

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let (host, found) = discovered_bmc(STEP, site, context).await?;
    let set = host
        .bmc
        .boot_media_once(&found.discovery, &found.boot_slot)
        .await
        .map_err(|error| from_redfish_change(STEP, &error))?;
    if !set.confirmed {
        return Ok(settling(
            &waits::BOOT_OVERRIDE,
            host.bmc.profile().read_back_lag,
            "the one-time boot was accepted, a read does not show it yet",
        ));
    }
    let target = set.observed.target.as_ref().map_or("Cd", |target| target.as_str()).to_owned();
    Ok(host.report(
        StepReport::done()
            .event(NewEvent::info("redfish.boot-once", format!("boots once from {target}, read back"))),
    ))
}
