//! Batches: the list, and one batch with the causes of its failures.

use askama::Template;

use super::filter;
use super::frame::Frame;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{BatchDetail, BatchJson, BatchPageJson, BatchStopJson, CauseJson};
use crate::parts::{Badge, Copy, Meter, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The maximum of servers that a cause names.
const NAMED: usize = 20;

/// One batch: how far its jobs are, why it stopped, why jobs failed and what to do.
#[derive(Template)]
#[template(path = "batch.html")]
pub struct BatchView {
    f: Frame,
    id: String,
    copy_id: Copy,
    badge: Badge,
    facts: Vec<String>,
    created_by: String,
    created: When,
    retry_of: Option<String>,
    stop: Option<Stop>,
    tally: Vec<Tally>,
    bar: Vec<Part>,
    bar_words: String,
    causes: Vec<CauseRow>,
    more_failed: u64,
    failed: u64,
    open: bool,
}

struct Stop {
    state: State,
    head: &'static str,
    summary: String,
    since: When,
    next_action: String,
}

/// A part of the bar, in percent of its length.
struct Part {
    fill: &'static str,
    x: String,
    width: String,
}

/// The bar: what failed, what was cancelled, what succeeded, what is under way; the rest has not begun.
fn bar(batch: &BatchJson) -> Vec<Part> {
    let progress = &batch.progress;
    let parts = [
        ("failed", progress.failed),
        ("queued", progress.cancelled),
        ("done", progress.succeeded),
        ("working", progress.running),
    ];
    let share = |number: u64| number.min(batch.jobs) as f64 * 100.0 / batch.jobs.max(1) as f64;
    let mut before = 0;
    let part = |(fill, number): (&'static str, u64)| {
        let part = Part { fill, x: format!("{:.2}", share(before)), width: format!("{:.2}", share(number)) };
        before += number;
        part
    };
    parts.into_iter().filter(|(_, number)| *number > 0).map(part).collect()
}

struct Tally {
    state: State,
    name: &'static str,
    number: String,
    path: String,
}

struct CauseRow {
    class: String,
    step: String,
    summary: String,
    next_action: String,
    jobs: String,
    servers: Vec<(String, String)>,
    more: u64,
    all: String,
    /// The number of jobs that a retry repeats.
    retriable: u64,
    /// The remark about the jobs that a retry leaves out; empty when there are none.
    followed: String,
    retry: String,
}

impl CauseRow {
    fn of(cause: &CauseJson, batch: &str) -> Self {
        let terms = [
            filter::term("batch", batch),
            filter::term("class", &cause.class),
            filter::term("failed_step", &cause.step),
        ];
        let first = cause.first.iter().take(NAMED).map(|job| {
            let name = job.server_serial.clone().unwrap_or_else(|| short_id(&job.job_id));
            (format!("/ui/jobs/{}", words::encoded(&job.job_id)), name)
        });
        let servers: Vec<(String, String)> = first.collect();
        Self {
            class: cause.class.clone(),
            step: words::step(&cause.step).to_owned(),
            summary: words::cut(&super::overview::capital(&cause.summary)),
            next_action: words::cut(&super::overview::capital(&cause.next_action)),
            jobs: words::count(cause.jobs, "job", "jobs"),
            more: cause.jobs.saturating_sub(servers.len() as u64),
            servers,
            all: filter::jobs(&format!("{} {}", filter::FAILED, terms.join(" "))),
            retriable: cause.jobs.saturating_sub(cause.superseded),
            followed: super::fleet::followed(cause.superseded),
            retry: format!("/ui/batches/{batch}/retry?cause={}", words::encoded(&cause.cause)),
        }
    }
}

impl Stop {
    fn of(stop: &BatchStopJson, batch: &BatchJson, now: jiff::Timestamp) -> Self {
        let canary = batch.canary;
        // A continued batch counts its failures from 0 again, and then only their number stops it.
        let is_limit = batch.stop_after.is_some_and(|after| stop.failures >= after);
        let began = batch.jobs.saturating_sub(batch.progress.queued) > canary.into();
        let (state, head, summary) = match stop.reason.as_str() {
            "canary" => (
                State::Waiting,
                "The first jobs run alone",
                format!(
                    "The others start when {} succeeded",
                    words::count(canary.into(), "job has", "jobs have")
                ),
            ),
            _ if !is_limit || !began => (
                State::Held,
                "No further job starts",
                format!(
                    "A canary did not succeed, so the others were not started: {} must succeed first",
                    words::count(canary.into(), "job", "jobs")
                ),
            ),
            _ => (
                State::Held,
                "No further job starts",
                format!(
                    "The batch stopped after {}",
                    words::count(stop.failures.into(), "failure", "failures")
                ),
            ),
        };
        let next_action = words::cut(&super::overview::capital(&stop.next_action));
        Self { state, head, summary, since: When::of(stop.since, now), next_action }
    }
}

impl BatchView {
    /// The page of a batch.
    pub fn of(f: Frame, detail: &BatchDetail) -> Self {
        let (batch, now) = (&detail.batch, f.now);
        let of_batch = filter::term("batch", &batch.batch_id);
        let tally = |state: State, name, number: u64, terms: &str| Tally {
            state,
            name,
            number: words::thousands(number),
            path: filter::jobs(&format!("{terms} {of_batch}")),
        };
        let progress = &batch.progress;
        let ended = progress.succeeded + progress.failed + progress.cancelled;
        let mut facts = vec![words::count(batch.jobs, "job", "jobs")];
        facts.extend(batch.max_parallel.map(|limit| format!("at most {limit} at once")));
        if batch.canary > 0 {
            facts.push(words::count(batch.canary.into(), "canary first", "canaries first"));
        }
        facts.extend(
            batch
                .stop_after
                .map(|after| format!("stops after {}", words::count(after.into(), "failure", "failures"))),
        );
        Self {
            id: batch.batch_id.clone(),
            copy_id: Copy::id("batch id", &batch.batch_id),
            badge: state_of(batch).badge_saying(word_of(batch)),
            facts,
            created_by: batch.created_by.clone(),
            created: When::of(batch.created_at, now),
            retry_of: batch.retry_of.clone(),
            stop: batch.stop.as_ref().filter(|_| !batch.complete).map(|stop| Stop::of(stop, batch, now)),
            tally: vec![
                tally(State::Failed, "Failed", progress.failed, filter::FAILED),
                tally(State::Working, "Under way", progress.running, "-status:queued,complete"),
                tally(State::Queued, "Not begun", progress.queued, "status:queued"),
                tally(State::Done, "Succeeded", progress.succeeded, filter::DONE),
                tally(State::Cancelled, "Cancelled", progress.cancelled, "outcome:cancelled"),
            ],
            bar: bar(batch),
            bar_words: format!("{ended} of {} jobs have ended, {} failed", batch.jobs, progress.failed),
            causes: detail.causes.iter().map(|cause| CauseRow::of(cause, &batch.batch_id)).collect(),
            more_failed: detail.more_failed,
            failed: detail.retriable,
            open: !batch.complete,
            f,
        }
    }
}

impl TableView {
    /// One page of batches.
    pub fn batches(f: Frame, page: &BatchPageJson) -> Self {
        let now = f.now;
        let row = |batch: &BatchJson| {
            let done = batch.progress.succeeded + batch.progress.failed + batch.progress.cancelled;
            let fill = if batch.progress.failed > 0 { "failed" } else { "done" };
            vec![
                Cell::Link(format!("/ui/batches/{}", batch.batch_id), short_id(&batch.batch_id)),
                Cell::State(state_of(batch).badge_saying(word_of(batch))),
                Cell::Bar(
                    Meter::new(done, batch.jobs, fill, "Ended jobs"),
                    format!("{done} of {} ended, {} failed", batch.jobs, batch.progress.failed),
                ),
                Cell::text(&batch.created_by),
                Cell::Time(When::of(batch.created_at, now)),
            ]
        };
        let columns = ["Batch", "State", "Progress", "By", "Created"];
        let section =
            Section::new("batches", "Newest first", &columns, page.batches.iter().map(row).collect())
                .more(
                    page.next
                        .as_ref()
                        .map(|next| (format!("/ui/batches?cursor={}", words::encoded(next)), "More")),
                )
                .or("No batch yet. A batch makes one job for each of many servers.");
        let acts =
            if f.may_operate() { vec![("/ui/batches/new".to_owned(), "New batch")] } else { Vec::new() };
        Self::new(f, "Batches", "Jobs that one request created together.", vec![section])
            .below("/ui/jobs", "Jobs")
            .acts(acts)
    }
}

fn state_of(batch: &BatchJson) -> State {
    match (batch.complete, batch.progress.failed, &batch.stop) {
        (true, 0, _) => State::Done,
        (true, ..) => State::Failed,
        (false, _, Some(stop)) if stop.reason == "stopped" => State::Held,
        (false, _, Some(_)) => State::Waiting,
        (false, ..) => State::Working,
    }
}

fn word_of(batch: &BatchJson) -> &'static str {
    match state_of(batch) {
        State::Done => "Done",
        State::Failed => "With failures",
        State::Held => "Stopped",
        State::Waiting => "Canaries first",
        _ => "Under way",
    }
}
