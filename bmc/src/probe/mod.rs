//! Probes: read-only access to a BMC for the capability card and the slot plan that a job would choose.
//!
//! ```text
//!   Bmc --discover, update service, account, clock--> card (JSON)      on an error --> BmcProblem: one sentence, next action
//!   `- RecordingTransport ------------------------------------> requests made, capture
//! ```
//!
//! A probe works for a registered server (with its request limits, and with the session of a running job) and for an address
//! that is not registered ([`direct`]).

mod clock;
pub mod direct;
mod problems;

use redfish::{Bmc, Discovery, RecordingTransport, SerialMatch, Slot, SystemSelector};
use serde_json::{Value, json};

use super::addresses::MediaBases;
use super::services::BmcServices;
use super::slots::{LearnedSlots, NoPlan, SlotPlans, plans, readable_base};
use model::{Server, Time};

pub use clock::skew;
pub use problems::{BmcProblem, bmc_problem};

/// The BMC of a probe, with what is known about it.
pub struct ProbeTarget<'a> {
    /// The expected serial number; `None` for an address that is not registered.
    pub serial: Option<&'a str>,
    /// The base URL of media.
    pub media_base: &'a str,
    /// The base URL of media by HTTPS, for a BMC that does not read the other one.
    pub secure_media_base: Option<&'a str>,
    /// How the certificate is verified, as JSON for display.
    pub tls: Value,
    /// The behaviour of the slots that earlier jobs learned.
    pub learned: LearnedSlots,
    /// The current time.
    pub now: Time,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// The capability card.
    pub card: Value,
    /// The redacted resources, if requested.
    pub capture: Option<Value>,
    /// The fingerprint of a certificate that was read for the first time, to be pinned; none if the BMC shows the serial
    /// number of another machine.
    pub met: Option<String>,
}

/// The resources of a BMC that a probe reads.
pub struct BmcFacts {
    /// System, manager and slots.
    pub discovery: Discovery,
    /// The update service, if the BMC shows one.
    pub update: Option<redfish::UpdateService>,
    /// The account in use, if the BMC shows it.
    pub account: Option<redfish::Account>,
}

impl<'a> ProbeTarget<'a> {
    /// The BMC of a registered server. `seen` is the fingerprint of a certificate that was read for the first time.
    pub fn registered(server: &'a Server, seen: Option<&str>, bases: &'a MediaBases, now: Time) -> Self {
        Self {
            serial: Some(server.serial.as_str()),
            media_base: &bases.first,
            secure_media_base: bases.secure.as_deref(),
            tls: tls(server, seen),
            learned: learned(server),
            now,
        }
    }

    /// Returns the base URL under which this BMC reads media.
    pub fn base_for(&self, bmc: &Bmc, discovery: &Discovery) -> &'a str {
        readable_base(bmc, discovery, &self.learned, self.media_base, self.secure_media_base)
    }
}

/// Reads the resources for a card or for checks.
///
/// # Errors
/// Returns the error of the first request that failed.
pub async fn read_facts(bmc: &Bmc, serial: Option<&str>) -> Result<BmcFacts, redfish::RedfishError> {
    let selector = serial.map(SystemSelector::serial).unwrap_or_default();
    let discovery = bmc.discover(&selector).await?;
    let update = bmc.update_service().await?;
    let account = bmc.account().await?;
    Ok(BmcFacts { discovery, update, account })
}

/// Builds the capability card.
///
/// # Errors
/// Returns the problem when the BMC cannot be read.
pub async fn card(
    bmc: &Bmc,
    target: &ProbeTarget<'_>,
    recorder: &RecordingTransport,
) -> Result<Value, BmcProblem> {
    let facts = read_facts(bmc, target.serial).await.map_err(|error| bmc_problem(&error, target.serial))?;
    let BmcFacts { discovery, update, account } = &facts;
    let system = &discovery.system;
    let manager = discovery.manager.as_ref();
    let date = manager.and_then(|manager| manager.date_time.as_deref());
    let reset_types = bmc.reset_types(system).await.unwrap_or_default();
    let requests = recorder.exchanges();
    Ok(json!({
        "address": bmc.endpoint().to_string(),
        "tls": target.tls,
        "identity": {
            "vendor": discovery.identity.vendor, "product": discovery.identity.product,
            "manufacturer": system.manufacturer, "model": system.model, "bios_version": system.bios_version,
            "bmc_model": manager.and_then(|manager| manager.model.as_ref()),
            "bmc_firmware": manager.and_then(|manager| manager.firmware.as_ref()),
            "redfish_version": discovery.redfish_version,
        },
        "host": {
            "uri": system.uri, "serial": system.serial, "sku": system.sku, "uuid": system.uuid,
            "power": format!("{:?}", system.power_state),
            "serial_check": target.serial.map(|serial| serial_check(discovery, serial)),
        },
        "profile": profile(bmc, discovery),
        "slots": discovery.slots.iter().map(slot).collect::<Vec<_>>(),
        "boot": system.boot,
        "power": { "reset_types": system.reset.as_ref().map(|_| &reset_types) },
        "update_service": update,
        "account": account,
        "clock": { "bmc": date, "skew_seconds": date.and_then(|date| skew(date, target.now)) },
        "limits": limits(bmc, account.as_ref()),
        "media_base_url": target.base_for(bmc, discovery),
        "slot_plan": shown_plan(&plan_of(bmc, discovery, target)),
        "requests": { "count": requests.len(), "made": requests },
    }))
}

