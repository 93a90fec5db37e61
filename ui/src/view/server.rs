//! One server: what it does now, how media will be mounted, what its BMC is, what happened here.

use askama::Template;
use serde_json::Value;

use super::filter;
use super::frame::Frame;
use super::jobs::Row;
use super::servers::{model, place, standing};
use crate::data::{JobPage, KeptCard, Server};
use crate::parts::{Badge, Copy};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The most text of a card that is shown for one fact.
const MAX_SLOTS: usize = 16;

/// One server.
#[derive(Template)]
#[template(path = "server.html")]
pub struct ServerPageView {
    f: Frame,
    serial: String,
    path: String,
    badge: Badge,
    why: String,
    why_state: State,
    model: String,
    place: String,
    labels: Vec<String>,
    maintenance: bool,
    now_job: Option<(String, Badge, String)>,
    rows: Vec<Row>,
    all: String,
    plan: String,
    plan_why: String,
    slots: Vec<Slot>,
    bmc: Vec<(&'static str, String)>,
    address: Copy,
    certificate: Option<Copy>,
    probed: Option<When>,
    seen: Option<When>,
    learned: Vec<String>,
}

struct Slot {
    name: String,
    types: String,
    used: bool,
    text: &'static str,
    how: String,
}

/// What the last discovery of a machine observed, in rows.
pub(crate) fn observed_facts(observed: &Value) -> Vec<(&'static str, String)> {
    let names = [
        ("Model", "model"),
        ("Boot mode", "boot_mode"),
        ("BIOS", "bios_version"),
        ("BMC firmware", "firmware"),
        ("Redfish", "redfish_version"),
        ("Profile", "profile"),
        ("Slot plan", "slot_plan"),
    ];
    let fact = |(name, key): (&'static str, &str)| Some((name, words::cut(observed[key].as_str()?)));
    names.into_iter().filter_map(fact).collect()
}

fn card_facts(card: &Value) -> Vec<(&'static str, String)> {
    let at = |pointer: &str| card.pointer(pointer).and_then(Value::as_str).map(words::cut);
    let two = |one: Option<String>, other: Option<String>| {
        let both: Vec<String> = [one, other].into_iter().flatten().collect();
        (!both.is_empty()).then(|| both.join(", "))
    };
    let clock = card.pointer("/clock/skew_seconds").and_then(Value::as_i64).map(|skew| match skew {
        0 => "no difference".to_owned(),
        skew => format!("{} s {}", skew.abs(), if skew < 0 { "behind" } else { "ahead" }),
    });
    let facts = [
        ("Machine", two(at("/identity/manufacturer"), at("/identity/model"))),
        ("Serial", at("/host/serial")),
        ("Host", at("/host/power")),
        ("Boot mode", at("/boot/mode").or_else(|| at("/boot/Mode"))),
        ("BMC firmware", two(at("/identity/bmc_model"), at("/identity/bmc_firmware"))),
        ("BIOS", at("/identity/bios_version")),
        ("Redfish", at("/identity/redfish_version")),
        ("Profile", two(at("/profile/name"), at("/profile/rule"))),
        ("Role of the login", at("/account/role")),
        ("Clock", clock),
    ];
    facts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn slots(card: &Value) -> Vec<Slot> {
    let words_of = |value: &Value| {
        let words = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        words::cut(&words.collect::<Vec<_>>().join(" "))
    };
    let slot = |slot: &Value| Slot {
        name: words::cut(slot["id"].as_str().unwrap_or_default()),
        types: words_of(&slot["media_types"]),
        used: slot["empty"] == false,
        text: if slot["empty"] == false { "media inserted" } else { "empty" },
        how: words::cut(&format!("inserts by {}", slot["insert"].as_str().unwrap_or("no known way"))),
    };
    card["slots"].as_array().into_iter().flatten().take(MAX_SLOTS).map(slot).collect()
}

impl ServerPageView {
    /// The page of a server with its newest jobs and the card of its last probe.
    pub fn of(f: Frame, server: &Server, jobs: &JobPage, kept: &KeptCard) -> Self {
        let now = f.now;
        let (state, word, why) = standing(server, now);
        let running = jobs.jobs.iter().find(|job| job.status != "complete");
        let now_job = running.map(|job| {
            let (state, word) = words::state(job);
            (job.job_id.clone(), state.badge_saying(word), words::why(job))
        });
        let card = kept.card.as_ref().unwrap_or(&Value::Null);
        let plan = &card["slot_plan"];
        let observed = server.observed.as_ref();
        let bmc = match kept.card {
            Some(_) => card_facts(card),
            None => observed.map(observed_facts).unwrap_or_default(),
        };
        let named =
            plan["plan"].as_str().or_else(|| observed.and_then(|observed| observed["slot_plan"].as_str()));
        let learned = server.learned.as_ref().and_then(Value::as_object);
        Self {
            path: format!("/ui/servers/{}", words::encoded(&server.serial)),
            all: filter::jobs(&filter::term("serial", &server.serial)),
            serial: server.serial.clone(),
            badge: state.badge_saying(word),
            why,
            why_state: state,
            model: model(server),
            place: place(server),
            labels: server.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            maintenance: server.maintenance.is_some(),
            now_job,
            rows: jobs.jobs.iter().map(|job| Row::of(job, now)).collect(),
            plan: named.map(words::cut).unwrap_or_default(),
            plan_why: plan["reason"].as_str().map(words::cut).unwrap_or_default(),
            slots: slots(card),
            bmc,
            address: Copy::whole("BMC address", &server.bmc_address),
            certificate: server.tls_fingerprint.as_deref().map(|print| Copy {
                what: "certificate fingerprint",
                text: print.to_owned(),
                shown: format!("sha256 {}…", print.chars().take(12).collect::<String>()),
            }),
            probed: kept.probed_at.map(|at| When::of(at, now)),
            seen: server.last_seen.map(|at| When::of(at, now)),
            learned: learned
                .into_iter()
                .flat_map(|learned| learned.keys().map(|key| words::cut(key)))
                .collect(),
            f,
        }
    }
}
