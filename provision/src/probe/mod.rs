//! What a BMC is and can: the capability card, read and never changed, and the plan a job would follow on it.
//!
//! ```text
//!   Bmc --discover, update service, account, clock--> card (JSON)      refused or unreachable --> one sentence, what to do
//!   `- Recorder ------------------------------------> requests made, capture
//! ```
//!
//! The same for a registered server (through its gate, with the session of a job that is at work there) and for an address
//! that nobody has registered.

pub mod checks;
mod clock;
pub mod direct;
mod problems;
pub(super) mod test_image;

use redfish::{Bmc, Discovery, Recorder, SerialMatch, Slot, SystemSelector};
use serde_json::{Value, json};

use super::bmc::ConnectError;
use super::services::Site;
use super::slots::{Learned, NoPlan, SlotPlans};
use super::steps::{bmc_address, plans};
use engine::model::{Server, Time};

pub(super) use clock::skew;
pub use problems::{Trouble, trouble};

/// About what is asked.
pub struct Subject<'a> {
    /// The serial number it should have; none for an address nobody has registered.
    pub serial: Option<&'a str>,
    /// Where our media are offered.
    pub media_base: &'a str,
    /// How its certificate is looked at, for people.
    pub tls: Value,
    /// What jobs have learned of its slots.
    pub(super) learned: Learned,
    /// Now.
    pub now: Time,
}

/// What a probe found.
#[derive(Clone, Debug)]
pub struct ProbeResult {
    /// The capability card.
    pub card: Value,
    /// The redacted resources, if they were asked for.
    pub capture: Option<Value>,
}

/// All that is read of a BMC.
pub(super) struct Seen {
    pub(super) discovery: Discovery,
    pub(super) update: Option<redfish::UpdateService>,
    pub(super) account: Option<redfish::Account>,
}

/// Reads all that a card shows.
pub(super) async fn look(bmc: &Bmc, serial: Option<&str>) -> Result<Seen, redfish::RedfishError> {
    let selector = serial.map(SystemSelector::serial).unwrap_or_default();
    let discovery = bmc.discover(&selector).await?;
    let update = bmc.update_service().await?;
    let account = bmc.account().await?;
    Ok(Seen { discovery, update, account })
}

/// Makes the card.
pub async fn card(bmc: &Bmc, subject: &Subject<'_>, recorder: &Recorder) -> Result<Value, Trouble> {
    let seen = look(bmc, subject.serial).await.map_err(|error| trouble(&error, subject.serial))?;
    let Seen { discovery, update, account } = &seen;
    let system = &discovery.system;
    let manager = discovery.manager.as_ref();
    let date = manager.and_then(|manager| manager.date_time.as_deref());
    let requests = recorder.exchanges();
    Ok(json!({
        "address": bmc.endpoint().to_string(),
        "tls": subject.tls,
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
            "serial_check": subject.serial.map(|serial| serial_check(discovery, serial)),
        },
        "profile": profile(bmc, discovery),
        "slots": discovery.slots.iter().map(slot).collect::<Vec<_>>(),
        "boot": system.boot,
        "power": { "reset_types": system.reset.as_ref().map(|reset| &reset.allowed) },
        "update_service": update,
        "account": account,
        "clock": { "bmc": date, "skew_seconds": date.and_then(|date| skew(date, subject.now)) },
        "limits": limits(bmc, account.as_ref()),
        "media_base_url": subject.media_base,
        "slot_plan": shown_plan(&plan_of(bmc, discovery, subject)),
        "requests": { "count": requests.len(), "made": requests },
    }))
}

/// The plans a job would choose from; none where a job would stop before it plans.
pub(super) fn plan_of(bmc: &Bmc, discovery: &Discovery, subject: &Subject<'_>) -> Result<SlotPlans, NoPlan> {
    bmc.check(discovery, subject.media_base).map_err(|error| {
        let Trouble { sentence, next_action, .. } = trouble(&error, subject.serial);
        NoPlan { why: sentence, next: next_action }
    })?;
    plans(&discovery.slots, subject.media_base, &subject.learned)
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

fn serial_check(discovery: &Discovery, serial: &str) -> &'static str {
    match discovery.system.matches_serial(serial) {
        SerialMatch::Match => "match",
        SerialMatch::Mismatch => "another machine",
        SerialMatch::Unknown => "not shown",
    }
}

fn profile(bmc: &Bmc, discovery: &Discovery) -> Value {
    let name = bmc.profile().name.to_string();
    let fitting = redfish::Profile::detect(&discovery.identity).name.to_string();
    let rule = match name == fitting {
        true => "fits what the BMC says of itself".to_owned(),
        false => format!("named in the server's record; by itself the BMC would be {fitting}"),
    };
    json!({ "name": name, "rule": rule })
}

fn slot(slot: &Slot) -> Value {
    let how = match &slot.insert {
        redfish::InsertVia::Action(_) => "action",
        redfish::InsertVia::Patch => "patch",
        redfish::InsertVia::Hp(_) => "hp",
        redfish::InsertVia::Vmm(_) => "vmm",
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

impl Site {
    /// Looks at the BMC of a registered server, without changing anything.
    pub async fn probe(&self, server: &Server, capture: bool, now: Time) -> Result<ProbeResult, Trouble> {
        let serial = server.serial.as_str();
        let mut recorder = None;
        let connected = self.bmcs.reader(server, Some(&mut recorder)).await.map_err(|why| match why {
            ConnectError::Record(why) => Trouble::record(why, serial),
            ConnectError::Bmc(error) => trouble(&error, Some(serial)),
        })?;
        let media_base = self.media_base(server).await?;
        let subject = Subject {
            serial: Some(serial),
            media_base: &media_base,
            tls: tls(server, connected.learned_fingerprint.as_deref()),
            learned: learned(server),
            now,
        };
        // There is one: it was asked for.
        let recorder = recorder.ok_or_else(|| Trouble::record("nothing was recorded".to_owned(), serial))?;
        let card = card(&connected.bmc, &subject, &recorder).await;
        self.bmcs.give_back(&server.serial, &connected.bmc).await;
        let capture = capture.then(|| recorder.capture(uuid::Uuid::new_v4().as_u64_pair().0));
        Ok(ProbeResult { card: card?, capture })
    }

    /// Where the server's BMC would read media.
    pub(super) async fn media_base(&self, server: &Server) -> Result<String, Trouble> {
        let wrong = |why: String| Trouble::record(why, server.serial.as_str());
        let bmc = bmc_address(server).await.map_err(wrong)?;
        self.addresses.media_for(server, bmc).map_err(wrong)
    }
}

/// What jobs have learned, for the firmware it was learned from: a probe sees the firmware too late to ask.
pub(super) fn learned(server: &Server) -> Learned {
    let firmware = server.observed.as_ref().and_then(|observed| observed["firmware"].as_str());
    Learned::stored(server.observed.as_ref(), firmware, server.revision)
}

pub(super) fn tls(server: &Server, met: Option<&str>) -> Value {
    let https = server.bmc_address.starts_with("https://");
    let mode = if https { server.tls.as_str() } else { "none" };
    json!({ "mode": mode, "fingerprint": server.tls_fingerprint.as_deref().or(met), "first_met": met.is_some() })
}
