//! Firmware: files and sets; the firmware of one server, and what a set would do to it.

use super::ask::AskEffect;
use super::form::{Field, FormView};
use super::frame::Frame;
use super::registry::digest;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{
    ConditionPreview, FirmwareJson, FirmwarePage, FirmwareSetJson, FirmwareSetPage, PlanItemJson,
};
use crate::parts::{Copy, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The maximum of models that a row names.
const MODELS: usize = 4;
/// The maximum of files or sets on the page.
const SHOWN: usize = 200;

/// The kinds of conditions that can be requested, with their words.
const KINDS: [(&str, &str); 5] = [
    ("inventoryOOB", "Read the inventory from the BMC"),
    ("powerCycleSoft", "Power cycle: shut down, then power on"),
    ("powerCycleHard", "Power cycle: force off, then power on"),
    ("bmcReset", "Restart the BMC"),
    ("firmwareInstall", "Install firmware"),
];

/// A kind of condition in words.
pub(crate) fn kind(name: &str) -> &str {
    KINDS.iter().find(|(kind, _)| *kind == name).map_or(name, |(_, words)| words)
}

/// The page of a firmware set.
fn set_path(name: &str) -> String {
    format!("/ui/firmware/sets/{}", words::encoded(name))
}

fn file_cells(file: &FirmwareJson) -> Vec<Cell> {
    let mut models = file.models.iter().take(MODELS).cloned().collect::<Vec<_>>().join(", ");
    if file.models.len() > MODELS {
        models.push_str(&format!(" and {} more", file.models.len() - MODELS));
    }
    vec![
        Cell::Two(file.component.clone(), words::cut(&file.filename)),
        Cell::text(&file.version),
        Cell::Two(words::cut(&file.vendor), words::cut(&models)),
        Cell::Text(words::bytes(file.size)),
        Cell::text(restart(&file.restart)),
        Cell::Copy(Copy { what: "digest", text: file.digest.clone(), shown: digest(&file.digest) }),
    ]
}

const FILE_COLUMNS: [&str; 6] = ["Component", "Version", "For", "Size", "Restart", "Digest"];

fn restart(word: &str) -> &str {
    match word {
        "none" => "no restart",
        "host" => "the host restarts",
        other => other,
    }
}

fn labels(set: &FirmwareSetJson) -> String {
    let labels = set.labels.iter().map(|(key, value)| format!("{key}={value}"));
    words::cut(&labels.collect::<Vec<_>>().join(", "))
}

impl TableView {
    /// Firmware files and sets.
    pub fn firmware(f: Frame, files: &FirmwarePage, sets: &FirmwareSetPage) -> Self {
        let now = f.now;
        let set_row = |set: &FirmwareSetJson| {
            vec![
                Cell::Named(set_path(&set.name), set.name.clone(), labels(set)),
                Cell::Text(words::count(set.files.len() as u64, "file", "files")),
                Cell::text(&set.created_by),
                Cell::Time(When::of(set.created_at, now)),
            ]
        };
        let all = files.firmware.len();
        let note = match all > SHOWN {
            true => format!("{SHOWN} of {all} are shown; `shoal firmware list` shows all"),
            false => words::count(all as u64, "file", "files"),
        };
        let mut sections = vec![
            Section::new(
                "sets",
                "Sets",
                &["Set", "Files", "Made by", "Made"],
                sets.sets.iter().take(SHOWN).map(set_row).collect(),
            )
            .note("what is installed together; labels say for which servers")
            .or("No set yet. `shoal firmware set create` makes one of files that are here."),
            Section::new(
                "files",
                "Files",
                &FILE_COLUMNS,
                files.firmware.iter().take(SHOWN).map(file_cells).collect(),
            )
            .note(note)
            .or("No file yet. `shoal firmware add` brings one in, `shoal firmware set import` a vendor’s catalogue."),
        ];
        if !files.unusable.is_empty() {
            let row = |one: &crate::data::UnusableFirmwareJson| {
                let copy = Copy { what: "digest", text: one.digest.clone(), shown: digest(&one.digest) };
                vec![Cell::text(&one.repository), Cell::text(&one.reason), Cell::Copy(copy)]
            };
            let rows = files.unusable.iter().take(SHOWN).map(row).collect();
            sections.push(
                Section::new("unusable", "Not usable", &["Repository", "Why", "Digest"], rows)
                    .note("they say that they are firmware, and cannot be read as such"),
            );
        }
        Self::new(f, "Firmware", "Files in the registry, and sets of them.", sections)
            .below("/ui/registry", "Registry")
    }

    /// One set with its files.
    pub fn firmware_set(f: Frame, set: &FirmwareSetJson) -> Self {
        let made = format!(
            "{} Made by {} {}.",
            labels(set),
            set.created_by,
            When::of(set.created_at, f.now).words()
        );
        let rows = set.files.iter().map(file_cells).collect();
        let section =
            Section::new("files", "Files", &FILE_COLUMNS, rows).note("in the order of installation");
        Self::new(f, &format!("Set {}", set.name), made.trim(), vec![section])
            .below("/ui/firmware", "Firmware")
    }
}

impl FormView {
    /// The question before a condition of a server: which one, and what it would do.
    pub fn condition(
        f: Frame,
        serial: &str,
        chosen: &str,
        (set, sets): (&str, &[String]),
        preview: Option<&ConditionPreview>,
        key: &str,
    ) -> Self {
        let path = format!("/ui/servers/{}", words::encoded(serial));
        let Some(preview) = preview else { return choose(f, serial, chosen, (set, sets)) };
        let view =
            Self::new(f, format!("{} on {serial}?", kind(chosen)), format!("{path}/condition"), path.clone())
                .below(path, serial)
                .intro(words::cut(&format!("{}.", super::overview::capital(&preview.does))))
                .hidden("kind", chosen)
                .hidden("set", set)
                .hidden("key", key)
                .link(format!("/ui/servers/{}/condition", words::encoded(serial)), "Something else…");
        let view = effects(preview)
            .into_iter()
            .fold(view, |view, AskEffect { state, text }| view.effect(state, text));
        let view = match &preview.refused {
            Some(why) => view.note(State::Failed, why.clone()),
            None => view.yes(kind(chosen)),
        };
        let view =
            if chosen == "firmwareInstall" || chosen.starts_with("power") { view.risky() } else { view };
        match &preview.plan {
            Some(plan) => view.section(plan_section(plan)),
            None => view,
        }
    }
}

fn choose(f: Frame, serial: &str, chosen: &str, (set, sets): (&str, &[String])) -> FormView {
    let path = format!("/ui/servers/{}", words::encoded(serial));
    let kinds = KINDS.iter().map(|(kind, words)| ((*kind).to_owned(), (*words).to_owned())).collect();
    let any = ("".to_owned(), "the one that fits vendor and model".to_owned());
    let sets: Vec<(String, String)> =
        std::iter::once(any).chain(sets.iter().map(|set| (set.clone(), set.clone()))).collect();
    let view = FormView::new(
        f,
        format!("Request something of {serial}"),
        format!("{path}/condition"),
        path.clone(),
    )
    .below(path, serial)
    .intro(
        "It is shown first, and done when you have seen it. It runs as a job under the lock of the server.",
    )
    .field(Field::choice("kind", "What", chosen, kinds));
    let view = match sets.len() {
        1 => view,
        _ => view.field(Field::choice("set", "Firmware set, for an installation", set, sets)),
    };
    view.previews("Preview")
}

fn effects(preview: &ConditionPreview) -> Vec<AskEffect> {
    let mut effects = Vec::new();
    let mut effect = |state, text: String| effects.push(AskEffect { state, text: words::cut(&text) });
    if let Some(set) = preview.parameters["firmware_set"].as_str() {
        effect(State::Queued, format!("The firmware set: {set}"));
    }
    if let Some(plan) = &preview.plan {
        let of = |decision: &str| plan.iter().filter(|item| item.decision == decision).count() as u64;
        if of("install") > 0 {
            effect(
                State::Waiting,
                format!("{} installed.", words::count(of("install"), "component is", "components are")),
            );
        }
        if of("skip") > 0 {
            effect(
                State::Done,
                format!("{} left as it is.", words::count(of("skip"), "component is", "components are")),
            );
        }
        if of("unknown") > 0 {
            let text = "A part of the inventory could not be read: a device may be left as it is.";
            effect(State::Waiting, text.to_owned());
        }
        if of("refuse") > 0 {
            effect(State::Failed, "The plan refuses a component: nothing would be installed.".to_owned());
        }
    }
    if let Some(why) = &preview.plan_missing {
        effect(State::Waiting, format!("There is no plan: {why}"));
    }
    if let Some(job) = &preview.waits_for {
        effect(State::Waiting, format!("It waits for the end of job {}", short_id(job)));
    }
    for gate in &preview.gates {
        effect(State::Waiting, format!("It waits for a closed gate: {gate}"));
    }
    effects
}

/// The table of an installation plan: one row for each component.
pub(crate) fn plan_section(plan: &[PlanItemJson]) -> Section {
    let row = |item: &PlanItemJson| {
        let (state, word) = match item.decision.as_str() {
            "install" => (State::Waiting, "Install"),
            "skip" => (State::Done, "Stays"),
            "unknown" => (State::Waiting, "Not known"),
            _ => (State::Failed, "Refused"),
        };
        let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "–".to_owned());
        vec![
            Cell::Two(item.component.clone(), words::cut(item.id.as_deref().unwrap_or_default())),
            Cell::Said(state.badge_saying(word), words::cut(&item.reason)),
            Cell::Text(words::cut(&format!("{} → {}", version(&item.now), version(&item.then)))),
            Cell::Text(item.size.map(words::bytes).unwrap_or_default()),
            Cell::text(restart(item.restart.as_ref().and_then(|word| word.as_str()).unwrap_or_default())),
        ]
    };
    let columns = ["Component", "Decision", "Now → then", "Sent", "Restart"];
    Section::new("plan", "The plan", &columns, plan.iter().map(row).collect())
        .note("of the stored inventory; the job reads it again")
        .or("The set has nothing for this server.")
}
