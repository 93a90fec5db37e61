//! `redfish.boot-override`: only the next boot is from the boot media.

use std::sync::Arc;

use serde_json::json;

use super::super::outputs::BootSet;
use super::super::second_way;
use super::super::services::Services;
use super::{bmc_policy, discovered_bmc, names, step};
use bmc::boot;
use engine::{StepContext, StepEnd, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::BOOT_OVERRIDE;

step!(
    /// Sets the one-time boot from the boot media and reads it back.
    SetBootOverride,
    bmc_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let second = second_way::of(&context.snapshot);
    if second.is_some() && second_way::is_given_up(&context.snapshot) {
        return Ok(StepReport::skipped());
    }
    let (connected, found) = discovered_bmc(STEP, services, context).await?;
    let from = (&found.discovery, found.boot_slot.as_str());
    let detail = "the one-time boot was requested; a read does not show it yet";
    let by = second.as_ref().map(|second| &second.second);
    let set = boot::set_once(STEP, context, &connected, from, by, detail).await;
    let way = set.map_err(|mut error| {
        if let (StepEnd::Fail(failure), Some(second)) = (&mut *error.end, &second) {
            failure.summary = format!("{}; {}", failure.summary, second_way::describe(second));
        }
        error
    })?;
    let message = format!("boots once by {way}, read back");
    let read_within_s = connected.bmc.profile().boot_read_within.as_secs();
    let report = StepReport::done().with_output(json!(BootSet { way, read_within_s }));
    Ok(connected.report(report.event(NewEvent::info("redfish.boot-once", message))))
}
