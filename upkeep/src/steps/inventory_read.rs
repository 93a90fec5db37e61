//! `inventory.read`: reads what the server is made of and stores it beside what the machine itself reported.

use redfish::{Hardware, SystemSelector};
use serde::Deserialize;
use serde_json::json;

use super::super::identified::input;
use super::super::{UpkeepServices, difference, names};
use bmc::{from_redfish, identity, unavailable};
use engine::{StepContext, StepError, StepReport};
use model::{Effect, NewEvent, StepName};

const STEP: &StepName = names::READ;
/// The differences that an event names; the rest is counted.
const SHOWN: usize = 20;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let serial = input(STEP, context)?.server;
    let connected = services.bmc.connect(STEP, context, &serial).await?;
    let failed = |error: redfish::RedfishError| from_redfish(STEP, &error);
    let selector = SystemSelector::serial(serial.as_str());
    let discovery = connected.bmc.discover(&selector).await.map_err(failed)?;
    let unverified = identity::verify(STEP, &connected.server, &discovery)?;
    let hardware = connected.bmc.hardware(&discovery).await.map_err(failed)?;
    let before = services.hardware.hardware(&serial).await.map_err(|why| unavailable(STEP, &why))?;
    // A stored inventory of another version of the program is replaced without a comparison.
    let before = before.and_then(|stored| Hardware::deserialize(&stored).ok());
    let summary = difference::summary(&hardware);
    let stored = Effect::ServerHardwareRead { serial, hardware: json!(hardware) };
    let mut report = StepReport::done()
        .with_output(json!({ "summary": summary, "incomplete": hardware.incomplete }))
        .event(NewEvent::info("inventory.read", summary))
        .effect(stored);
    if !hardware.incomplete.is_empty() {
        let message = format!("not everything could be read: {}", hardware.incomplete.join("; "));
        report = report.event(NewEvent::warn("inventory.incomplete", message));
    }
    if let Some(before) = before {
        let changes = difference::between(&before, &hardware);
        if !changes.is_empty() {
            let named = changes.iter().take(SHOWN).cloned().collect::<Vec<_>>();
            let more = changes.len().saturating_sub(SHOWN);
            let more = if more == 0 { String::new() } else { format!("; and {more} more") };
            let message = format!("changed since the last read: {}{more}", named.join("; "));
            report =
                report.event(NewEvent::warn("inventory.changed", message).with(json!({ "changes": named })));
        }
    }
    report.events.extend(unverified);
    Ok(connected.report(report))
}
