//! One job: why it is here, what ends it, what to do; then its steps, its media and its events.

use askama::Template;
use jiff::Timestamp;
use serde_json::Value;

use super::filter;
use super::frame::Frame;
use super::job_facts::{self, Comparison};
use super::overview::capital;
use crate::data::{EventJson, ExplanationJson, JobDetailJson, JobJson, LastSuccess, MediaRead, StepJson};
use crate::parts::{Badge, Copy, Meter};
use crate::state::State;
use crate::time::{When, seconds, took};
use crate::words;

/// One job.
#[derive(Template)]
#[template(path = "job.html")]
pub struct JobView {
    f: Frame,
    id: String,
    copy_id: Copy,
    server: String,
    kind: &'static str,
    badge: Badge,
    state: State,
    over: bool,
    why: Why,
    verbs: Vec<Verb>,
    steps: Vec<StepRow>,
    steps_sub: String,
    /// The time at which the job was created; `None` when it has ended.
    created: Option<When>,
    media: Vec<Medium>,
    /// Whether the page changes without an event of its job, so that it is read again after a time: bytes of a medium are read, or
    /// the jobs before a queued one go on.
    changes_without_event: bool,
    facts: Vec<(&'static str, Fact)>,
    labels: Vec<String>,
    batch: Option<String>,
    retry_of: Option<String>,
    like: Option<(String, String)>,
    digest: Option<Copy>,
    observed: Vec<(&'static str, String)>,
    recipe: Vec<(&'static str, String)>,
    image: Option<Copy>,
    compared: Option<Comparison>,
    events: Vec<EventRow>,
    log: bool,
}

struct Why {
    head: &'static str,
    summary: String,
    since: When,
    ends_by: String,
    deadline: Option<When>,
    gone: Option<Meter>,
    reason: Option<String>,
    next_action: String,
    seen: Option<(When, String)>,
    machine: Option<String>,
}

struct Verb {
    path: String,
    name: &'static str,
    icon: Option<&'static str>,
    class: &'static str,
}

struct StepRow {
    state: State,
    icon: &'static str,
    name: String,
    code: String,
    said: String,
    took: String,
    now: bool,
    start: String,
    width: String,
}

/// A fact about a job: a text, or a time whose words move with the clock.
enum Fact {
    Text(String),
    Time(When),
}

struct Medium {
    name: &'static str,
    bar: Meter,
    bytes: String,
    marks: Vec<(&'static str, &'static str, String)>,
}

/// An event in a table.
pub(crate) struct EventRow {
    pub(crate) seq: i64,
    pub(crate) at: When,
    pub(crate) who: String,
    pub(crate) badge: Option<Badge>,
    pub(crate) text: String,
    pub(crate) bad: bool,
}

impl EventRow {
    pub(crate) fn of(event: &EventJson, now: Timestamp) -> Self {
        let state = match event.level.as_str() {
            "error" => Some(State::Failed),
            "warn" => Some(State::Waiting),
            _ => None,
        };
        Self {
            seq: event.seq,
            at: When::of(event.time, now),
            who: event.actor.clone(),
            badge: state.map(|state| state.badge_saying(&event.level)),
            text: words::cut(&event.message),
            bad: event.level == "error",
        }
    }
}

/// What the page of a job shows beside the job itself.
#[derive(Default)]
pub struct JobParts {
    /// The reads of its images.
    pub media: Vec<MediaRead>,
    /// The facts of the last discovery of its server.
    pub observed: Option<Value>,
    /// The events of the types [`JOB_FACTS`](super::JOB_FACTS).
    pub begun: Vec<EventJson>,
    /// The success to compare a failure with.
    pub success: Option<LastSuccess>,
}

impl JobView {
    /// The page of a job.
    pub fn of(f: Frame, detail: &JobDetailJson, why: &ExplanationJson, parts: &JobParts) -> Self {
        let (job, media, now) = (&detail.job, &parts.media, f.now);
        let (state, word) = words::state(job);
        let over = job.status == "complete";
        let verbs = if f.may_operate() { verbs(job, &detail.verbs) } else { Vec::new() };
        let end = if over { job.last_update } else { now };
        let steps_sub = match over {
            true => format!("ended after {}", took(job.created_at, job.last_update)),
            false => "created".to_owned(),
        };
        let like = job.failure.as_ref().map(|failure| {
            let terms = format!("{} {}", filter::FAILED, filter::term("class", &failure.class));
            (filter::jobs(&terms), failure.class.clone())
        });
        Self {
            id: job.job_id.clone(),
            copy_id: Copy::id("job id", &job.job_id),
            server: job.server_serial.clone().unwrap_or_default(),
            kind: kind(&job.workflow),
            badge: state.badge_saying(word),
            state,
            over,
            why: Why::of(job, why, state, now, machine(job, &detail.steps)),
            verbs,
            steps: steps(job, &detail.steps, &detail.events, state, end),
            steps_sub,
            created: (!over).then(|| When::of(job.created_at, now)),
            changes_without_event: !over
                && (job.status == "queued" || media.iter().any(|read| read.ended_at.is_none())),
            media: match os_image(&detail.events, now).filter(|_| !over) {
                Some(image) => {
                    std::iter::once(image).chain(media.iter().map(|read| medium(read, over, now))).collect()
                }
                None => media.iter().map(|read| medium(read, over, now)).collect(),
            },
            facts: facts(job, detail.slot_plan.as_ref(), now),
            labels: job.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            batch: job.batch.clone(),
            retry_of: job.retry_of.clone(),
            like,
            digest: job.task_iso_sha256.as_deref().map(|digest| Copy {
                what: "digest of the task image",
                text: digest.to_owned(),
                shown: format!("{}…", digest.chars().take(12).collect::<String>()),
            }),
            observed: parts.observed.as_ref().map(super::server::observed_facts).unwrap_or_default(),
            recipe: job_facts::recipe(&parts.begun),
            image: job_facts::image_digest(&parts.begun),
            compared: parts
                .success
                .as_ref()
                .and_then(|success| job_facts::compared(&parts.begun, success, now)),
            events: detail.events.iter().rev().map(|event| EventRow::of(event, now)).collect(),
            log: over && f.may_operate() && job.workflow == words::INSTALLATION,
            f,
        }
    }
}

fn kind(workflow: &str) -> &'static str {
    match workflow {
        words::INSTALLATION => "Installation",
        "diagnostics" => "Diagnostics",
        "power.cycle" => "Power cycle",
        "bmc.reset" => "Restart of the BMC",
        "inventory.out-of-band" => "Inventory",
        "firmware.install" => "Firmware installation",
        "bios.apply" => "BIOS settings",
        _ => "Job",
    }
}

impl Why {
    fn of(
        job: &JobJson,
        why: &ExplanationJson,
        state: State,
        now: Timestamp,
        machine: Option<String>,
    ) -> Self {
        let head = match state {
            State::Failed => "Why it failed",
            State::Done => "It succeeded",
            State::Cancelled => "It was cancelled",
            State::Held => "It needs a decision",
            State::Queued => "Why it has not begun",
            State::Waiting | State::Working => "Why it is here",
        };
        let gone = why.deadline.filter(|end| *end > why.since).map(|end| {
            let (gone, all) = (seconds(why.since, now).max(0), seconds(why.since, end).max(1));
            Meter::new(
                gone.unsigned_abs(),
                all.unsigned_abs(),
                "working",
                "Part of the time until the deadline",
            )
        });
        let seen = why.evidence.last().map(|event| (When::of(event.time, now), words::cut(&event.message)));
        Self {
            head,
            summary: words::cut(&capital(&why.summary)),
            since: When::of(why.since, now),
            ends_by: words::cut(&why.ends_by),
            deadline: why.deadline.map(|end| When::of(end, now)),
            gone,
            reason: why.reason.clone(),
            next_action: words::cut(&capital(&why.next_action)),
            seen: seen.filter(|_| job.status != "complete"),
            machine,
        }
    }
}

/// The failure classes of jobs that were ended without their cleanup.
const NOT_CLEANED_UP: [&str; 2] = ["unreadable", "restored"];

/// The state in which a job has left its machine, in words. The finish list runs at every end, and the first steps only read:
/// a row of a step alone does not say that something was changed.
fn machine(job: &JobJson, steps: &[StepJson]) -> Option<String> {
    let began =
        |is_meant: fn(&str) -> bool| steps.iter().any(|step| step.phase != "skipped" && is_meant(&step.step));
    let is_installation = job.workflow == words::INSTALLATION;
    let is_left =
        job.failure.as_ref().is_some_and(|failure| NOT_CLEANED_UP.contains(&failure.class.as_str()));
    let said = match job.cleanup.state.as_str() {
        "done" if is_left => "not cleaned up: the job was ended without its cleanup",
        "done" if is_installation && !began(words::changes_machine) => "nothing was changed",
        "done" if is_installation && !began(words::starts_machine) => {
            "media ejected, boot setting cleared; the job did not start its boot image"
        }
        "done" if is_installation => "media ejected, boot setting cleared; the disk stays as it was written",
        "done" => "the cleanup is done",
        "running" => "the cleanup runs",
        "incomplete" => return Some(format!("not cleaned up: {}", job.cleanup.remaining.join(", "))),
        _ => return None,
    };
    Some(said.to_owned())
}

fn verbs(job: &JobJson, offered: &[String]) -> Vec<Verb> {
    let verb = |word: &str| {
        let (name, icon, class) = match word {
            "cancel" => ("Cancel…", None, "risk"),
            "hold" => ("Hold…", None, ""),
            "resume" => ("Resume…", Some("working"), "main"),
            "finish" => ("Finish…", Some("done"), "main"),
            // Another installation forces the host off and writes its disk.
            "retry" if job.workflow == words::INSTALLATION => ("Retry…", Some("retry"), "risk"),
            "retry" if job.outcome.as_deref() == Some("succeeded") => ("Retry…", Some("retry"), ""),
            "retry" => ("Retry…", Some("retry"), "main"),
            _ => return None,
        };
        Some(Verb { path: format!("/ui/jobs/{}/{word}", job.job_id), name, icon, class })
    };
    // The one that changes most stands last.
    ["hold", "retry", "resume", "finish", "cancel"]
        .into_iter()
        .filter(|word| offered.iter().any(|offered| offered == word))
        .filter_map(verb)
        .collect()
}

fn steps(
    job: &JobJson,
    steps: &[StepJson],
    events: &[EventJson],
    state: State,
    end: Timestamp,
) -> Vec<StepRow> {
    let span = (end.as_millisecond() - job.created_at.as_millisecond()).max(1);
    let share = |at: Timestamp| {
        let part = (at.as_millisecond() - job.created_at.as_millisecond()).clamp(0, span);
        part as f64 * 100.0 / span as f64
    };
    let row = |step: &StepJson| {
        let current = step.ended_at.is_none() && job.status != "complete";
        let failed = step.phase == "failed" || job.failed_step.as_ref() == Some(&step.step);
        let (of_step, icon) = match step.phase.as_str() {
            _ if failed => (State::Failed, "failed"),
            "stuck" => (State::Failed, "failed"),
            "skipped" | "undone" => (State::Queued, "skip"),
            "intent" if current => (state, state.icon()),
            "intent" => (State::Queued, "skip"),
            _ => (State::Done, "done"),
        };
        let begun = share(step.started_at);
        let until = step.ended_at.unwrap_or(end);
        let said = events.iter().rev().find(|event| event.step.as_ref() == Some(&step.step));
        let attempt = if step.attempt > 1 { format!(" · attempt {}", step.attempt) } else { String::new() };
        StepRow {
            state: of_step,
            icon,
            name: match &step.of {
                Some(of) => words::cut(&format!("{}: {of}", words::step(&step.step))),
                None => words::step(&step.step).to_owned(),
            },
            code: format!("{}{attempt}", step.step),
            said: said.map(|event| words::cut(&event.message)).unwrap_or_default(),
            took: took(step.started_at, until),
            now: current || failed,
            start: format!("{begun:.1}"),
            width: format!("{:.1}", (share(until) - begun).max(0.6)),
        }
    };
    steps.iter().map(row).collect()
}

fn medium(read: &MediaRead, over: bool, now: Timestamp) -> Medium {
    let name = match read.image.as_str() {
        "boot" => "Boot image",
        "firmware" => "Firmware image",
        _ => "Task image",
    };
    let mark = |what: &'static str, at: Option<Timestamp>, never: &str| match at {
        Some(at) => ("done", what, When::of(at, now).clock().to_owned()),
        None => ("skip", what, never.to_owned()),
    };
    let boots = read.image == "boot";
    let never = if over || read.ended_at.is_some() { "never" } else { "not yet" };
    Medium {
        name,
        bar: Meter::new(read.bytes, read.size, "working", &format!("{name}: part that was sent")),
        bytes: format!("{} sent, the image has {}", words::bytes(read.bytes), words::bytes(read.size)),
        marks: vec![
            mark("First read", read.first_read_at, never),
            mark("Boot record read", read.boot_read_at, if boots { never } else { "does not boot" }),
            mark("Last read", read.last_read_at, never),
        ],
    }
}

/// The time span of the reports from which the rate of the OS image is computed, in seconds.
const RATE_OF: i64 = 30;
/// The seconds after the last report from which on the installer is silent: what it reads now is not known.
const SILENT: i64 = 20;

/// The bytes of the OS image that the maintenance OS has read, if its last report says so.
fn os_image(events: &[EventJson], now: Timestamp) -> Option<Medium> {
    let mut reports = events.iter().rev().filter(|event| event.kind == "report.progress");
    let read = |event: &EventJson| {
        let number = |name: &str| event.data[name].as_u64();
        Some((event.time, number("bytes")?, number("total")?))
    };
    let last = reports.next()?;
    let (at, bytes, total) = read(last)?;
    let earlier = reports
        .take_while(|event| event.data["step"] == last.data["step"] && seconds(event.time, at) <= RATE_OF)
        .filter_map(read)
        .filter(|(_, before, of)| *before <= bytes && *of == total)
        .last();
    let mut text = format!("{} of {} read", words::bytes(bytes), words::bytes(total));
    let rate = earlier.and_then(|(since, before, _)| {
        let took = at.as_millisecond().saturating_sub(since.as_millisecond()).unsigned_abs();
        (bytes - before).saturating_mul(1000).checked_div(took)
    });
    let is_silent = seconds(at, now) >= SILENT;
    if is_silent {
        text.push_str(&format!(", last report {}", When::of(at, now).words()));
    }
    if let Some(rate) = rate.filter(|rate| *rate > 0 && !is_silent) {
        text.push_str(&format!(", {}/s", words::bytes(rate)));
        let left = total.saturating_sub(bytes) / rate;
        if left > 0 {
            text.push_str(&format!(", {} left", crate::time::duration(left)));
        }
    }
    Some(Medium {
        name: "OS image",
        bar: Meter::new(bytes, total, "working", "OS image: part that was read"),
        bytes: text,
        marks: vec![("done", "Last report", When::of(at, now).clock().to_owned())],
    })
}

fn facts(job: &JobJson, slot_plan: Option<&Value>, now: Timestamp) -> Vec<(&'static str, Fact)> {
    let mut facts = vec![("Created", Fact::Time(When::of(job.created_at, now)))];
    if job.status != "complete" {
        facts.push(("Ends at the latest", Fact::Time(When::of(job.deadline_at, now))));
    }
    facts.push(("Priority", Fact::Text(job.priority.to_string())));
    if let Some(image) = &job.maintenance_iso_url {
        facts.push(("Boot image", Fact::Text(words::cut(image))));
    }
    let plan = slot_plan.and_then(|plan| plan["name"].as_str().or_else(|| plan["plan"].as_str()));
    if let Some(plan) = plan {
        facts.push(("Slot plan", Fact::Text(words::cut(plan))));
    }
    facts
}
