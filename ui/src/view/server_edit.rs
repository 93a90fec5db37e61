//! Changes of a server: its form with the preview of what would change, its release after a restore, its deletion.

use serde_json::Value;

use super::filter;
use super::form::{Field, FormView};
use super::frame::Frame;
use super::section::{Cell, Section};
use crate::data::{BelievedJob, ErrorDetail, JobPageJson, ObservedMachine, RestoredServerJson, ServerJson};
use crate::parts::short_id;
use crate::state::State;
use crate::time::When;
use crate::words;

/// The checks of a certificate, with what each means.
const TLS: [(&str, &str); 3] = [
    ("verify", "verify: signed by a known authority"),
    ("pinned", "pinned: exactly this certificate"),
    ("insecure", "insecure: any certificate"),
];

/// The decisions about the unfinished jobs of a server that is released.
const DECISIONS: [(&str, &str); 3] = [
    ("", "Decide…"),
    ("continue", "They continue where the data says they were"),
    ("end", "They end at once; nothing is sent to the BMC"),
];

/// The fields of a server as its form has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerForm {
    /// The URL of the BMC.
    pub bmc_address: String,
    /// The login at the BMC.
    pub bmc_username: String,
    /// The labels, one on each line.
    pub labels: String,
    /// The vendor.
    pub vendor: String,
    /// The profile.
    pub bmc_profile: String,
    /// The overridden flags, as JSON.
    pub quirks: String,
    /// The network of the machine, as JSON.
    pub network: String,
    /// The check of the certificate: `verify`, `pinned` or `insecure`.
    pub tls: String,
    /// The accepted certificate.
    pub tls_fingerprint: String,
    /// The certificate that was accepted when the form was made. The first contact may have pinned one since, without a new revision.
    pub tls_fingerprint_before: String,
    /// Whether a BMC that shows no serial number is accepted.
    pub allow_unverified_serial: bool,
    /// The URL under which the BMC reads media.
    pub media_base_url: String,
    /// The revision of the server from which the form was made.
    pub revision: String,
    /// The number of labels that the form cannot show, and leaves as they are.
    pub hidden_labels: usize,
}

fn choices(from: &[(&str, &str)]) -> Vec<(String, String)> {
    from.iter().map(|(value, words)| ((*value).to_owned(), (*words).to_owned())).collect()
}

/// The differences between two states of a server: for each the name, the former value, the new one.
fn differences(before: &ServerJson, after: &ServerJson, password: bool) -> Vec<Vec<Cell>> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let object = |value: &Option<serde_json::Map<String, Value>>| {
        value.as_ref().map(|value| serde_json::json!(value).to_string()).unwrap_or_default()
    };
    let flag = |on: bool| if on { "yes" } else { "no" }.to_owned();
    let mut pairs = vec![
        ("BMC address".to_owned(), before.bmc_address.clone(), after.bmc_address.clone()),
        ("BMC user".to_owned(), before.bmc_username.clone(), after.bmc_username.clone()),
        ("Certificate check".to_owned(), before.tls.clone(), after.tls.clone()),
        ("Certificate".to_owned(), text(&before.tls_fingerprint), text(&after.tls_fingerprint)),
        (
            "Accepted without a serial number".to_owned(),
            flag(before.allow_unverified_serial),
            flag(after.allow_unverified_serial),
        ),
        ("Vendor".to_owned(), text(&before.vendor), text(&after.vendor)),
        ("Profile".to_owned(), text(&before.bmc_profile), text(&after.bmc_profile)),
        ("Network".to_owned(), object(&before.network), object(&after.network)),
        ("Media URL".to_owned(), text(&before.media_base_url), text(&after.media_base_url)),
    ];
    let keys =
        before.labels.keys().chain(after.labels.keys().filter(|key| !before.labels.contains_key(*key)));
    pairs.extend(keys.map(|key| {
        let value = |server: &ServerJson| server.labels.get(key).cloned();
        (format!("Label {key}"), value(before).unwrap_or_default(), value(after).unwrap_or_default())
    }));
    let none = serde_json::Map::new();
    let flags = (before.quirks.as_ref().unwrap_or(&none), after.quirks.as_ref().unwrap_or(&none));
    let keys = flags.0.keys().chain(flags.1.keys().filter(|key| !flags.0.contains_key(*key)));
    pairs.extend(keys.map(|key| {
        let value = |flags: &serde_json::Map<String, Value>| flags.get(key).map(Value::to_string);
        (format!("Flag {key}"), value(flags.0).unwrap_or_default(), value(flags.1).unwrap_or_default())
    }));
    let cell = |value: &str| match value {
        "" => Cell::text("not set"),
        value => Cell::Code(words::cut(value)),
    };
    let changed = pairs.iter().filter(|(_, old, new)| old != new);
    let mut rows: Vec<Vec<Cell>> =
        changed.map(|(name, old, new)| vec![Cell::text(name), cell(old), cell(new)]).collect();
    if password {
        rows.push(vec![Cell::text("BMC password"), Cell::text("stored"), Cell::text("another one")]);
    }
    rows
}

