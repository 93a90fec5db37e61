//! The overview: what needs a person, and why the rest waits.

use std::collections::BTreeMap;

use askama::Template;
use jiff::{Timestamp, ToSpan};

use super::filter;
use super::frame::Frame;
use super::jobs_verb::JobsVerb;
use crate::data::{Drain, EventJson, FailureGroupJson, OverviewJson, Rack, Readiness};
use crate::parts::{Badge, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;
pub(crate) use crate::words::capital;

/// The maximum of causes on the page; the rest is a link.
const CAUSES: usize = 8;
/// The places that failures, holds and stopped batches each have among them, so that no kind is left out for the others.
const SHARE: usize = 2;
/// The maximum of stopped batches that the API lists.
const STOPPED: usize = 20;
/// The cells in one row of a rack.
const PER_ROW: u64 = 6;
/// The distance of two cells.
const CELL: u64 = 16;
/// The maximum of cells of one rack; a larger one shows its counts only.
const MAX_CELLS: u64 = 120;
/// The maximum of racks on the page.
const MAX_RACKS: usize = 60;
/// The hours of the chart.
const HOURS: usize = 24;

/// The overview.
#[derive(Template)]
#[template(path = "overview.html")]
pub struct OverviewView {
    f: Frame,
    sub: String,
    tally: Vec<Tally>,
    needs: Vec<Need>,
    needs_sub: String,
    more_needs: Option<MoreNeeds>,
    because: Vec<Because>,
    sites: Vec<Site>,
    more_racks: usize,
    key: Vec<(State, String)>,
    checks: Vec<CheckRow>,
    flow: Vec<FlowRow>,
    chart: Chart,
    chart_sub: String,
    just: Vec<Just>,
    empty: bool,
    media_url: String,
    drained: bool,
}

struct Tally {
    state: State,
    name: &'static str,
    number: String,
    hint: String,
    path: String,
}

struct Need {
    state: State,
    title: String,
    text: String,
    /// The next action of an operator; empty where the text says it.
    act: String,
    who: Vec<String>,
    /// The time since which the need exists, if it is known.
    since: Option<When>,
    path: String,
    acts: Vec<Act>,
}

/// A question that leads to the repair of a need.
struct Act {
    name: &'static str,
    path: String,
}

/// The causes that are not on the page, and where their jobs are.
struct MoreNeeds {
    words: String,
    failures: String,
    held: String,
    /// The number of stopped batches that are counted, when more may have stopped.
    counted: Option<usize>,
}

struct Because {
    number: String,
    text: String,
    path: String,
    oldest: When,
    deadline: When,
}

struct Site {
    name: String,
    racks: Vec<RackMap>,
}

struct RackMap {
    name: String,
    path: String,
    words: String,
    height: u64,
    paths: Vec<(State, String)>,
}

struct CheckRow {
    class: &'static str,
    icon: &'static str,
    name: String,
    value: String,
    hint: String,
}

struct FlowRow {
    name: String,
    number: String,
    waiting: u64,
    working: u64,
    path: String,
}

struct Chart {
    words: String,
    bars: Vec<Bar>,
    lines: Vec<(u64, u64)>,
}

struct Bar {
    x: u64,
    done_y: u64,
    done_height: u64,
    failed_y: u64,
    failed_height: u64,
    label: Option<String>,
}

/// An event in one line.
pub(crate) struct Just {
    pub(crate) badge: Badge,
    pub(crate) who: String,
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) at: When,
}

impl Just {
    pub(crate) fn of(event: &EventJson, now: Timestamp) -> Self {
        let state = match event.level.as_str() {
            "error" => State::Failed,
            "warn" => State::Waiting,
            _ => State::Queued,
        };
        let path = match (&event.job_id, &event.server_serial) {
            (Some(job), _) => format!("/ui/jobs/{job}"),
            (None, Some(server)) => format!("/ui/servers/{}", words::encoded(server)),
            (None, None) => String::new(),
        };
        // A message that begins with a name needs that name once.
        let who = event.server_serial.as_ref().unwrap_or(&event.actor);
        let who = if event.message.starts_with(who.as_str()) && path.is_empty() {
            String::new()
        } else {
            who.clone()
        };
        Self {
            badge: state.badge_saying(&event.level),
            who,
            path,
            text: words::cut(&event.message),
            at: When::of(event.time, now),
        }
    }
}

