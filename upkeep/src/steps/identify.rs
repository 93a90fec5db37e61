//! `power.identify` and `bmc.identify`: verifies the machine behind the BMC, and records its power state before any change.

use redfish::SystemSelector;
use serde_json::json;

use super::super::UpkeepServices;
use super::super::identified::{Identified, input};
use bmc::{from_redfish, identity};
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

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
    let was = discovery.system.power_state;
    let model = discovery.system.model.clone().unwrap_or_else(|| "unknown model".to_owned());
    let message = format!("{model}, host {was:?}");
    let found = Identified { bmc_address: connected.server.bmc_address.clone(), discovery, was };
    let mut report = StepReport::done()
        .with_output(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(json!({ "power": was })));
    report.events.extend(unverified);
    Ok(connected.report(report))
}
