//! `redfish.discover`: the right machine, its slots, boot and power capabilities; the slot plan chosen.

use std::sync::Arc;

use redfish::{Discovery, PowerState, SerialMatch, SystemSelector};
use serde_json::json;

use super::super::classify::{failure, from_redfish};
use super::super::outputs::{Discovered, SplicedBootGrant, Validated};
use super::super::services::Site;
use super::super::slots::{Learned, SlotPlan};
use super::iso_build::Use;
use super::slot_fallback::{plans, splice, tell};
use super::{class, host, left, reading_policy, settled, step};
use engine::model::{Effect, NewEvent, Server};
use engine::{StepContext, StepReport};

const STEP: &str = "redfish.discover";

step!(
    /// Finds out what this BMC is and can, and whether it is the right one.
    Discover,
    reading_policy,
    run
);

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let host = host(STEP, site, context).await?;
    let selector = SystemSelector::serial(host.server.serial.as_str());
    let failed = |error: redfish::RedfishError| from_redfish(STEP, &error);
    let mut discovery = host.bmc.discover(&selector).await.map_err(failed)?;
    let unverified = right_machine(&host.server, &discovery)?;
    let validated: Validated = left(STEP, context, "validate")?;
    host.bmc.check(&discovery, &validated.media_base).map_err(failed)?;
    discovery.slots = host.bmc.prepare_media(&discovery).await.map_err(failed)?.observed;
    let firmware = discovery.manager.as_ref().and_then(|manager| manager.firmware.clone());
    let learned = Learned::stored(host.server.observed.as_ref(), firmware.as_deref(), host.server.revision);
    let plans = plans(&discovery.slots, &validated.media_base, &learned);
    let choice = match plans {
        Ok(plans) => plans.best().clone(),
        Err(no) => return Err(StepReport::fail(failure(class::UNSUPPORTED, STEP, no.why, no.next))),
    };
    let splice = match choice.plan {
        SlotPlan::Single => Some(splice(STEP, site, context, Use::FIRST).await?),
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
    let serial = host.server.serial.clone();
    let bmc_address = host.server.bmc_address.clone();
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
        .leaving(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(observed.clone()))
        .effect(Effect::ServerObserved { serial, observed });
    if let Some(splice) = splice {
        report = tell(report, splice);
    }
    report.events.extend(unverified);
    Ok(host.report(report))
}

/// Lock L3a: the BMC's serial is compared before the first mutation.
fn right_machine(server: &Server, discovery: &Discovery) -> Result<Option<NewEvent>, StepReport> {
    let serial = &server.serial;
    let stop = |summary: String, next: String| StepReport::fail(failure(class::INPUT, STEP, summary, next));
    match discovery.system.matches_serial(serial.as_str()) {
        SerialMatch::Match => Ok(None),
        SerialMatch::Mismatch => Err(stop(
            format!(
                "the BMC at {} belongs to another machine: it shows serial {}, {serial} is registered; nothing was changed",
                server.bmc_address,
                discovery.system.serial.as_deref().or(discovery.system.sku.as_deref()).unwrap_or("?"),
            ),
            format!("correct the address with `shoal server update {serial} --bmc-address …`"),
        )),
        SerialMatch::Unknown if server.allow_unverified_serial => Ok(Some(NewEvent::warn(
            "redfish.serial-unverified",
            "the BMC shows no serial; going on because the server allows it",
        ))),
        SerialMatch::Unknown => Err(stop(
            format!(
                "the BMC at {} shows no serial, so it cannot be told whether it is {serial}",
                server.bmc_address
            ),
            format!("if you are sure: `shoal server update {serial} --allow-unverified-serial`"),
        )),
    }
}