impl OverviewView {
    /// The overview page of these numbers.
    pub fn of(
        f: Frame,
        overview: &OverviewJson,
        drain: &Drain,
        ready: &Readiness,
        events: &[EventJson],
        media_url: &str,
    ) -> Self {
        let now = f.now;
        let open: u64 = overview.open.iter().map(|group| group.jobs).sum();
        let sites: std::collections::BTreeSet<&str> =
            overview.racks.iter().map(|rack| rack.site.as_str()).filter(|site| !site.is_empty()).collect();
        let place = match sites.len() {
            0 | 1 => String::new(),
            many => format!(" in {many} sites"),
        };
        let sub = format!(
            "{}{place}, {}",
            words::count(overview.servers, "server", "servers"),
            words::count(open, "job under way or in line", "jobs under way or in line")
        );
        let mut all = needs(overview, now);
        if !f.may_operate_many() {
            all.iter_mut().flatten().for_each(|need| need.acts.clear());
        }
        let jobs: u64 = overview.failures.iter().map(|group| group.jobs).sum::<u64>()
            + overview.holds.iter().map(|group| group.jobs).sum::<u64>();
        let number: usize = all.iter().map(Vec::len).sum();
        let needs_sub = match number as u64 {
            0 => "nothing does now".to_owned(),
            causes if jobs == 0 => words::count(causes, "cause", "causes"),
            causes => {
                format!("{}, {}", words::count(jobs, "job", "jobs"), words::count(causes, "cause", "causes"))
            }
        };
        let (sites, more_racks) = sites_of(&overview.racks);
        Self {
            sub,
            tally: tally(overview, now),
            needs_sub,
            more_needs: more_needs(number, overview.stopped_batches.len()),
            needs: shown(all),
            because: because(overview, now),
            sites,
            more_racks,
            key: key(&overview.racks),
            checks: checks(drain, ready, now),
            flow: flow(overview),
            chart: chart(overview, now),
            chart_sub: ended_words(overview),
            just: events.iter().rev().map(|event| Just::of(event, now)).collect(),
            empty: overview.servers == 0 && open == 0 && overview.ended.is_empty(),
            media_url: media_url.to_owned(),
            drained: drain.drain.is_some(),
            f,
        }
    }
}

fn tally(overview: &OverviewJson, now: Timestamp) -> Vec<Tally> {
    let of = |state: &str| overview.open.iter().find(|group| group.state == state);
    let number = |state: &str| of(state).map_or(0, |group| group.jobs);
    let oldest = |state: &str, none: &str| {
        of(state)
            .map_or(none.to_owned(), |group| format!("oldest {}", When::lasting(group.since, now).words()))
    };
    let newest = overview.failures.iter().map(|group| group.newest_at).max();
    let failed_hint = newest.map_or("none needs a person".to_owned(), |at| {
        let causes = words::count(overview.failures.len() as u64, "cause", "causes");
        format!("{causes} open · newest {}", When::of(at, now).words())
    });
    let done = overview.succeeded;
    let judged = done + overview.failed;
    let rate =
        (done * 1000).checked_div(judged).map(|mille| format!("{}.{} % succeeded", mille / 10, mille % 10));
    let row = |state: State, name, number: u64, hint: String, terms: &str| Tally {
        state,
        name,
        number: words::thousands(number),
        hint,
        path: filter::jobs(terms),
    };
    vec![
        row(
            State::Failed,
            "Failed in 24 h",
            overview.failed,
            failed_hint,
            &format!("{} since:24h", filter::FAILED),
        ),
        row(State::Held, "Held", number("held"), oldest("held", "no decision is open"), filter::HELD),
        row(State::Waiting, "Waiting", number("waiting"), oldest("waiting", "none waits"), filter::WAITING),
        row(
            State::Working,
            "Working",
            number("working"),
            oldest("working", "no worker is busy"),
            filter::WORKING,
        ),
        row(State::Queued, "Queued", number("queued"), oldest("queued", "none in line"), filter::QUEUED),
        row(
            State::Done,
            "Done in 24 h",
            done,
            rate.unwrap_or("none ended".to_owned()),
            &format!("{} since:24h", filter::DONE),
        ),
    ]
}

