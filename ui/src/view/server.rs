//! One server: what it does now, how media will be mounted, what its BMC is, what happened here.

use askama::Template;
use serde_json::Value;

use super::filter;
use super::firmware::kind;
use super::frame::Frame;
use super::jobs::Row;
use super::section::{Cell, Section};
use super::servers::{model, place, standing};
use crate::data::{
    ConditionJson, ConditionList, InventoryJson, JobJson, JobPageJson, KeptCard, LastDiagnostics, ServerJson,
};
use crate::parts::{Badge, Copy};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The maximum of slots of a card that are shown.
const MAX_SLOTS: usize = 16;

/// The maximum of firmware entries that are shown.
const MAX_FIRMWARE: usize = 32;

/// The documents that the page of a server shows besides the server, its jobs and its card.
#[derive(Clone, Debug, Default)]
pub struct ServerParts {
    /// The out-of-band inventory of the server.
    pub inventory: InventoryJson,
    /// The newest condition of each kind.
    pub conditions: ConditionList,
    /// The last diagnostics.
    pub diagnostics: LastDiagnostics,
    /// The firmware set that fits the server, or why none does; `None` while vendor and model are not known.
    pub fitting: Option<Result<String, String>>,
    /// The job that has not ended, by [`ServerParts::next`].
    pub open: Option<JobJson>,
    /// The reason why the open job of the server has not begun; `None` without such a job.
    pub begins: Option<String>,
    /// The reason why the BMC could not be read now.
    pub refused: Option<String>,
}

impl ServerParts {
    /// The job that a server is busy with, of those that have not ended, the newest first: one that has begun, or else the one that
    /// waits longest.
    pub fn next(open: &[JobJson]) -> Option<&JobJson> {
        open.iter().find(|job| job.status != "queued").or(open.last())
    }
}

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
    restored: bool,
    now_job: Option<NowJob>,
    refused: Option<String>,
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
    sections: Vec<Section>,
}

/// The job of a server that has not ended.
struct NowJob {
    id: String,
    badge: Badge,
    state: State,
    head: &'static str,
    why: String,
}

impl NowJob {
    /// `begins` says why a queued job has not begun.
    fn of(job: &JobJson, begins: Option<&str>) -> Self {
        let (state, word) = words::state(job);
        let queued = job.status == "queued";
        let why = match (words::why(job), begins) {
            (why, Some(begins)) if why.is_empty() => words::cut(&words::capital(begins)),
            (why, _) if why.is_empty() && queued => "It is queued".to_owned(),
            (why, _) if why.is_empty() => "A job is at work".to_owned(),
            (why, _) => words::capital(&why),
        };
        let head = if queued { "A job has not begun" } else { "Now" };
        Self { id: job.job_id.clone(), badge: state.badge_saying(word), state, head, why }
    }
}

struct Slot {
    name: String,
    types: String,
    used: bool,
    text: &'static str,
    how: String,
}

/// The facts that the last discovery of a machine observed, in rows.
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
    pub fn of(
        f: Frame,
        server: &ServerJson,
        jobs: &JobPageJson,
        kept: &KeptCard,
        parts: &ServerParts,
    ) -> Self {
        let now = f.now;
        let (state, word, why) = standing(server, now);
        let now_job = parts.open.as_ref().map(|job| NowJob::of(job, parts.begins.as_deref()));
        let card = kept.card.as_ref().unwrap_or(&Value::Null);
        let plan = &card["slot_plan"];
        let observed = server.observed.as_ref();
        let bmc = match kept.card {
            Some(_) => card_facts(card),
            None => observed.map(observed_facts).unwrap_or_default(),
        };
        let named =
            plan["plan"].as_str().or_else(|| observed.and_then(|observed| observed["slot_plan"].as_str()));
        let mut sections = Vec::new();
        sections.extend(conditions(&parts.conditions, &server.serial, now));
        sections.push(firmware(parts, now));
        sections.extend(diagnosed(&parts.diagnostics, now));
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
            restored: server.restored.is_some(),
            now_job,
            refused: parts.refused.as_deref().map(words::cut),
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
            sections,
            f,
        }
    }
}