impl FormView {
    /// The form that changes a server.
    pub fn server(f: Frame, serial: &str, entered: &ServerForm, refused: Vec<ErrorDetail>) -> Self {
        let path = format!("/ui/servers/{}", words::encoded(serial));
        let view = Self::new(f, format!("Change {serial}"), format!("{path}/edit"), path.clone())
            .below(path.clone(), serial)
            .intro("The next page shows what would change. Nothing is sent to the BMC.")
            .refused(refused)
            .hidden("revision", entered.revision.clone())
            .hidden("tls_fingerprint_before", entered.tls_fingerprint_before.clone())
            .field(
                Field::area("labels", "Labels, one on each line", &entered.labels, 4)
                    .hint("Such as site=north. A line that is removed removes its label."),
            )
            .field(Field::text("bmc_address", "BMC address", &entered.bmc_address).required())
            .field(Field::text("bmc_username", "BMC user", &entered.bmc_username).required())
            .field(Field::new_password("bmc_password", "New BMC password").hint(
                "Empty: the password stays. Another address or a weaker check of the certificate needs it.",
            ))
            .field(Field::choice("tls", "Certificate check", &entered.tls, choices(&TLS)))
            .field(
                Field::text("tls_fingerprint", "Fingerprint of the certificate", &entered.tls_fingerprint)
                    .hint("SHA-256. Empty: the next certificate that the BMC shows is accepted and kept."),
            )
            .field(Field::switch(
                "allow_unverified_serial",
                "A BMC that shows no serial number is accepted",
                entered.allow_unverified_serial,
            ))
            .field(
                Field::text("vendor", "Vendor", &entered.vendor)
                    .hint("For operators; nothing depends on it."),
            )
            .field(
                Field::text("bmc_profile", "Profile", &entered.bmc_profile)
                    .hint("Empty: the profile that the BMC is recognised by."),
            )
            .field(
                Field::area("quirks", "Overridden flags of the profile, as JSON", &entered.quirks, 3)
                    .hint("Empty: those of the profile."),
            )
            .field(
                Field::area("network", "Network of the machine, as JSON", &entered.network, 3)
                    .hint("Such as the field network of a recipe. Empty: that of the recipe, or DHCP."),
            )
            .field(
                Field::text("media_base_url", "URL under which the BMC reads media", &entered.media_base_url)
                    .hint("Empty: that of the settings."),
            )
            .link(format!("{path}/delete"), "Delete the server…")
            .previews("Preview");
        match entered.hidden_labels as u64 {
            0 => view,
            hidden => view.note(
                State::Queued,
                format!(
                    "{} not shown here, because a line cannot hold it; it stays. Use shoal server update.",
                    words::count(hidden, "label is", "labels are")
                ),
            ),
        }
    }

    /// The preview of a change of a server. `sealed` is the change.
    pub fn server_change(
        f: Frame,
        before: &ServerJson,
        after: &ServerJson,
        password: bool,
        sealed: &str,
    ) -> Self {
        let serial = &before.serial;
        let path = format!("/ui/servers/{}", words::encoded(serial));
        let rows = differences(before, after, password);
        let number = rows.len() as u64;
        let view =
            Self::new(f, format!("Change {serial}?"), format!("{path}/edit/confirm"), format!("{path}/edit"))
                .below(path, serial)
                .hidden("change", sealed)
                .hidden("revision", before.revision.to_string());
        let view = match number {
            0 => view.note(State::Queued, "The server has these values already."),
            number => view
                .effect(State::Done, format!("{} stored.", words::count(number, "value is", "values are")))
                .effect(
                    State::Queued,
                    "Nothing is sent to the BMC. Jobs use the values at their next request.",
                )
                .yes("Change the server"),
        };
        let view = match (before.tls.as_str(), after.tls.as_str()) {
            (checked, "insecure") if checked != "insecure" => view.effect(
                State::Waiting,
                "The certificate is not checked any more: any machine at this address receives the password.",
            ),
            _ => view,
        };
        let columns = ["What", "Now", "Then"];
        view.section(Section::new("changes", "What changes", &columns, rows).or("Nothing changes."))
    }