/// The class of a group of failures, with a note when its list has jobs of other groups too: a list is selected by class and step.
fn class_of(group: &FailureGroupJson, groups: &[FailureGroupJson]) -> String {
    let alike = groups.iter().filter(|other| (&other.class, &other.step) == (&group.class, &group.step));
    match alike.count() > 1 && group.jobs > 1 {
        true => format!("class {}; its list has the other causes of this step too", group.class),
        false => format!("class {}", group.class),
    }
}

/// The needs: what waits for a person. Failures, holds, stopped batches, servers to clean up.
fn needs(overview: &OverviewJson, now: Timestamp) -> [Vec<Need>; 4] {
    let listed = |group: &FailureGroupJson| {
        let (class, step) = (filter::term("class", &group.class), filter::term("failed_step", &group.step));
        format!("{} {class} {step}", filter::OPEN_FAILURE)
    };
    let failures = overview.failures.iter().map(|group| Need {
        state: State::Failed,
        title: format!(
            "{}: {}",
            words::count(group.jobs, "job failed", "jobs failed"),
            words::step(&group.step)
        ),
        text: words::cut(&capital(&group.summary)),
        act: words::cut(&capital(&group.next_action)),
        who: [group.servers.join(", "), class_of(group, &overview.failures)].into(),
        since: Some(When::of(group.newest_at, now)),
        path: match group.jobs {
            1 => format!("/ui/jobs/{}", group.newest_job),
            _ => filter::jobs(&listed(group)),
        },
        acts: vec![Act {
            name: "Retry…",
            path: match group.jobs {
                1 => format!("/ui/jobs/{}/retry", group.newest_job),
                _ => filter::selection(JobsVerb::Retry, &listed(group)),
            },
        }],
    });
    let holds = overview.holds.iter().map(|group| Need {
        state: State::Held,
        title: words::count(group.jobs, "job is held", "jobs are held"),
        text: words::cut(&capital(&group.detail)),
        act: String::new(),
        who: match group.alike {
            Some(alike) if alike < group.jobs => {
                let of = format!("so {alike} of {}, the others for other reasons", group.jobs);
                vec![of, format!("class {}", group.class)]
            }
            _ => vec![format!("class {}", group.class)],
        },
        since: Some(When::of(group.since, now)),
        path: filter::jobs(&filter::term("hold", &group.class)),
        acts: vec![Act {
            name: "Resume…",
            path: filter::selection(JobsVerb::Resume, &filter::term("hold", &group.class)),
        }],
    });
    let stopped = overview.stopped_batches.iter().map(|batch| Need {
        state: State::Held,
        title: format!("Batch {} has stopped", short_id(&batch.batch_id)),
        text: format!(
            "{}; {} until it is continued.",
            words::count(batch.failures, "failure was counted", "failures were counted"),
            words::count(batch.queued, "job does not start", "jobs do not start")
        ),
        act: "Look why its jobs failed, then continue or cancel the batch.".to_owned(),
        who: Vec::new(),
        since: Some(When::of(batch.since, now)),
        path: format!("/ui/batches/{}", batch.batch_id),
        acts: vec![Act { name: "Continue…", path: format!("/ui/batches/{}/continue", batch.batch_id) }],
    });
    let cleanup = overview.cleanup.iter().map(|group| Need {
        state: State::Failed,
        title: format!("{} to clean up", words::count(group.servers, "server is", "servers are")),
        text: "Their last jobs could not clean up: media may be inserted still, or the host may be on."
            .to_owned(),
        act: "Repair the BMC; the next job of each server begins with the cleanup.".to_owned(),
        who: vec![match group.servers.saturating_sub(group.named.len() as u64) {
            0 => group.named.join(", "),
            more => format!("{} and {more} more", group.named.join(", ")),
        }],
        since: group.since.map(|since| When::of(since, now)),
        path: match group.named.as_slice() {
            [one] => format!("/ui/servers/{}", words::encoded(one)),
            _ => filter::servers("state:pending-cleanup"),
        },
        acts: Vec::new(),
    });
    [failures.collect(), holds.collect(), stopped.collect(), cleanup.collect()]
}

