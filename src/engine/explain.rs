//! Why a run is where it is, in words: pure, total, and an answer for every state (lock L6).
//!
//! ```text
//!  ended --- how, and what to do about it              no lease --- in line for a lock? --- whose turn it is
//!  held ---- what must be decided, by which verbs                  wait? retry ----------- which try failed how
//!  leased -- working | cancelling | abandoned                            any other ------- the kind's own words
//!                                                                  none ------------------ due, no worker free yet
//! ```
//!
//! Invariant: whoever is not at the end is told what ends the state, and either a time by which it ends or is looked at
//! again, or (held) the verbs that end it.

use serde::Serialize;

use super::decide::{self, Next, RETRY};
use super::kind::{Kind, Kinds, Reason};
use super::verbs;
use crate::model::{Hold, Lease, Outcome, Phase, Run, Snapshot, StepPhase, Time, Wait};
use crate::store::StandsInLine;

/// What kind of state a run is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Made, and no worker was free yet.
    Queued,
    /// Another family of runs holds what it needs.
    InLine,
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
    pub looked_at: Option<Time>,
    /// What ends it.
    pub ends_by: String,
    /// What a person can do.
    pub next_action: String,
}

/// Explains a run at a moment.
pub fn explain(snapshot: &Snapshot, kinds: &Kinds, line: Option<&StandsInLine>, now: Time) -> Explanation {
    let run = &snapshot.run;
    let kind = kinds.get(&run.kind).map(|kind| &**kind);
    match (run.phase, &run.hold, &run.lease, &run.wait) {
        (Phase::Ended, ..) => ended(snapshot),
        (_, Some(hold), ..) => held(run, hold),
        (_, _, Some(lease), _) => leased(snapshot, kind, lease, now),
        (_, _, _, Some(wait)) if wait.reason == RETRY => retrying(snapshot, kind, wait),
        (_, _, _, Some(wait)) => waiting(run, kind, wait),
        _ => unclaimed(run, line),
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
        looked_at: run.next_run_at,
        ends_by: String::new(),
        next_action: String::new(),
    }
}

fn ended(snapshot: &Snapshot) -> Explanation {
    let run = &snapshot.run;
    let left: Vec<&str> = snapshot
        .steps
        .iter()
        .filter(|record| record.at.stage == crate::model::Stage::Finish && record.phase == StepPhase::Failed)
        .map(|record| record.name.as_str())
        .collect();
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
        looked_at: None,
        ends_by: "nothing: it is over".to_owned(),
        next_action,
        ..of(run, Condition::Ended, run.updated_at)
    }
}

fn held(run: &Run, hold: &Hold) -> Explanation {
    let next_action = match hold.class.as_str() {
        "unknown_step" | "unknown_kind" | "kind_version" => {
            "start the version of the program that made it, then resume; or cancel and create it again"
        }
        _ => "decide: resume it to go on where it stopped, or cancel it to clean up",
    };
    Explanation {
        reason: Some(hold.class.clone()),
        summary: hold.detail.clone(),
        deadline: None,
        looked_at: None,
        ends_by: format!("an operator's {}", hold.verbs.join(" or ")),
        next_action: next_action.to_owned(),
        ..of(run, Condition::Held, hold.since)
    }
}

fn leased(snapshot: &Snapshot, kind: Option<&dyn Kind>, lease: &Lease, now: Time) -> Explanation {
    let run = &snapshot.run;
    let record = match decide::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at),
        Next::StageOver => None,
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
    let policy = step
        .as_deref()
        .and_then(|step| kind.and_then(|kind| kind.step(step)))
        .map(|step| step.policy())
        .unwrap_or_default();
    if run.phase.is_forward() && verbs::cancel_pending(snapshot) {
        let how = if policy.interruptible { "is being interrupted" } else { "may not be interrupted" };
        return Explanation {
            summary: format!("its end was asked for; {doing} {how}"),
            step,
            deadline: Some(now.plus(policy.call).min(lease.expires_at)),
            looked_at: Some(lease.expires_at),
            ends_by: format!("{doing} answering, within {} s", policy.call.as_secs()),
            next_action: "nothing: cleaning up follows".to_owned(),
            ..of(run, Condition::Cancelling, since)
        };
    }
    let attempt = record.map_or(1, |record| record.attempt);
    let tries = if attempt > 1 { format!(" (try {attempt} of {})", policy.attempts) } else { String::new() };
    Explanation {
        summary: format!("{} is at work on {doing}{tries}", lease.owner),
        step,
        deadline: Some(since.plus(policy.budget).min(run.deadline_at).max(lease.expires_at)),
        looked_at: Some(lease.expires_at),
        ends_by: format!("{doing} answering, each call within {} s", policy.call.as_secs()),
        next_action: "nothing yet".to_owned(),
        ..of(run, Condition::Working, since)
    }
}

fn retrying(snapshot: &Snapshot, kind: Option<&dyn Kind>, wait: &Wait) -> Explanation {
    let run = &snapshot.run;
    let next = match decide::next(snapshot) {
        Next::Run(at) | Next::Undo(at) => snapshot.record(at).map_or(1, |record| record.attempt),
        Next::StageOver => 1,
    };
    let most = kind.and_then(|kind| kind.step(&wait.step)).map(|step| step.policy().attempts);
    let most = most.map_or(String::new(), |most| format!(" of {}", most.max(next)));
    Explanation {
        reason: Some(RETRY.to_owned()),
        step: Some(wait.step.clone()),
        summary: format!("try {} of {} failed: {}", next.saturating_sub(1), wait.step, wait.detail),
        deadline: Some(wait.deadline),
        looked_at: Some(wait.due()),
        ends_by: format!("try {next}{most}"),
        next_action: "correct what the summary names; the next try finds it mended".to_owned(),
        ..of(run, Condition::Retrying, wait.since)
    }
}

fn waiting(run: &Run, kind: Option<&dyn Kind>, wait: &Wait) -> Explanation {
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
        summary: format!("waiting for {means}: {}", wait.detail),
        deadline: Some(wait.deadline),
        looked_at: Some(run.next_run_at.unwrap_or(wait.due())),
        ends_by,
        next_action,
        ..of(run, Condition::Waiting, wait.since)
    }
}

fn unclaimed(run: &Run, line: Option<&StandsInLine>) -> Explanation {
    if let Some(StandsInLine { resource, places, holder: _ }) = line.filter(|line| line.places > 1) {
        return Explanation {
            summary: format!("{resource} has {places} places, and all are taken"),
            ends_by: "the end of one that has a place; then by priority and age".to_owned(),
            next_action: "nothing: it is its turn when others are done; or cancel some of them".to_owned(),
            ..of(run, Condition::InLine, run.created_at)
        };
    }
    if let Some(StandsInLine { resource, holder, .. }) = line {
        let by = holder.map_or_else(|| "being handed over".to_owned(), |holder| format!("held by {holder}"));
        return Explanation {
            summary: format!("it needs {resource} for itself, which is {by}"),
            ends_by: "the holder's end; then by priority and age".to_owned(),
            next_action: holder.map_or_else(
                || "nothing".to_owned(),
                |holder| format!("see why {holder} takes so long, or cancel one of the two"),
            ),
            ..of(run, Condition::InLine, run.created_at)
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
