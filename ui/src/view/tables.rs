//! Pages that are tables and nothing else: events and the audit log with their filters, settings, search results.

use crate::data::{AuditPage, EventPage, JobPageJson, ServerPage, SettingPage};
use crate::parts::short_id;
use crate::state::State;
use crate::time::When;
use crate::words;

use super::frame::Frame;
use super::section::{Cell, Section};
use super::table::{FilterField, TableView};

/// Name, label, value and example of a filter.
type FilterPart<'a> = (&'static str, &'static str, &'a str, &'static str);

/// The filters of the event log; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsSearch {
    /// The serial number of the server.
    pub server: String,
    /// Globs of types, with commas between them.
    pub types: String,
    /// The least level.
    pub level: String,
    /// The name of the actor, or `people`.
    pub actor: String,
    /// The first day or time.
    pub since: String,
    /// The day or time before which the events are.
    pub until: String,
}

impl EventsSearch {
    fn parts(&self) -> [FilterPart<'_>; 6] {
        [
            ("server", "Server", &self.server, "9F86W24"),
            ("type", "Type", &self.types, "job.*"),
            ("level", "Level at least", &self.level, "warn"),
            ("actor", "Who", &self.actor, "people"),
            ("since", "Since", &self.since, "2026-11-23"),
            ("until", "Until", &self.until, "2026-11-24T06:00:00Z"),
        ]
    }

    /// The filters that are set, as parameters of the API.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters_of(&self.parts())
    }
}

/// The filters that are set, as parameters of the API. A day is its begin in UTC, as all times of the interface are.
fn parameters_of(parts: &[FilterPart<'_>]) -> Vec<(&'static str, String)> {
    let set = parts.iter().filter(|(_, _, value, _)| !value.is_empty());
    set.map(|(name, _, value, _)| match *name {
        "since" | "until" if value.len() == "2026-11-23".len() => (*name, format!("{value}T00:00:00Z")),
        name => (name, (*value).to_owned()),
    })
    .collect()
}

/// A query of the filters that are set; empty without one.
fn query_of(parts: &[FilterPart<'_>]) -> String {
    let set = parts.iter().filter(|(_, _, value, _)| !value.is_empty());
    set.map(|(name, _, value, _)| format!("{name}={}", words::encoded(value))).collect::<Vec<_>>().join("&")
}

/// The fields of the form of these filters.
fn fields_of(parts: &[FilterPart<'_>]) -> Vec<FilterField> {
    let field = |(name, label, value, example): &FilterPart<'_>| FilterField {
        name,
        label,
        value: (*value).to_owned(),
        example,
    };
    parts.iter().map(field).collect()
}

/// The filters of the audit log; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditSearch {
    /// The name of the user or token.
    pub actor: String,
    /// The action; `user.*` for all that begin so.
    pub action: String,
    /// The target; `server/*` for all that begin so.
    pub target: String,
    /// The first day or time.
    pub since: String,
}

impl AuditSearch {
    fn parts(&self) -> [FilterPart<'_>; 4] {
        [
            ("action", "Action", &self.action, "user.*"),
            ("target", "Target", &self.target, "server/*"),
            ("actor", "Who", &self.actor, "ann"),
            ("since", "Since", &self.since, "2026-11-23"),
        ]
    }

    /// The filters that are set, as parameters of the API.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters_of(&self.parts())
    }
}

impl TableView {
    /// The event log, the newest first. `refused` says why the filters were not understood.
    pub fn events(f: Frame, page: &EventPage, search: &EventsSearch, refused: Option<String>) -> Self {
        let now = f.now;
        let row = |event: &crate::data::EventJson| {
            let about = match (&event.job_id, &event.server_serial) {
                (Some(job), server) => {
                    let name = server.clone().unwrap_or_else(|| short_id(job));
                    Cell::Link(format!("/ui/jobs/{job}"), name)
                }
                (None, Some(server)) => {
                    Cell::Link(format!("/ui/servers/{}", words::encoded(server)), server.clone())
                }
                (None, None) => Cell::Text(String::new()),
            };
            let level = match event.level.as_str() {
                "error" => State::Failed,
                "warn" => State::Waiting,
                _ => State::Queued,
            };
            vec![
                Cell::Two(words::cut(&event.message), format!("{} · {}", event.kind, event.seq)),
                Cell::State(level.badge_saying(&event.level)),
                about,
                Cell::text(&event.actor),
                Cell::Time(When::of(event.time, now)),
            ]
        };
        let rows = page.events.iter().rev().map(row).collect();
        let query = query_of(&search.parts());
        let older = |before: i64| {
            let more = if query.is_empty() { "" } else { "&" };
            (format!("/ui/events?before={before}{more}{query}"), "Older")
        };
        let empty = match (query.is_empty(), page.previous) {
            (true, _) => "Nothing has happened yet.",
            (false, None) => "No event matches. Take a filter away.",
            (false, Some(_)) => "No event of this part of the log matches; there are older ones.",
        };
        let section = Section::new("log", "Newest first", &["What", "Level", "About", "Who", "When"], rows)
            .or(empty)
            .more(page.previous.map(older));
        let sub = "Everything that happened, and who caused it.";
        Self { filters: fields_of(&search.parts()), refused, ..Self::new(f, "Events", sub, vec![section]) }
            .acts(vec![("/ui/webhooks".to_owned(), "Webhooks")])
    }

