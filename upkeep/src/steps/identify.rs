//! `power.identify`, `bmc.identify`, `firmware.identify` and `bios.identify`: verifies the machine behind the BMC, waits for the end of an
//! update that an earlier run has left to it, and records the power state before any change.

use redfish::ManagerReset;
use serde_json::json;

use super::super::UpkeepServices;
use super::super::identified::{Identified, input};
use super::super::order::UpkeepAction;
use bmc::updates::{self, FirstLook, StagedImage};
use engine::{StepContext, StepError, StepReport};
use model::{Effect, NewEvent, StepName};

pub(crate) async fn run(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let order = input(step, context)?;
    // A forced restart of the BMC is how an operator ends an update that hangs.
    let regardless = matches!(&order.action, UpkeepAction::Reset(reset) if reset.how == ManagerReset::Forced);
    // Settings restart the host, and give a host that was off its power state back soon after.
    let staged = match &order.action {
        UpkeepAction::Bios(_) => StagedImage::Refused,
        _ => StagedImage::Allowed,
    };
    let look = updates::first_look(step, &services.bmc, context, &order.server, (regardless, staged)).await?;
    let machine = match look {
        FirstLook::Wait(report) => return Ok(*report),
        FirstLook::Ready(machine) => machine,
    };
    let discovery = machine.discovery.clone();
    let was = discovery.system.power_state;
    let model = discovery.system.model.clone().unwrap_or_else(|| "unknown model".to_owned());
    let message = format!("{model}, host {was:?}");
    let found = Identified { bmc_address: machine.connected.server.bmc_address.clone(), discovery, was };
    let report = StepReport::done()
        .with_output(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(json!({ "power": was })))
        .effect(Effect::ServerSeen { serial: order.server.clone() });
    Ok(machine.report(report))
}