/// Returns the slot plans of a job on this BMC.
///
/// # Errors
/// Returns the reason why a job would have no slot plan.
pub fn plan_of(bmc: &Bmc, discovery: &Discovery, target: &ProbeTarget<'_>) -> Result<SlotPlans, NoPlan> {
    let media_base = target.base_for(bmc, discovery);
    bmc.check(discovery, media_base).map_err(|error| {
        let BmcProblem { sentence, next_action, .. } = bmc_problem(&error, target.serial);
        NoPlan { why: sentence, next: next_action }
    })?;
    plans(&discovery.slots, media_base, &target.learned)
}

fn shown_plan(plans: &Result<SlotPlans, NoPlan>) -> Value {
    match plans {
        Ok(plans) => {
            let best = plans.best();
            let others: Vec<Value> = plans.all()[1..]
                .iter()
                .map(|choice| json!({ "plan": choice.plan, "slots": choice.ids }))
                .collect();
            json!({ "plan": best.plan, "slots": best.ids, "reason": best.reason, "if_refused": others })
        }
        Err(no) => json!({ "plan": null, "reason": no.why, "next_action": no.next }),
    }
}

/// The result of the serial check for a BMC that shows another serial number.
const ANOTHER_MACHINE: &str = "another machine";

fn serial_check(discovery: &Discovery, serial: &str) -> &'static str {
    match discovery.system.matches_serial(serial) {
        SerialMatch::Match => "match",
        SerialMatch::Mismatch => ANOTHER_MACHINE,
        SerialMatch::Unknown => "not shown",
    }
}

fn profile(bmc: &Bmc, discovery: &Discovery) -> Value {
    let name = bmc.profile().name.to_string();
    let fitting = redfish::Profile::detect(&discovery.identity).name.to_string();
    let rule = match name == fitting {
        true => "matches the identity of the BMC".to_owned(),
        false => format!("set in the server's record; the identity of the BMC matches {fitting}"),
    };
    json!({ "name": name, "rule": rule })
}

fn slot(slot: &Slot) -> Value {
    let how = match &slot.insert {
        redfish::InsertVia::Action(_) => "action",
        redfish::InsertVia::Patch => "patch",
        redfish::InsertVia::InsertVirtualMedia(_) => "insert-virtual-media",
        redfish::InsertVia::VmmControl(_) => "vmm-control",
        redfish::InsertVia::IsoConfig(_) => "iso-config",
        redfish::InsertVia::Nothing => "none",
    };
    json!({
        "id": slot.id, "uri": slot.uri, "media_types": slot.media_types, "empty": slot.is_empty(), "insert": how,
        "transfer_protocols": slot.transfer_protocols,
    })
}

fn limits(bmc: &Bmc, account: Option<&redfish::Account>) -> Value {
    let profile = bmc.profile();
    json!({
        "requests_in_flight": 2, "mutations_in_flight": 1,
        "media_schemes": profile.url_schemes, "media_port": Some(profile.url_port).filter(|port| *port > 0),
        "insert_timeout_seconds": profile.insert_timeout.as_secs(),
        "read_back_seconds": profile.read_back_lag.as_secs(),
        "session_timeout": account.and_then(|account| account.session_timeout),
        "lockout_threshold": account.and_then(|account| account.lockout_threshold),
    })
}

impl BmcServices {
    /// Reads the BMC of a registered server without changing anything.
    ///
    /// # Errors
    /// Returns the problem when the server's record cannot be used or the BMC cannot be read.
    pub async fn probe(&self, server: &Server, capture: bool, now: Time) -> Result<ProbeResult, BmcProblem> {
        let mut recorder = None;
        let connected = self.connections.reader(server, Some(&mut recorder)).await;
        let connected = connected.map_err(|why| why.problem(&server.serial))?;
        let bases = self.media_bases(server).await?;
        let seen = connected.learned_fingerprint.as_deref();
        let target = ProbeTarget::registered(server, seen, &bases, now);
        // Always present, because `reader` was called with `recorded`.
        let recorder = recorder.ok_or_else(|| {
            BmcProblem::record("no requests were recorded".to_owned(), server.serial.as_str())
        })?;
        let card = card(&connected.bmc, &target, &recorder).await;
        self.connections.release(&server.serial, &connected.bmc).await;
        let capture = capture.then(|| recorder.capture(uuid::Uuid::new_v4().as_u64_pair().0));
        let card = card?;
        let another = card["host"]["serial_check"] == ANOTHER_MACHINE;
        let met = connected.learned_fingerprint.filter(|_| !another);
        Ok(ProbeResult { card, capture, met })
    }
}

/// Returns what jobs have learned, for the last observed firmware: a probe reads the firmware only later.
fn learned(server: &Server) -> LearnedSlots {
    let firmware = server.observed.as_ref().and_then(|observed| observed["firmware"].as_str());
    let firmware = firmware.map(redfish::FirmwareVersion::from);
    LearnedSlots::stored(server.observed.as_ref(), firmware.as_ref(), server.revision)
}

fn tls(server: &Server, seen: Option<&str>) -> Value {
    let https = server.bmc_address.starts_with("https://");
    let mode = if https { server.tls.as_str() } else { "none" };
    json!({ "mode": mode, "fingerprint": server.tls_fingerprint.as_deref().or(seen), "first_met": seen.is_some() })
}
