//! The list of jobs. The filter is the URL.

use std::collections::BTreeMap;

use askama::Template;
use jiff::Timestamp;

use super::filter;
use super::frame::Frame;
use crate::data::{JobJson, JobPageJson, OverviewJson};
use crate::parts::Badge;
use crate::state::State;
use crate::time::{When, seconds};
use crate::words;

/// A deadline that is nearer than this is marked.
const SOON: i64 = 120;

/// The tabs: a name, the state whose colour it has, and the terms of its filter.
const TABS: [(&str, Option<State>, &str); 7] = [
    ("All", None, ""),
    ("Failed", Some(State::Failed), filter::FAILED),
    ("Held", Some(State::Held), filter::HELD),
    ("Waiting", Some(State::Waiting), filter::WAITING),
    ("Working", Some(State::Working), filter::WORKING),
    ("Queued", Some(State::Queued), filter::QUEUED),
    ("Done", Some(State::Done), filter::DONE),
];

/// The filter of the list as the field shows it, in terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsQuery {
    terms: Vec<String>,
}

impl JobsQuery {
    /// Reads the terms of the filter field.
    pub fn parse(text: &str) -> Self {
        Self { terms: filter::terms(text) }
    }

    /// The filter as one text.
    pub fn text(&self) -> String {
        self.terms.join(" ")
    }

    /// The tab whose term the filter has.
    fn tab(&self) -> &str {
        let is_tab = |term: &&str| TABS.iter().any(|(_, _, of_tab)| of_tab == term);
        self.terms.iter().map(String::as_str).find(is_tab).unwrap_or_default()
    }

    /// The filter with the term of another tab.
    fn with_tab(&self, term: &str) -> String {
        let tab = self.tab();
        let others = self.terms.iter().map(String::as_str).filter(|other| *other != tab);
        let first = (!term.is_empty()).then_some(term);
        first.into_iter().chain(others).collect::<Vec<_>>().join(" ")
    }
}

/// The list of jobs.
#[derive(Template)]
#[template(path = "jobs.html")]
pub struct JobsView {
    f: Frame,
    sub: String,
    tabs: Vec<StateTab>,
    query: String,
    refused: Option<String>,
    rows: Vec<Row>,
    any_held: bool,
    first: bool,
    older: Option<String>,
}

struct StateTab {
    name: &'static str,
    state: Option<State>,
    count: Option<String>,
    path: String,
    current: bool,
}

/// A job in a table.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) server: String,
    pub(crate) kind: String,
    pub(crate) badge: Badge,
    pub(crate) place: String,
    pub(crate) why: String,
    pub(crate) since: When,
    pub(crate) deadline: Option<When>,
    pub(crate) hot: bool,
    pub(crate) batch: Option<String>,
}

impl Row {
    pub(crate) fn of(job: &JobJson, now: Timestamp) -> Self {
        let (state, word) = words::state(job);
        let open = job.status != "complete";
        let place = match (&job.failed_step, &job.step) {
            (Some(step), _) | (None, Some(step)) => words::step(step).to_owned(),
            (None, None) if open => "Not begun".to_owned(),
            (None, None) => String::new(),
        };
        let since = job.hold.as_ref().map(|hold| hold.since);
        let since = since.or(job.wait.as_ref().map(|wait| wait.since)).unwrap_or(job.last_update);
        let end = job.wait.as_ref().map_or(job.deadline_at, |wait| wait.deadline);
        let deadline = (open && job.hold.is_none()).then_some(end);
        Self {
            id: job.job_id.clone(),
            server: job.server_serial.clone().unwrap_or_default(),
            kind: words::workflow(&job.workflow).to_owned(),
            badge: state.badge_saying(word),
            place,
            why: words::why(job),
            since: When::lasting(since, now),
            hot: deadline.is_some_and(|end| seconds(now, end) < SOON),
            deadline: deadline.map(|end| When::of(end, now)),
            batch: job.batch.clone(),
        }
    }
}

impl JobsView {
    /// The page of jobs; `refused` says why a filter was not understood.
    pub fn of(
        f: Frame,
        query: &JobsQuery,
        page: &JobPageJson,
        overview: Option<&OverviewJson>,
        cursor: Option<&str>,
        refused: Option<String>,
    ) -> Self {
        let now = f.now;
        let text = query.text();
        let counts = overview.map(counts).unwrap_or_default();
        let current = query.tab();
        let tabs = TABS.into_iter().map(|(name, state, term)| StateTab {
            name,
            state,
            count: counts.get(term).map(|count| words::thousands(*count)),
            path: filter::jobs(&query.with_tab(term)),
            current: current == term,
        });
        let open: u64 = counts.values().sum();
        let tabs = tabs.collect();
        let older = page
            .next
            .as_deref()
            .map(|next| format!("/ui/jobs?q={}&cursor={}", words::encoded(&text), words::encoded(next)));
        Self {
            f,
            sub: overview
                .map(|_| words::count(open, "job is not over", "jobs are not over"))
                .unwrap_or_default(),
            tabs,
            query: text,
            refused,
            rows: page.jobs.iter().map(|job| Row::of(job, now)).collect(),
            any_held: page.jobs.iter().any(|job| job.hold.is_some()),
            first: cursor.is_none(),
            older,
        }
    }
}

/// The number of open jobs by the term of their tab.
fn counts(overview: &OverviewJson) -> BTreeMap<&'static str, u64> {
    let of =
        |name: &str| overview.open.iter().filter(|group| group.state == name).map(|group| group.jobs).sum();
    [
        (filter::HELD, of("held")),
        (filter::WAITING, of("waiting")),
        (filter::WORKING, of("working")),
        (filter::QUEUED, of("queued")),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_its_terms_and_a_tab_replaces_a_tab() {
        let query = JobsQuery::parse("  outcome:failed class:media  -label:\"site=the quay\" ");
        assert_eq!(query.text(), "outcome:failed class:media -label:\"site=the quay\"");
        assert_eq!(
            query.with_tab(filter::HELD),
            "condition:held,restored class:media -label:\"site=the quay\""
        );
        assert_eq!(query.with_tab(""), "class:media -label:\"site=the quay\"");
    }
}