    /// The question before a server is deleted. `jobs` are its newest stored jobs.
    pub fn delete_server(f: Frame, server: &ServerJson, jobs: &JobPageJson) -> Self {
        let serial = &server.serial;
        let path = format!("/ui/servers/{}", words::encoded(serial));
        let view = Self::new(f, format!("Delete {serial}?"), format!("{path}/delete"), path.clone())
            .below(path.clone(), serial);
        if jobs.jobs.is_empty() {
            return view
                .effect(
                    State::Failed,
                    "The server leaves the list, with its labels, the login of its BMC and what was learned about it.",
                )
                .effect(State::Queued, "Nothing is sent to the BMC. Events and audit log keep the serial number.")
                .risky()
                .yes("Delete the server");
        }
        view.note(
            State::Held,
            "The server has stored jobs, so it is not deleted: they are removed JOB_RETENTION_DAYS after their end, or with \
             the server by `shoal server remove SERIAL --with-history`. Until then a maintenance keeps further jobs from \
             starting.",
        )
        .link(filter::jobs(&filter::term("serial", serial)), "Its jobs")
        .link(format!("{path}/maintenance"), "Maintenance…")
    }

    /// The question before a server of restored data is released: what the data says beside what the BMC shows.
    pub fn release_server(
        f: Frame,
        server: &RestoredServerJson,
        decision: &str,
        refused: Vec<ErrorDetail>,
    ) -> Self {
        let now = f.now;
        let serial = &server.serial;
        let path = format!("/ui/servers/{}", words::encoded(serial));
        let view = Self::new(f, format!("Release {serial}?"), format!("{path}/release"), path.clone())
            .below(path, serial)
            .refused(refused);
        let Some(restored) = &server.restored else {
            return view.note(State::Done, "The server is released; jobs start on it.");
        };
        let jobs = &server.believed.jobs;
        let view = view
            .intro(format!(
                "Its data was restored: {}. It ends {}: compare it with the machine first.",
                words::cut(&restored.reason),
                When::of(restored.as_of, now).words()
            ))
            .effect(State::Working, "Jobs start on the server again.");
        let view = match &server.problem {
            Some(problem) => view.note(State::Failed, format!("The BMC could not be read: {problem}")),
            None => view,
        };
        let view = match jobs.len() as u64 {
            0 => view.effect(State::Done, "The data has no unfinished job of the server."),
            number => view
                .effect(
                    State::Waiting,
                    format!(
                        "{} in the data: decide by what the machine shows.",
                        words::count(number, "job has not ended", "jobs have not ended")
                    ),
                )
                .field(Field::choice("jobs", "Unfinished jobs", decision, choices(&DECISIONS))),
        };
        let columns = ["Job", "At", "Completed last", "Changed"];
        let rows = jobs.iter().map(|job| believed(job, now)).collect();
        let seen = match server.believed.last_seen {
            Some(at) => format!("the BMC responded last {}", When::of(at, now).words()),
            None => String::new(),
        };
        let believed = Section::new("believed", "What the data says", &columns, rows)
            .note(seen)
            .or("No job of the server was unfinished.");
        let rows = server.observed.as_ref().map(observed).unwrap_or_default();
        let read = server.observed.as_ref().map(|observed| When::of(observed.at, now).words().to_owned());
        let observed = Section::new("observed", "What the BMC shows", &["What", "State"], rows)
            .note(read.unwrap_or_default())
            .or("The BMC could not be read.");
        view.yes("Release the server").section(observed).section(believed)
    }
}

fn believed(job: &BelievedJob, now: jiff::Timestamp) -> Vec<Cell> {
    let step = |name: &Option<String>| name.as_deref().map(words::step).unwrap_or("not begun").to_owned();
    vec![
        Cell::Named(
            format!("/ui/jobs/{}", words::encoded(&job.job_id)),
            short_id(&job.job_id),
            words::workflow(&job.workflow).to_owned(),
        ),
        Cell::Two(step(&job.step), words::cut(job.waiting.as_deref().unwrap_or_default())),
        Cell::Text(job.completed.as_deref().map(words::step).unwrap_or("none").to_owned()),
        Cell::Time(When::of(job.updated_at, now)),
    ]
}

/// The maximum of slots that are shown.
const MAX_SLOTS: usize = 16;

fn observed(machine: &ObservedMachine) -> Vec<Vec<Cell>> {
    let fact = |name: &str, value: &str| vec![Cell::text(name), Cell::text(value)];
    let serial = machine.serial_check.as_deref().unwrap_or("not shown");
    let boot = ["target", "enabled"]
        .into_iter()
        .filter_map(|key| machine.boot[key].as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let mut rows = vec![
        fact("Host", machine.power.as_deref().unwrap_or("not shown")),
        fact("Serial number", serial),
        fact("Boot override", if boot.is_empty() { "not shown" } else { &boot }),
    ];
    rows.extend(machine.media.iter().take(MAX_SLOTS).map(|slot| {
        let state = if slot.empty { "empty" } else { "media inserted" };
        vec![Cell::text(&format!("Slot {}", slot.id)), Cell::text(state)]
    }));
    rows
}