    /// The settings with their origins.
    pub fn settings(f: Frame, page: &SettingPage) -> Self {
        let row = |setting: &crate::data::Setting| {
            let value = match setting.value.as_str() {
                "" => Cell::Text("not set".to_owned()),
                value => Cell::Code(words::cut(value)),
            };
            vec![Cell::Code(setting.name.clone()), value, Cell::text(&setting.origin)]
        };
        let (set, usual): (Vec<_>, Vec<_>) =
            page.settings.iter().partition(|setting| setting.origin != "default");
        let section = |id, title: &str, rows: Vec<&crate::data::Setting>, empty| {
            let note = words::count(rows.len() as u64, "setting", "settings");
            let rows = rows.into_iter().map(row).collect();
            Section::new(id, title, &["Setting", "Value", "From"], rows).note(note).or(empty)
        };
        let sections = vec![
            section("set", "Set here", set, "Every setting has its default."),
            section("usual", "Defaults", usual, "No setting has its default."),
        ];
        let sub = "Read at the start from flags, environment and file; `shoal config show` prints the same.";
        Self::new(f, "Settings", sub, sections)
            .acts(vec![("/ui/users".to_owned(), "Users and tokens"), ("/ui/audit".to_owned(), "Audit log")])
    }

    /// The audit log, the newest first.
    /// `refused` says why the filters were not understood.
    pub fn audit(f: Frame, page: &AuditPage, filter: &AuditSearch, refused: Option<String>) -> Self {
        let now = f.now;
        let row = |entry: &crate::data::AuditEntryJson| {
            let state = if entry.result == "ok" { State::Done } else { State::Failed };
            let times = if entry.count > 1 { format!(", {} times", entry.count) } else { String::new() };
            vec![
                Cell::Two(entry.action.clone(), words::cut(&entry.target)),
                Cell::State(state.badge_saying(&format!("{}{times}", entry.result))),
                Cell::Two(words::cut(&entry.actor), words::cut(&entry.source)),
                Cell::Time(When::of(entry.time, now)),
            ]
        };
        let query = query_of(&filter.parts());
        let older = |next: &String| {
            let more = if query.is_empty() { "" } else { "&" };
            (format!("/ui/audit?cursor={}{more}{query}", words::encoded(next)), "Older")
        };
        let rows = page.entries.iter().map(row).collect();
        let empty = match query.as_str() {
            "" => "No entry yet.",
            _ => "No entry matches. Take a filter away.",
        };
        let section = Section::new("audit", "Newest first", &["Action", "Result", "Who", "When"], rows)
            .note(if page.head.is_empty() { String::new() } else { format!("head {}", short_id(&page.head)) })
            .or(empty)
            .more(page.next.as_ref().map(older));
        let file = |ending: &str| match query.as_str() {
            "" => format!("/ui/audit/audit.{ending}"),
            query => format!("/ui/audit/audit.{ending}?{query}"),
        };
        let acts = match refused {
            Some(_) => Vec::new(),
            None => vec![(file("csv"), "Download CSV"), (file("jsonl"), "Download JSON lines")],
        };
        let sub = "Each change and each refusal, chained. A download has what the filters select; `shoal audit export` writes the whole log \
                   so that `shoal audit verify` checks its chain.";
        Self { filters: fields_of(&filter.parts()), refused, ..Self::new(f, "Audit log", sub, vec![section]) }
            .below("/ui/settings", "Settings")
            .acts(acts)
    }

    /// The results of a search: jobs and servers.
    pub fn found(f: Frame, asked: &str, jobs: &JobPageJson, servers: &ServerPage) -> Self {
        let now = f.now;
        let server_rows = servers.servers.iter().map(|server| {
            let path = format!("/ui/servers/{}", words::encoded(&server.serial));
            vec![Cell::Link(path, server.serial.clone()), Cell::text(&super::servers::model(server))]
        });
        let job_rows = jobs.jobs.iter().map(|job| {
            let (state, word) = words::state(job);
            let name = job.server_serial.clone().unwrap_or_else(|| short_id(&job.job_id));
            vec![
                Cell::Link(format!("/ui/jobs/{}", job.job_id), name),
                Cell::State(state.badge_saying(word)),
                Cell::text(&words::why(job)),
                Cell::Time(When::of(job.last_update, now)),
            ]
        });
        let mut servers = Section::new("servers", "Servers", &["Server", "Model"], server_rows.collect())
            .or("No server has this in its texts.");
        let columns = ["Job", "State", "Why", "Changed"];
        let mut jobs =
            Section::new("jobs", "Jobs", &columns, job_rows.collect()).or("No job has this in its texts.");
        (servers.hits, jobs.hits) = (true, true);
        let (title, sections) = match asked {
            "" => ("Find".to_owned(), Vec::new()),
            asked => (format!("Found for “{}”", words::cut(asked)), vec![servers, jobs]),
        };
        Self { search: true, ..Self::new(f, &title, "", sections) }
    }
}
