//! `redfish.discover`: the right machine, its slots, boot and power capabilities; the slot plan chosen.

use std::sync::Arc;

use redfish::{Discovery, PowerState, SerialMatch, Slot, SystemSelector};
use serde_json::json;

use super::super::evidence::{Discovered, SlotPlan, SplicedBoot, Validated};
use super::super::fault::{failure, of_redfish};
use super::super::site::Site;
use super::iso_build::{grant, task_of};
use super::{class, host, left, reading_policy, settled, step};
use crate::engine::{StepContext, StepReport};
use crate::media::{self, FrozenSplice, ImageDigest};
use crate::model::{Artifact, Effect, Grant, NewEvent, Server, chain};

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
    let failed = |error: redfish::RedfishError| of_redfish(STEP, &error);
    let mut discovery = host.bmc.discover(&selector).await.map_err(failed)?;
    let unverified = right_machine(&host.server, &discovery)?;
    let validated: Validated = left(STEP, context, "validate")?;
    host.bmc.check(&discovery, &validated.media_base).map_err(failed)?;
    discovery.slots = host.bmc.prepare_media(&discovery).await.map_err(failed)?.observed;
    let (plan, boot_slot, task_slots) = choose(&discovery.slots).map_err(|why| {
        StepReport::fail(failure(
            class::UNSUPPORTED,
            STEP,
            why,
            "this BMC shows no virtual media slot for a CD; look for a licence or a firmware update",
        ))
    })?;
    let splice = match plan {
        SlotPlan::Single => Some(splice(site, context).await?),
        SlotPlan::Dual | SlotPlan::CdUsb => None,
    };
    let found_off = discovery.system.power_state == PowerState::Off;
    let names =
        |uri: &String| discovery.slots.iter().find(|slot| slot.uri == *uri).map(|slot| slot.id.clone());
    let slots: Vec<String> =
        std::iter::once(&boot_slot).chain(task_slots.first()).filter_map(names).collect();
    let model = discovery.system.model.clone().unwrap_or_else(|| "unknown model".to_owned());
    let state = if found_off { "off" } else { "on" };
    let message = format!("{model}, host {state}; plan {} with slots {}", plan.as_str(), slots.join(" and "));
    let observed = json!({
        "manufacturer": discovery.system.manufacturer, "model": discovery.system.model,
        "serial": discovery.system.serial, "bios_version": discovery.system.bios_version,
        "firmware": discovery.manager.as_ref().and_then(|manager| manager.firmware.clone()),
        "redfish_version": discovery.redfish_version, "profile": discovery.profile, "slot_plan": plan,
        "slots": discovery.slots.iter().map(|slot| slot.id.as_str()).collect::<Vec<_>>(),
    });
    let serial = host.server.serial.clone();
    let bmc_address = host.server.bmc_address.clone();
    let spliced = splice
        .as_ref()
        .map(|(grant, _)| SplicedBoot { identity: grant.sha256.clone(), grant: grant.token_hash.clone() });
    let found = Discovered { bmc_address, discovery, plan, boot_slot, task_slots, found_off, spliced };
    let mut report = StepReport::done()
        .leaving(json!(found))
        .event(NewEvent::info("redfish.discovered", message).with(observed.clone()))
        .effect(Effect::ServerObserved { serial, observed });
    if let Some((grant, notes)) = splice {
        let message =
            format!("boot image of {} bytes planned: the maintenance image with the task in it", grant.size);
        report = report
            .event(NewEvent::info("iso.spliced", message).with(json!({ "notes": notes })))
            .effect(Effect::GrantIssued(Box::new(grant)));
    }
    report.events.extend(unverified);
    Ok(host.report(report))
}

/// Plans the boot image of a single slot and issues its grant, with what a person should know of the splice.
async fn splice(site: &Arc<Site>, context: &StepContext) -> Result<(Grant, Vec<String>), StepReport> {
    let validated: Validated = left(STEP, context, "validate")?;
    let unusable = |why: String| {
        StepReport::fail(failure(
            class::UNSUPPORTED,
            STEP,
            format!(
                "this BMC has a single virtual media slot, and the task does not fit into the maintenance ISO: {why}"
            ),
            "use a maintenance ISO without a UDF file system (`shoal iso splice` says what is wrong with this one), or a BMC with two slots",
        ))
    };
    let digest = ImageDigest::parse(&validated.boot_digest)
        .ok_or_else(|| unusable("its digest is not one".to_owned()))?;
    let (task, _pull) = task_of(site, context, &validated)?;
    let maintenance = site.library.image(digest).await.map_err(|why| {
        StepReport::fail(failure(class::MEDIA, STEP, chain(&why).to_string(), "import it again"))
    })?;
    let frozen = FrozenSplice::new(digest, task);
    let bytes = frozen.to_bytes().map_err(|why| unusable(chain(&why).to_string()))?;
    let planned = media::offload(move || frozen.plan(&maintenance.body)).await;
    let image = planned
        .map_err(|_panic| unusable("planning it broke off".to_owned()))?
        .map_err(|why| unusable(chain(&why).to_string()))?;
    let grant = grant(site, context, Artifact::Boot, &image.identity.to_hex(), Some(&bytes), image.len)?;
    Ok((grant, image.notes))
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

/// Two CD slots, or a CD and a USB slot, or one CD; boot in the lower CD.
fn choose(slots: &[Slot]) -> Result<(SlotPlan, String, Vec<String>), String> {
    let mut usable: Vec<&Slot> = slots.iter().filter(|slot| slot.takes_media()).collect();
    usable.sort_by(|a, b| a.id.cmp(&b.id));
    let cds: Vec<&Slot> = usable.iter().copied().filter(|slot| slot.is_cd()).collect();
    let usbs = usable.iter().copied().filter(|slot| !slot.is_cd() && slot.is_usb());
    let Some((boot, other_cds)) = cds.split_first() else {
        return Err(format!("none of its {} virtual media slots takes a CD image", slots.len()));
    };
    let task: Vec<String> = other_cds.iter().copied().chain(usbs).map(|slot| slot.uri.clone()).collect();
    let plan = match (other_cds.is_empty(), task.is_empty()) {
        (false, _) => SlotPlan::Dual,
        (true, false) => SlotPlan::CdUsb,
        (true, true) => SlotPlan::Single,
    };
    Ok((plan, boot.uri.clone(), task))
}
