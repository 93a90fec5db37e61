//! `redfish.discover`: verifies the machine, reads slots, boot and power capabilities, and chooses the slot plan.

use std::sync::Arc;

use redfish::{Discovery, PowerState, SerialMatch, SystemSelector};
use serde_json::json;

use super::super::classify::{failure, from_redfish};
use super::super::outputs::{Discovered, SplicedBootGrant, Validated};
use super::super::services::Services;
use super::super::slots::{LearnedSlots, SlotPlan};
use super::iso_build::GrantUse;
use super::slot_fallback::{plans, splice, with_splice};
use super::{class, connect, into_report, output_of, reading_policy, step};
use engine::model::{Effect, NewEvent, Server};
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.discover";

step!(
    /// Discovers the BMC and verifies that it belongs to the server.
    Discover,
    reading_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepReport> {
    let connected = connect(STEP, services, context).await?;
    let selector = SystemSelector::serial(connected.server.serial.as_str());
    let failed = |error: redfish::RedfishError| from_redfish(STEP, &error);
    let mut discovery = connected.bmc.discover(&selector).await.map_err(failed)?;
    let unverified = right_machine(&connected.server, &discovery)?;
    let validated: Validated = output_of(STEP, context, "validate")?;
    connected.bmc.check(&discovery, &validated.media_base).map_err(failed)?;
    discovery.slots = connected.bmc.prepare_media(&discovery).await.map_err(failed)?.observed;
    let firmware = discovery.manager.as_ref().and_then(|manager| manager.firmware.clone());
    let learned = LearnedSlots::stored(
        connected.server.observed.as_ref(),
        firmware.as_deref(),
        connected.server.revision,
    );
    let plans = plans(&discovery.slots, &validated.media_base, &learned);
    let choice = match plans {
        Ok(plans) => plans.best().clone(),
        Err(no) => return Err(StepReport::fail(failure(class::UNSUPPORTED, STEP, no.why, no.next))),
    };
    let splice = match choice.plan {
        SlotPlan::Single => Some(splice(STEP, services, context, GrantUse::FIRST).await?),
        SlotPlan::Dual | SlotPlan::CdUsb => None,
    };
    let was_off = discovery.system.power_state == PowerState::Off;
    let model = discovery.system.model.clone().unwrap_or_else(|| "unknown model".to_owned());
    let state = if was_off { "off" } else { "on" };
    let message = format!(
        "{model}, host {state}; plan {} with slots {}: {}",
        choice.plan.as_str(),
        choice.ids.join(" and "),
        choice.reason
    );
    let mut observed = json!({
        "manufacturer": discovery.system.manufacturer, "model": discovery.system.model,
        "serial": discovery.system.serial, "bios_version": discovery.system.bios_version,
        "firmware": firmware, "redfish_version": discovery.redfish_version, "profile": discovery.profile,
        "slot_plan": choice.plan,
        "slots": discovery.slots.iter().map(|slot| slot.id.as_str()).collect::<Vec<_>>(),
    });
    if !learned.is_empty() {
        observed["learned"] = json!(learned);
    }
    let serial = connected.server.serial.clone();
    let bmc_address = connected.server.bmc_address.clone();
    let spliced = splice.as_ref().map(|splice| SplicedBootGrant {
        identity: splice.identity.clone(),
        grant: splice.grant.token_hash.clone(),
    });
    let found = Discovered {
        bmc_address,
        discovery,
        plan: choice.plan,
        reason: choice.reason,
        boot_slot: choice.boot,
        task_slots: choice.task.into_iter().collect(),
        was_off,
        spliced,
        attempt: 1,
        learned,
        grants: Vec::new(),
    };
    let mut report = StepReport::done()
        .with_output(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(observed.clone()))
        .effect(Effect::ServerObserved { serial, observed });
    if let Some(splice) = splice {
        report = with_splice(report, splice);
    }
    report.events.extend(unverified);
    Ok(connected.report(report))
}

/// Compares the serial number of the BMC before the first mutation (decision D3a). Returns a warning if it is not verified.
fn right_machine(server: &Server, discovery: &Discovery) -> Result<Option<NewEvent>, StepReport> {
    let serial = &server.serial;
    let wrong_machine =
        |summary: String, next: String| StepReport::fail(failure(class::INPUT, STEP, summary, next));
    match discovery.system.matches_serial(serial.as_str()) {
        SerialMatch::Match => Ok(None),
        SerialMatch::Mismatch => Err(wrong_machine(
            format!(
                "the BMC at {} belongs to another machine: it shows serial {}, {serial} is registered; nothing was changed",
                server.bmc_address,
                discovery.system.serial.as_deref().or(discovery.system.sku.as_deref()).unwrap_or("?"),
            ),
            format!("correct the address with `shoal server update {serial} --bmc-address …`"),
        )),
        SerialMatch::Unknown if server.allow_unverified_serial => Ok(Some(NewEvent::warn(
            "redfish.serial-unverified",
            "the BMC shows no serial; the job continues because the server has allow_unverified_serial",
        ))),
        SerialMatch::Unknown => Err(wrong_machine(
            format!(
                "the BMC at {} shows no serial, so it cannot be verified that it is {serial}",
                server.bmc_address
            ),
            format!("if you are sure: `shoal server update {serial} --allow-unverified-serial`"),
        )),
    }
}
