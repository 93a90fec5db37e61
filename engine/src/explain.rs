//! Why a run is where it is, in words: pure, total, and an answer for every state (lock L6).
//!
//! ```text
//!  ended --- how, and what to do about it              no lease --- in line for a lock? --- whose turn it is
//!  held ---- what must be decided, by which verbs                  wait? retry ----------- which try failed how
//!  leased -- working | cancelling | abandoned                            any other ------- the kind's own words
//!                                                                  none -- gate closed? -- who closed it and why
//!                                                                          due ----------- no worker free yet
//! ```
//!
//! Invariant: whoever is not at the end is told what ends the state, and either a time by which it ends or is looked at
//! again, or (held) the verbs that end it.

use serde::Serialize;

use super::decide::{self, Next, RETRY};
use super::dispatcher::Engine;
use super::interrupt::PATIENCE;
use super::verbs;
use super::workflow::{Kind, Reason, StepPolicy, WorkflowRegistry};
use crate::model::{Gate, Hold, Lease, Outcome, Phase, Run, Snapshot, TURN, Time, Wait};
use crate::store::{QueuePosition, StoreError, UNREADABLE};

/// What kind of state a run is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Made, and no worker was free yet.
    Queued,
    /// A gate keeps it from beginning.
    Gated,
    /// Another family of runs holds what it needs.
    Blocked,
    /// A worker carries out a step.
    Working,
    /// An operator asked for its end while a step is being carried out.
    Cancelling,
    /// Its worker's lease ran out.
    Abandoned,
    /// Parked until a signal or a time.
    Waiting,
    /// Parked between two tries.
    Retrying,
    /// Between two steps, to be picked up by the next free worker.
    Due,
    /// Stopped until an operator decides.
    Held,
    /// Over.
    Ended,
}

/// Why a run is where it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// What kind of state it is in.
    pub condition: Condition,
    /// The typed reason of a wait, the class of a hold or of a failure.
    pub reason: Option<String>,
    /// The step it is at.
    pub step: Option<String>,
    /// One or two sentences.
    pub summary: String,
    /// Since when.
    pub since: Time,
    /// When it ends in any case.
    pub deadline: Option<Time>,
    /// When it is looked at again if nothing happens.
    pub next_check: Option<Time>,
    /// What ends it.
    pub ends_by: String,
    /// What a person can do.
    pub next_action: String,
    /// What a cancel has to wait for: the step at work, when it may not be interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uninterruptible: Option<String>,
}

/// What stands before a run besides itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Blockers {
    /// The line its family stands in.
    pub line: Option<QueuePosition>,
    /// The gate that keeps it from beginning.
    pub gate: Option<Gate>,
}

impl Engine {
    /// Explains a run as it is now.
    pub async fn explain(&self, snapshot: &Snapshot) -> Result<Explanation, StoreError> {
        let run = &snapshot.run;
        let line = self.store().queue_position(run.root).await?;
        let begins = run.epoch == 0 && run.phase.is_forward();
        let gate = self.store().gate(run).await?.or(self.pressure().filter(|_| begins).map(Gate::Pressure));
        Ok(explain(snapshot, self.kinds(), &Blockers { line, gate }, self.clock().now()))
    }
}

/// Explains a run of which nothing but its hold can be read.
pub fn unreadable(hold: &Hold) -> Explanation {
    Explanation {
        condition: Condition::Held,
        reason: Some(hold.class.clone()),
        step: None,
        summary: hold.detail.clone(),
        since: hold.since,
        deadline: None,
        next_check: None,
        ends_by: format!("an operator's {}", hold.verbs.join(" or ")),
        next_action: held_action(&hold.class).to_owned(),
        uninterruptible: None,
    }
}

/// Explains a run at a moment.
pub fn explain(snapshot: &Snapshot, kinds: &WorkflowRegistry, standing: &Blockers, now: Time) -> Explanation {
    let run = &snapshot.run;
    let kind = kinds.get(&run.kind).map(|kind| &**kind);
    match (run.phase, &run.hold, &run.lease, &run.wait) {
        (Phase::Ended, ..) => ended(snapshot),
        (_, Some(hold), ..) => held(run, hold),
        (_, _, Some(lease), _) => leased(snapshot, kind, lease, now),
        (_, _, _, Some(wait)) if wait.reason == RETRY => retrying(snapshot, kind, wait),
        (_, _, _, Some(wait)) => waiting(run, kind, wait, standing),
        _ => unclaimed(run, kind, standing),
    }
}

fn of(run: &Run, condition: Condition, since: Time) -> Explanation {
    Explanation {
        condition,
        reason: None,
        step: run.step.clone(),
        summary: String::new(),
        since,
        deadline: Some(run.deadline_at),
        next_check: run.next_run_at,
        ends_by: String::new(),
        next_action: String::new(),
        uninterruptible: None,
    }
}

