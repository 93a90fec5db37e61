//! `redfish.discover`: verifies the machine, waits for the end of an update that an earlier run has left to its BMC, reads slots, boot and
//! power capabilities, and chooses the slot plan.

use std::sync::Arc;

use redfish::PowerState;
use serde_json::json;

use super::super::outputs::{Discovered, SplicedBootGrant, Validated};
use super::super::services::Services;
use super::iso_build::GrantUse;
use super::slot_fallback::{splice, with_splice};
use super::{class, input, names, reading_policy, step};
use bmc::slots::{LearnedSlots, SlotPlan, plans, readable_base};
use bmc::updates::{self, FirstLook, StagedImage};
use bmc::{failure, from_redfish, output_of};
use engine::{StepContext, StepError, StepReport};
use model::{Effect, NewEvent, StepName};

const STEP: &StepName = names::DISCOVER;

step!(
    /// Discovers the BMC and verifies that it belongs to the server.
    Discover,
    reading_policy,
    run
);

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let serial = input(STEP, context)?.server;
    let machine =
        match updates::first_look(STEP, &services.bmc, context, &serial, (false, StagedImage::Refused))
            .await?
        {
            FirstLook::Wait(report) => return Ok(*report),
            FirstLook::Ready(machine) => machine,
        };
    let (connected, mut discovery) = (&machine.connected, machine.discovery.clone());
    let failed = |error: redfish::RedfishError| from_redfish(STEP, &error);
    let validated: Validated = output_of(STEP, context, names::VALIDATE)?;
    let firmware = discovery.manager.as_ref().and_then(|manager| manager.firmware.clone());
    let learned = LearnedSlots::stored(
        connected.server.observed.as_ref(),
        firmware.as_ref(),
        connected.server.revision,
    );
    let (first, secure) = (validated.media_base.as_str(), validated.secure_media_base.as_deref());
    let media_base = readable_base(&connected.bmc, &discovery, &learned, first, secure);
    connected.bmc.check(&discovery, media_base).map_err(failed)?;
    discovery.slots = connected.bmc.prepare_media(&discovery).await.map_err(failed)?.observed;
    let plans = plans(&discovery.slots, media_base, &learned);
    let choice = match plans {
        Ok(plans) => plans.best().clone(),
        Err(no) => return Err(StepError::fail(failure(class::UNSUPPORTED, STEP, no.why, no.next))),
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
    let media_by_https = media_base != first;
    let message = match media_by_https {
        true => format!("{message}; media by https, because it does not read http"),
        false => message,
    };
    let mut observed = json!({
        "manufacturer": discovery.system.manufacturer, "model": discovery.system.model,
        "serial": discovery.system.serial, "bios_version": discovery.system.bios_version,
        "firmware": firmware, "redfish_version": discovery.redfish_version, "profile": discovery.profile,
        "slot_plan": choice.plan,
        "slots": discovery.slots.iter().map(|slot| slot.id.as_str()).collect::<Vec<_>>(),
    });
    if let Some(mode) = discovery.system.boot.as_ref().and_then(|boot| boot.mode) {
        observed["boot_mode"] = json!(<&str>::from(mode));
    }
    if !learned.is_empty() {
        observed["learned"] = json!(learned);
    }
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
        task_slots: choice.second.into_iter().collect(),
        media_by_https,
        was_off,
        spliced,
        attempt: 1,
        learned,
        grants: Vec::new(),
        slot_plan_limits_ms: Some(services.slot_plan_limits_ms()),
    };
    let mut report = StepReport::done()
        .with_output(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(observed.clone()))
        .effect(Effect::ServerObserved { serial, observed });
    if let Some(splice) = splice {
        report = with_splice(report, splice);
    }
    Ok(machine.report(report))
}
