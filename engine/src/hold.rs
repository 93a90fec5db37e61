//! Holds: a run stopped until an operator decides, and let go on. Pure.

use std::time::Duration;

use serde_json::json;

use super::decide::{Next, next, step_to};
use crate::model::{Change, Hold, NewEvent, Run, Snapshot, StepRecord, Time, Trigger};

/// How often a hold is mentioned again.
const REMIND: Duration = Duration::from_secs(24 * 3600);

/// The change that stops a run until an operator decides.
pub(super) fn hold(snapshot: &Snapshot, hold: Hold) -> Change {
    let mut change = Change::of(Run { wait: None, ..snapshot.run.clone() });
    put_on_hold(&mut change, hold);
    change
}

/// A hold of the engine's own.
pub(super) fn held(class: &str, detail: String, now: Time) -> Hold {
    Hold {
        class: class.to_owned(),
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail,
    }
}

/// The change that lets a held run go on. The time it was held counts neither against its deadline nor against the budget
/// of the step it was held in: an operator who says "go on" does not mean "fail at once".
pub(super) fn resume(snapshot: &Snapshot, now: Time) -> Change {
    let phase = step_to(snapshot.run.phase, Trigger::Resume);
    let stood = snapshot.run.hold.as_ref().map_or(Duration::ZERO, |hold| now.since(hold.since));
    let deadline_at = snapshot.run.deadline_at.plus(stood);
    let mut change =
        Change::of(Run { phase, hold: None, next_run_at: Some(now), deadline_at, ..snapshot.run.clone() });
    if let Next::Run(at) = next(snapshot)
        && let Some(record) = snapshot.record(at)
    {
        change.steps.push(StepRecord { attempt: 1, started_at: now, ..record.clone() });
    }
    change
}

pub(super) fn put_on_hold(change: &mut Change, hold: Hold) {
    let run = &mut change.run;
    run.phase = step_to(run.phase, Trigger::Hold);
    run.wait = None;
    run.lease = None;
    run.next_run_at = None;
    change.events.push(
        NewEvent::warn("run.held", format!("held until an operator decides: {}", hold.detail))
            .with(json!({ "class": hold.class, "verbs": hold.verbs })),
    );
    run.hold = Some(hold);
}