fn ended(snapshot: &Snapshot) -> Explanation {
    let run = &snapshot.run;
    let left = decide::left_undone(snapshot);
    let outcome = run.outcome.unwrap_or(Outcome::Failed);
    let mut summary = match &run.failure {
        Some(failure) => format!("{} at {}: {}", outcome.as_str(), failure.step, failure.summary),
        None => outcome.as_str().to_owned(),
    };
    let mut next_action =
        run.failure.as_ref().map_or_else(|| "nothing".to_owned(), |failure| failure.next_action.clone());
    if !left.is_empty() {
        let left = left.join(", ");
        summary = format!("{summary}; left undone: {left}");
        next_action =
            format!("do by hand, or let the next run do, what {left} could not; then: {next_action}");
    }
    Explanation {
        reason: run.failure.as_ref().map(|failure| failure.class.clone()),
        summary,
        deadline: None,
        next_check: None,
        ends_by: "nothing: it is over".to_owned(),
        next_action,
        ..of(run, Condition::Ended, run.updated_at)
    }
}

fn held(run: &Run, hold: &Hold) -> Explanation {
    Explanation {
        reason: Some(hold.class.clone()),
        summary: hold.detail.clone(),
        deadline: None,
        next_check: None,
        ends_by: format!("an operator's {}", hold.verbs.join(" or ")),
        next_action: held_action(&hold.class).to_owned(),
        ..of(run, Condition::Held, hold.since)
    }
}

fn held_action(class: &str) -> &'static str {
    match class {
        "unknown_step" | "unknown_kind" | "kind_version" => {
            "start the version of the program that made it, then resume; or cancel and create it again"
        }
        UNREADABLE => {
            "restore the record from a backup or start the program that wrote it, then resume; or cancel: it ends without any \
             cleanup"
        }
        _ => "decide: resume it to go on where it stopped, or cancel it to clean up",
    }
}

fn leased(snapshot: &Snapshot, kind: Option<&dyn Kind>, lease: &Lease, now: Time) -> Explanation {
    let run = &snapshot.run;
    let record = match decide::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at),
        Next::StageCompleted => None,
    };
    let since = record.map_or(run.progress_at, |record| record.started_at);
    let step = record.map(|record| record.name.clone()).or_else(|| run.step.clone());
    let doing = match (&step, run.phase) {
        (Some(step), Phase::Unwinding) => format!("undoing {step}"),
        (Some(step), _) => step.clone(),
        (None, _) => "choosing the next step".to_owned(),
    };
    if lease.expires_at <= now {
        return Explanation {
            step,
            summary: format!(
                "{} worked on {doing} and stopped renewing its lease, which ran out at {}",
                lease.owner, lease.expires_at
            ),
            ends_by: "another worker taking it over, which looks before it acts".to_owned(),
            next_action: "nothing, unless no controller is running".to_owned(),
            ..of(run, Condition::Abandoned, lease.expires_at)
        };
    }
    let policy = match (step.as_deref(), kind) {
        (Some(step), Some(kind)) => kind.policy(step, snapshot),
        _ => StepPolicy::default(),
    };
    let uninterruptible = step.clone().filter(|_| !policy.interruptible);
    if verbs::cancel_pending(snapshot) {
        let patience = PATIENCE.as_secs();
        let (how, ends_by) = match policy.interruptible {
            true => ("is being interrupted", format!("{doing} being dropped, at once")),
            false => (
                "may not be interrupted",
                format!(
                    "{doing} answering; after {patience} s it is dropped as soon as the request it has sent is over"
                ),
            ),
        };
        return Explanation {
            summary: format!("its end was asked for; {doing} {how}"),
            step,
            deadline: Some(now.plus(policy.call).min(lease.expires_at)),
            next_check: Some(lease.expires_at),
            ends_by,
            next_action: "nothing: cleaning up follows".to_owned(),
            uninterruptible,
            ..of(run, Condition::Cancelling, since)
        };
    }
    let attempt = record.map_or(1, |record| record.attempt);
    let tries = if attempt > 1 { format!(" (try {attempt} of {})", policy.attempts) } else { String::new() };
    Explanation {
        summary: format!("{} is at work on {doing}{tries}", lease.owner),
        step,
        deadline: Some(since.plus(policy.budget).min(run.deadline_at).max(lease.expires_at)),
        next_check: Some(lease.expires_at),
        ends_by: format!("{doing} answering, each call within {} s", policy.call.as_secs()),
        next_action: "nothing yet".to_owned(),
        uninterruptible,
        ..of(run, Condition::Working, since)
    }
}

fn retrying(snapshot: &Snapshot, kind: Option<&dyn Kind>, wait: &Wait) -> Explanation {
    let run = &snapshot.run;
    let next = match decide::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at).map_or(1, |record| record.attempt),
        Next::StageCompleted => 1,
    };
    let most = kind
        .filter(|kind| kind.step(&wait.step).is_some())
        .map(|kind| kind.policy(&wait.step, snapshot).attempts);
    let most = most.map_or(String::new(), |most| format!(" of {}", most.max(next)));
    Explanation {
        reason: Some(RETRY.to_owned()),
        step: Some(wait.step.clone()),
        summary: format!("try {} of {} failed: {}", next.saturating_sub(1), wait.step, wait.detail),
        deadline: Some(wait.deadline),
        next_check: Some(wait.due()),
        ends_by: format!("try {next}{most}"),
        next_action: "correct what the summary names; the next try finds it mended".to_owned(),
        ..of(run, Condition::Retrying, wait.since)
    }
}

