//! Holds: a run is stopped until an operator decides, and resumed. Pure functions.

use std::time::Duration;

use serde_json::json;

use super::cursor::{Next, next, step_to};
use model::{Hold, HoldClass, NewEvent, Run, RunChange, Snapshot, StepRecord, Time, Trigger};

/// The interval between two reminders of a hold.
const REMIND: Duration = Duration::from_secs(24 * 3600);

/// The change that stops a run until an operator decides.
pub(super) fn hold(snapshot: &Snapshot, hold: Hold) -> RunChange {
    let mut change = RunChange::of(Run { wait: None, ..snapshot.run.clone() });
    put_on_hold(&mut change, hold);
    change
}

/// A hold that the engine places itself, not a step.
pub(super) fn held(class: HoldClass, detail: String, now: Time) -> Hold {
    Hold {
        class,
        since: now,
        remind_at: now.plus(REMIND),
        verbs: vec!["resume".to_owned(), "cancel".to_owned()],
        detail,
    }
}

/// The change that resumes a held run. The time in the hold counts neither against the deadline of the run nor against the
/// budget of the step: without that, a run that is resumed late would fail at once.
pub(super) fn resume(snapshot: &Snapshot, now: Time) -> RunChange {
    let phase = step_to(snapshot.run.phase, Trigger::Resume);
    let held_for = snapshot.run.hold.as_ref().map_or(Duration::ZERO, |hold| now.since(hold.since));
    let deadline_at = snapshot.run.deadline_at.plus(held_for);
    let mut change =
        RunChange::of(Run { phase, hold: None, next_run_at: Some(now), deadline_at, ..snapshot.run.clone() });
    if let Next::Run(at) = next(snapshot)
        && let Some(record) = snapshot.record(at)
    {
        change.steps.push(StepRecord { attempt: 1, started_at: now, ..record.clone() });
    }
    change
}

pub(super) fn put_on_hold(change: &mut RunChange, hold: Hold) {
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