/// The newest condition of each kind, with the way to the earlier ones.
fn conditions(list: &ConditionList, serial: &str, now: jiff::Timestamp) -> Option<Section> {
    let row = |condition: &ConditionJson| {
        let (state, word) = match condition.state.as_str() {
            "pending" => (State::Queued, "Pending"),
            "active" => (State::Working, "Active"),
            "succeeded" => (State::Done, "Succeeded"),
            _ => (State::Failed, "Failed"),
        };
        let said = match condition.status.message.as_str() {
            message if message.eq_ignore_ascii_case(word) => String::new(),
            message => words::cut(message),
        };
        let history =
            filter::jobs(&format!("{} label:condition={}", filter::term("serial", serial), condition.kind));
        let acts = vec![(history, "Earlier", format!("Earlier conditions: {}", kind(&condition.kind)))];
        vec![
            Cell::Link(
                format!("/ui/jobs/{}", words::encoded(&condition.id)),
                kind(&condition.kind).to_owned(),
            ),
            Cell::Said(state.badge_saying(word), said),
            Cell::Time(When::of(condition.updated_at, now)),
            Cell::Acts(acts),
        ]
    };
    let rows: Vec<Vec<Cell>> = list.conditions.iter().map(row).collect();
    let section = Section::new("conditions", "Conditions", &["What", "State", "Changed", "History"], rows);
    (!list.conditions.is_empty()).then(|| section.note("the newest of each kind"))
}

/// The installed firmware, and the set that fits.
fn firmware(parts: &ServerParts, now: jiff::Timestamp) -> Section {
    let shown = parts.inventory.out_of_band.as_ref().map(|inventory| &inventory["firmware"]);
    let text = |entry: &Value, key: &str| words::cut(entry[key].as_str().unwrap_or_default());
    let row = |entry: &Value| {
        let name = match text(entry, "name") {
            name if name.is_empty() => text(entry, "id"),
            name => name,
        };
        vec![Cell::Two(name, text(entry, "id")), Cell::Text(text(entry, "version"))]
    };
    let entries = shown.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let fitting = match &parts.fitting {
        Some(Ok(set)) => format!("the set {set} fits"),
        Some(Err(why)) => words::cut(why),
        None => String::new(),
    };
    let read = parts.inventory.out_of_band_read_at.map(|at| format!("read {}", When::of(at, now).words()));
    let hidden = entries.len().saturating_sub(MAX_FIRMWARE) as u64;
    let hidden = (hidden > 0).then(|| words::count(hidden, "more is not shown", "more are not shown"));
    let notes: Vec<String> =
        read.into_iter().chain([fitting].into_iter().filter(|text| !text.is_empty())).chain(hidden).collect();
    Section::new(
        "firmware",
        "Firmware",
        &["Component", "Version"],
        entries.iter().take(MAX_FIRMWARE).map(row).collect(),
    )
    .note(notes.join(" · "))
    .or("Not known yet. “Request…” reads the inventory from the BMC; then a firmware set can be chosen.")
}

/// The checks of the last diagnostics, those that need a person first.
fn diagnosed(last: &LastDiagnostics, now: jiff::Timestamp) -> Option<Section> {
    let id = last.diagnostics_id.as_ref()?;
    let mut checks: Vec<_> = last.checks.iter().collect();
    checks.sort_by_key(|check| match check.status.as_str() {
        "fail" => 0,
        "warn" => 1,
        _ => 2,
    });
    let row = |check: &&crate::data::DiagnosticCheck| {
        let (state, word) = match check.status.as_str() {
            "pass" => (State::Done, "Passed"),
            "warn" => (State::Waiting, "Check it"),
            "fail" => (State::Failed, "Failed"),
            _ => (State::Queued, "Not tried"),
        };
        vec![
            Cell::text(&check.name),
            Cell::State(state.badge_saying(word)),
            Cell::Two(words::cut(&check.found), words::cut(&check.next_action)),
        ]
    };
    let note = match last.ended_at {
        Some(at) => When::of(at, now).words().to_owned(),
        None => "they run now".to_owned(),
    };
    let rows = checks.iter().map(row).collect();
    let job = (format!("/ui/jobs/{}", words::encoded(id)), "The job");
    Some(
        Section::new("diagnostics", "Diagnostics", &["Check", "Result", "Found"], rows)
            .note(note)
            .or("No result yet.")
            .more(Some(job)),
    )
}