fn waiting(run: &Run, kind: Option<&dyn Kind>, wait: &Wait, standing: &Blockers) -> Explanation {
    let reason: Option<&Reason> =
        kind.and_then(|kind| kind.reasons().iter().find(|reason| reason.name == wait.reason)).copied();
    let (means, ends_by, next_action) = match reason {
        Some(reason) => (reason.means.to_owned(), reason.ends_by.to_owned(), reason.next_action.to_owned()),
        None => (
            format!("{:?}, a reason this program does not know", wait.reason),
            "its deadline, or what the program that made it looks for".to_owned(),
            "start the version of the program that made it".to_owned(),
        ),
    };
    Explanation {
        reason: Some(wait.reason.clone()),
        step: Some(wait.step.clone()),
        summary: match standing.line.as_ref().filter(|_| wait.signals.iter().any(|signal| signal == TURN)) {
            Some(line) => format!("waiting for {means}: {}; {}", wait.detail, in_line(kind, line)),
            None => format!("waiting for {means}: {}", wait.detail),
        },
        deadline: Some(wait.deadline),
        next_check: Some(run.next_run_at.unwrap_or(wait.due())),
        ends_by,
        next_action,
        ..of(run, Condition::Waiting, wait.since)
    }
}

/// The line a family stands in, in words: what is limited by what, who has it, and how far off its turn is.
fn in_line(kind: Option<&dyn Kind>, line: &QueuePosition) -> String {
    let QueuePosition { resource, places, holder, taken, place, waiting } = line;
    let limit =
        kind.and_then(|kind| kind.limit(resource)).map_or(String::new(), |limit| format!(" ({limit})"));
    let one = if *places == 1 { "place" } else { "places" };
    let by = holder.map_or_else(String::new, |holder| {
        if *taken > 1 { format!(", one by {holder}") } else { format!(", by {holder}") }
    });
    format!("{resource} has {places} {one}{limit}, {taken} taken{by}; it stands {place} of {waiting} in line")
}

fn unclaimed(run: &Run, kind: Option<&dyn Kind>, standing: &Blockers) -> Explanation {
    if let Some(gate) = &standing.gate {
        return gated(run, gate);
    }
    if let Some(line) = &standing.line {
        let next_action = match line.holder {
            Some(holder) if line.places == 1 => {
                format!("see why {holder} takes so long, or cancel one of the two")
            }
            Some(_) => "nothing: it is its turn when others are done; or cancel some of them".to_owned(),
            None => "nothing".to_owned(),
        };
        return Explanation {
            reason: Some("limit".to_owned()),
            summary: in_line(kind, line),
            ends_by: "the end of one that has a place; then by priority and age, batches in turn".to_owned(),
            next_action,
            ..of(run, Condition::Blocked, run.created_at)
        };
    }
    let (condition, since, summary) = match run.phase {
        Phase::Queued => (Condition::Queued, run.created_at, "accepted; no worker has been free yet"),
        _ => (Condition::Due, run.progress_at, "ready to go on; no worker has been free yet"),
    };
    Explanation {
        summary: summary.to_owned(),
        ends_by: format!("the next free worker of the queue {:?}", run.queue),
        next_action:
            "see /readyz, and WORKER_CONCURRENCY if many wait like this; a higher priority goes first"
                .to_owned(),
        ..of(run, condition, since)
    }
}

fn gated(run: &Run, gate: &Gate) -> Explanation {
    let why = |reason: &str| if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    let (summary, ends_by, next_action) = match gate {
        Gate::Drain(closed) => (
            format!("the controller was drained by {}{}: no job begins", closed.by, why(&closed.reason)),
            "the end of the drain".to_owned(),
            "`shoal controller undrain` when the reason is gone".to_owned(),
        ),
        Gate::Maintenance(server, closed) => (
            format!(
                "{server} was put into maintenance by {}{}: no job begins on it",
                closed.by,
                why(&closed.reason)
            ),
            "the end of the maintenance".to_owned(),
            format!("`shoal server maintenance end {server}` when the reason is gone"),
        ),
        Gate::Pressure(pressure) => (
            format!("the controller begins nothing new for now: {}", pressure.detail),
            "the next look that finds it well; it looks every few seconds".to_owned(),
            pressure.next_action.clone(),
        ),
    };
    Explanation {
        reason: Some(gate.name().to_owned()),
        summary,
        // It is never begun after its deadline: by then it fails.
        next_check: Some(run.deadline_at),
        ends_by,
        next_action,
        ..of(run, Condition::Gated, gate.since())
    }
}