/// The needs that are on the page: of each kind its share, then those of the first kinds.
fn shown(all: [Vec<Need>; 4]) -> Vec<Need> {
    let shares = all.each_ref().map(|needs| needs.len().min(SHARE));
    let mut left = CAUSES.saturating_sub(shares.iter().sum());
    let mut shown = Vec::new();
    for (needs, share) in all.into_iter().zip(shares) {
        let more = left.min(needs.len() - share);
        left -= more;
        shown.extend(needs.into_iter().take(share + more));
    }
    shown
}

fn more_needs(causes: usize, stopped: usize) -> Option<MoreNeeds> {
    let more = causes.saturating_sub(CAUSES) as u64;
    (more > 0).then(|| MoreNeeds {
        words: words::count(more, "more cause", "more causes"),
        failures: filter::jobs(filter::OPEN_FAILURE),
        held: filter::jobs(filter::HELD),
        counted: (stopped >= STOPPED).then_some(stopped),
    })
}

fn because(overview: &OverviewJson, now: Timestamp) -> Vec<Because> {
    let waits = overview.waits.iter().map(|group| Because {
        number: words::thousands(group.jobs),
        text: words::wait(&group.reason).to_owned(),
        path: filter::jobs(&filter::term("wait", &group.reason)),
        oldest: When::lasting(group.since, now),
        deadline: When::of(group.next_deadline, now),
    });
    // The filter that selects the jobs of one blocker, where the language of filters has it.
    let terms = |blocker: &str| match blocker {
        "lock" | "limit" => "condition:blocked",
        "place" => "condition:queued",
        _ => "condition:gated",
    };
    let blocked = overview.blocked.iter().map(|group| Because {
        number: words::thousands(group.jobs),
        text: format!("queued: {}", words::blocker(&group.blocker)),
        path: filter::jobs(terms(&group.blocker)),
        oldest: When::lasting(group.since, now),
        deadline: When::of(group.next_deadline, now),
    });
    // A controller of an older version does not say why.
    let unsaid = overview.open.iter().filter(|group| group.state == "queued" && overview.blocked.is_empty());
    let queued = unsaid.map(|group| Because {
        number: words::thousands(group.jobs),
        text: "queued: for a worker, a limit, or an open gate".to_owned(),
        path: filter::jobs(filter::QUEUED),
        oldest: When::lasting(group.since, now),
        deadline: When::of(group.next_deadline, now),
    });
    waits.chain(blocked).chain(queued).collect()
}

fn states(rack: &Rack) -> [(State, u64); 6] {
    [
        (State::Failed, rack.failed),
        (State::Held, rack.held),
        (State::Waiting, rack.waiting),
        (State::Working, rack.working),
        (State::Done, rack.done),
        (State::Queued, rack.queued + rack.idle),
    ]
}

fn word_of(state: State) -> &'static str {
    match state {
        State::Done => "installed",
        State::Queued => "queued or never used",
        State::Failed => "failed",
        State::Held => "held",
        State::Waiting => "waiting",
        State::Working | State::Cancelled => "working",
    }
}

fn key(racks: &[Rack]) -> Vec<(State, String)> {
    let mut sums: BTreeMap<State, u64> = BTreeMap::new();
    for (state, number) in racks.iter().flat_map(states) {
        *sums.entry(state).or_default() += number;
    }
    let order = [State::Failed, State::Held, State::Waiting, State::Working, State::Done, State::Queued];
    order
        .into_iter()
        .map(|state| {
            let number = sums.get(&state).copied().unwrap_or_default();
            (state, format!("{} {}", words::thousands(number), word_of(state)))
        })
        .collect()
}

