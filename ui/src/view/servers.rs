//! The list of servers.

use askama::Template;
use jiff::Timestamp;

use super::filter;
use super::frame::Frame;
use crate::data::{ServerJson, ServerPage};
use crate::parts::{Badge, Copy};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The tabs: a name, the state whose colour it has, and the term of its filter.
const TABS: [(&str, Option<State>, &str); 6] = [
    ("All", None, ""),
    ("Free", Some(State::Done), "state:free"),
    ("In use", Some(State::Waiting), "state:busy"),
    ("In maintenance", Some(State::Held), "state:maintenance"),
    ("Cleanup is due", Some(State::Failed), "state:pending-cleanup"),
    ("Never seen", Some(State::Queued), "state:unseen"),
];

/// The list of servers.
#[derive(Template)]
#[template(path = "servers.html")]
pub struct ServersView {
    f: Frame,
    query: String,
    tabs: Vec<Tab>,
    refused: Option<String>,
    rows: Vec<Row>,
    first: bool,
    more: Option<String>,
}

struct Tab {
    name: &'static str,
    state: Option<State>,
    path: String,
    current: bool,
}

struct Row {
    serial: String,
    path: String,
    model: String,
    badge: Badge,
    why: String,
    place: String,
    address: Copy,
    profile: String,
    slots: String,
    seen: Option<When>,
}

/// The state of a server apart from its jobs, with its word and its reason.
pub(crate) fn standing(server: &ServerJson, now: Timestamp) -> (State, &'static str, String) {
    match (&server.restored, &server.maintenance) {
        (Some(_), _) => (
            State::Held,
            "Restored",
            "its data was restored, and nothing is done until it is released".to_owned(),
        ),
        (None, Some(closed)) => {
            let since = When::of(closed.since, now);
            let why = match closed.reason.as_str() {
                "" => format!("maintenance by {}, {}", closed.by, since.words()),
                reason => format!("maintenance by {}, {}: {reason}", closed.by, since.words()),
            };
            (State::Held, "Maintenance", words::cut(&why))
        }
        (None, None) if server.pending_cleanup.is_some() => (
            State::Failed,
            "Cleanup is due",
            "the last job could not clean up; the next one does it".to_owned(),
        ),
        (None, None) if server.last_seen.is_none() => {
            (State::Queued, "Never seen", "its BMC has not responded yet".to_owned())
        }
        (None, None) => (State::Done, "Ready", String::new()),
    }
}

/// The manufacturer and the model of a server, as its BMC or its operator says them.
pub(crate) fn model(server: &ServerJson) -> String {
    let observed = |key: &str| server.observed.as_ref().and_then(|observed| observed[key].as_str());
    let words = [observed("manufacturer").or(server.vendor.as_deref()), observed("model")];
    words::cut(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// The place of a server: site, rack and unit of its labels.
pub(crate) fn place(server: &ServerJson) -> String {
    let keys = [("site", ""), ("rack", "rack "), ("unit", "unit ")];
    let label = |(key, word): (&str, &str)| server.labels.get(key).map(|value| format!("{word}{value}"));
    keys.into_iter().filter_map(label).collect::<Vec<_>>().join(", ")
}

impl Row {
    fn of(server: &ServerJson, busy: bool, now: Timestamp) -> Self {
        let (state, word, why) = match (busy, standing(server, now)) {
            // What an operator has closed stays closed for the job that has not begun.
            (true, (state, word, why)) if server.maintenance.is_some() && server.restored.is_none() => {
                (state, word, format!("{why}; a job of it has not ended"))
            }
            (true, _) if server.restored.is_none() => (State::Working, "In use", String::new()),
            (_, standing) => standing,
        };
        let observed = |key: &str| {
            let value = server.observed.as_ref().and_then(|observed| observed[key].as_str());
            words::cut(value.unwrap_or_default())
        };
        let host = server.bmc_address.trim_start_matches("https://").trim_start_matches("http://");
        let profile =
            [server.bmc_profile.clone().unwrap_or_else(|| observed("profile")), observed("firmware")];
        Self {
            path: format!("/ui/servers/{}", words::encoded(&server.serial)),
            serial: server.serial.clone(),
            model: model(server),
            badge: state.badge_saying(word),
            why,
            place: place(server),
            address: Copy { what: "BMC address", text: server.bmc_address.clone(), shown: host.to_owned() },
            profile: profile.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", "),
            slots: observed("slot_plan"),
            seen: server.last_seen.map(|at| When::of(at, now)),
        }
    }
}

impl ServersView {
    /// The page of servers; `refused` says why a filter was not understood.
    pub fn of(f: Frame, query: &str, page: &ServerPage, first: bool, refused: Option<String>) -> Self {
        let terms = filter::terms(query);
        let is_tab = |term: &str| TABS.iter().any(|(_, _, of_tab)| *of_tab == term);
        let current =
            terms.iter().map(String::as_str).find(|term| is_tab(term)).unwrap_or_default().to_owned();
        let others: Vec<&str> = terms.iter().map(String::as_str).filter(|term| *term != current).collect();
        let with = |term: &'static str| {
            let first = (!term.is_empty()).then_some(term);
            filter::servers(&first.into_iter().chain(others.iter().copied()).collect::<Vec<_>>().join(" "))
        };
        let tabs = TABS.into_iter().map(|(name, state, term)| Tab {
            name,
            state,
            path: with(term),
            current: term == current,
        });
        let text = terms.join(" ");
        let more = page
            .next
            .as_deref()
            .map(|next| format!("/ui/servers?q={}&cursor={}", words::encoded(&text), words::encoded(next)));
        let rows = page.servers.iter();
        let rows = rows.map(|server| Row::of(server, page.busy.contains(&server.serial), f.now)).collect();
        Self { tabs: tabs.collect(), query: text, refused, rows, first, more, f }
    }
}
