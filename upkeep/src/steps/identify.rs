//! `power.identify`, `bmc.identify`, `firmware.identify` and `bios.identify`: verifies the machine behind the BMC, waits for the end of an
//! update that an earlier run has left to it, and records the power state before any change.

use redfish::{ManagerReset, SystemSelector};
use serde_json::json;

use super::super::UpkeepServices;
use super::super::identified::{Identified, input};
use super::super::order::UpkeepAction;
use bmc::updates::{self, LeftOver};
use bmc::{from_redfish, identity};
use engine::{StepContext, StepError, StepReport};
use model::{Effect, NewEvent, StepName};

pub(crate) async fn run(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
) -> Result<StepReport, StepError> {
    let serial = input(step, context)?.server;
    let connected = services.bmc.connect(step, context, &serial).await?;
    let selector = SystemSelector::serial(serial.as_str());
    let discovery = connected.bmc.discover(&selector).await.map_err(|error| from_redfish(step, &error))?;
    let unverified = identity::verify(step, &connected.server, &discovery)?;
    // A forced restart of the BMC is how an operator ends an update that hangs.
    let regardless = matches!(input(step, context)?.action, UpkeepAction::Reset(reset) if reset.how == ManagerReset::Forced);
    let cleared = match updates::left_over(step, context, &connected, regardless).await? {
        LeftOver::Wait(report) => return Ok(*report),
        LeftOver::Clear(cleared) => cleared,
    };
    let was = discovery.system.power_state;
    let model = discovery.system.model.clone().unwrap_or_else(|| "unknown model".to_owned());
    let message = format!("{model}, host {was:?}");
    let seen = Effect::ServerSeen { serial };
    let found = Identified { bmc_address: connected.server.bmc_address.clone(), discovery, was };
    let mut report = StepReport::done()
        .with_output(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(json!({ "power": was })))
        .effect(seen);
    report.events.extend(unverified);
    Ok(connected.report(cleared.report(report)))
}