fn sites_of(racks: &[Rack]) -> (Vec<Site>, usize) {
    let mut sites: Vec<Site> = Vec::new();
    // Racks with servers that need something come first, so that they are not the ones that are left out.
    let mut racks: Vec<&Rack> = racks.iter().collect();
    racks.sort_by_key(|rack| match rack {
        Rack { failed: 0, held: 0, waiting: 0, .. } => 2,
        Rack { failed: 0, held: 0, .. } => 1,
        _ => 0,
    });
    for rack in racks.iter().take(MAX_RACKS) {
        let name = match rack.site.as_str() {
            "" => "Without a label site".to_owned(),
            site => format!("Site {site}"),
        };
        match sites.iter_mut().find(|site| site.name == name) {
            Some(site) => site.racks.push(rack_map(rack)),
            None => sites.push(Site { name, racks: vec![rack_map(rack)] }),
        }
    }
    (sites, racks.len().saturating_sub(MAX_RACKS))
}

fn rack_map(rack: &Rack) -> RackMap {
    let all: u64 = states(rack).iter().map(|(_, number)| number).sum();
    let mut paths = Vec::new();
    let mut at = 0;
    for (state, number) in states(rack).into_iter().filter(|(_, number)| *number > 0) {
        let path = shapes(state, at..(at + number).min(MAX_CELLS));
        at += number;
        if !path.is_empty() {
            paths.push((state, path));
        }
    }
    let counts = states(rack).into_iter().filter(|(_, number)| *number > 0);
    let counts: Vec<String> = counts.map(|(state, number)| format!("{number} {}", word_of(state))).collect();
    // A server without the label is not one of every rack: the link says that the label is absent.
    let term = |key: &str, value: &str| match value {
        "" => filter::without_label(key),
        value => filter::label(key, value),
    };
    let place = [term("site", &rack.site), term("rack", &rack.rack)];
    RackMap {
        name: if rack.rack.is_empty() { "no label rack".to_owned() } else { rack.rack.clone() },
        path: filter::servers(&place.join(" ")),
        words: format!("{}: {}", words::count(all, "server", "servers"), counts.join(", ")),
        height: all.min(MAX_CELLS).div_ceil(PER_ROW).max(1) * CELL + 2,
        paths,
    }
}

/// The shapes of cells of one state. The most frequent ones, squares, are dashes of one line for each row, which is short for
/// thousands of servers; the style sheet gives width and gaps.
fn shapes(state: State, cells: std::ops::Range<u64>) -> String {
    let mut path = String::new();
    let mut cell = cells.start;
    while cell < cells.end {
        let (x, y) = (cell % PER_ROW * CELL, cell / PER_ROW * CELL);
        let in_row = (PER_ROW - cell % PER_ROW).min(cells.end - cell);
        let squares = matches!(state, State::Working | State::Done | State::Cancelled);
        let drawn = if squares { in_row } else { 1 };
        path.push_str(&shape(state, x, y, drawn));
        cell += drawn;
    }
    path
}

/// The shape of a state, so that colour is not needed to tell one from another: one cell, or `number` squares.
fn shape(state: State, x: u64, y: u64, number: u64) -> String {
    let (x2, y2) = (x + 2, y + 2);
    match state {
        State::Failed => format!("M{} {}l7 7l-7 7l-7-7z", x + 8, y + 1),
        State::Held => format!("M{x2} {y2}h4.5v12h-4.5zM{}.5 {y2}h4.5v12h-4.5z", x + 9),
        State::Waiting => format!("M{x2} {y2}h12L{x2} {}z", y + 14),
        State::Working | State::Done | State::Cancelled => format!("M{x2} {}h{}", y + 8, number * CELL - 4),
        State::Queued => format!("M{}.5 {}.5h5v5h-5z", x + 5, y + 5),
    }
}

/// The name of a check of the readiness for people.
fn check_name(name: &str) -> String {
    match name {
        "tls" => "TLS".to_owned(),
        "descriptors" => "Open files".to_owned(),
        other => capital(other),
    }
}

fn checks(drain: &Drain, ready: &Readiness, now: Timestamp) -> Vec<CheckRow> {
    let row = |class, icon, name: &str, value: String, hint: String| CheckRow {
        class,
        icon,
        name: name.to_owned(),
        value,
        hint,
    };
    let mut rows = vec![match &drain.drain {
        None => row("done", "gate", "Beginning of jobs", "open".to_owned(), String::new()),
        Some(closed) => row(
            "held",
            "gate",
            "Beginning of jobs",
            format!("drained {}", When::of(closed.since, now).words()),
            words::cut(&format!("by {}: {}", closed.by, closed.reason)),
        ),
    }];
    if let Some(short) = &drain.pressure {
        rows.push(row("failed", "failed", "Shortage", short.detail.clone(), short.next_action.clone()));
    }
    rows.push(row("", "working", "Workers at work", drain.active_runs.to_string(), String::new()));
    for (name, check) in &ready.checks {
        let (class, icon) = if check.ok { ("done", "done") } else { ("failed", "failed") };
        let value = match (check.ok, check.free_bytes, check.age_seconds) {
            (_, Some(free), _) => format!("{} free", words::bytes(free)),
            (_, None, Some(age)) => format!("last {} ago", crate::time::duration(age)),
            (true, None, None) if name == "backup" => "none yet".to_owned(),
            (true, None, None) => "ready".to_owned(),
            (false, None, None) => "not ready".to_owned(),
        };
        rows.push(row(class, icon, &check_name(name), value, check.message.clone().unwrap_or_default()));
    }
    rows
}

fn flow(overview: &OverviewJson) -> Vec<FlowRow> {
    let most = overview.steps.iter().map(|group| group.waiting + group.working).max().unwrap_or(1).max(1);
    let row = |group: &crate::data::StepGroup| FlowRow {
        name: words::step(&group.step).to_owned(),
        number: words::thousands(group.waiting + group.working),
        waiting: group.waiting * 100 / most,
        working: group.working * 100 / most,
        path: filter::jobs(&filter::term("step", &group.step)),
    };
    overview.steps.iter().map(row).collect()
}

fn ended_words(overview: &OverviewJson) -> String {
    let sum = |of: fn(&crate::data::EndedHour) -> u64| overview.ended.iter().map(of).sum::<u64>();
    let (done, failed, cancelled) =
        (sum(|hour| hour.succeeded), sum(|hour| hour.failed), sum(|hour| hour.cancelled));
    format!("24 h: {done} succeeded, {failed} failed, {cancelled} cancelled")
}

fn chart(overview: &OverviewJson, now: Timestamp) -> Chart {
    const FLOOR: u64 = 150;
    const HIGH: u64 = 132;
    let hour = |at: Timestamp| at.as_second().div_euclid(3600);
    let by_hour: BTreeMap<i64, (u64, u64)> =
        overview.ended.iter().map(|ended| (hour(ended.hour), (ended.succeeded, ended.failed))).collect();
    let most =
        by_hour.values().map(|(done, failed)| done + failed).max().unwrap_or(0).max(4).next_multiple_of(4);
    let height = |number: u64| number * HIGH / most;
    let first = hour(now) - (HOURS as i64 - 1);
    let bars = (0..HOURS).map(|index| {
        let (done, failed) = by_hour.get(&(first + index as i64)).copied().unwrap_or_default();
        let at = now.checked_sub((HOURS as i64 - 1 - index as i64).hours()).unwrap_or(now);
        let gap = if done > 0 && failed > 0 { 1 } else { 0 };
        Bar {
            x: 30 + index as u64 * 16,
            done_y: FLOOR - height(done),
            done_height: height(done),
            failed_y: FLOOR.saturating_sub(height(done) + height(failed) + gap),
            failed_height: height(failed),
            label: (index % 4 == 3).then(|| at.strftime("%H").to_string()),
        }
    });
    Chart {
        words: format!("Jobs ended per hour, {}", ended_words(overview)),
        bars: bars.collect(),
        lines: [0, most / 2, most].map(|number| (FLOOR - height(number), number)).into(),
    }
}
