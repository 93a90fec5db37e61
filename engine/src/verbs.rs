//! Operator verbs: signals checked by a pure table of (phase, verb).
//!
//! ```text
//!             queued  running  waiting  held  unwinding  finishing  ended
//!   cancel      yes     yes      yes     yes     no          no       no     (already ending: nothing to cancel, unless
//!                                                                             it was cancelled: then asking again is fine)
//!   hold        yes     no       yes      no     no          no       no
//!   resume      no      no       no      yes     no          no       no
//! ```

use serde_json::{Value, json};

use super::class;
use super::decide::{self, Circumstances};
use super::hold;
use super::workflow::{StepReport, Verdict};
use crate::model::{Change, Failure, NewEvent, Outcome, Phase, Signal, Snapshot, StepRecord, Time};
use crate::store::CANCEL;

/// What an operator can ask of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// End it; clean up.
    Cancel,
    /// Stop it until somebody decides.
    Hold,
    /// Let a held one go on.
    Resume,
}

impl Verb {
    /// The verb's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Resume => "resume",
        }
    }

    /// Whether the verb means something in this phase.
    pub fn allowed(self, phase: Phase) -> bool {
        match self {
            Self::Cancel => phase.is_forward(),
            Self::Hold => matches!(phase, Phase::Queued | Phase::Waiting),
            Self::Resume => phase == Phase::Held,
        }
    }
}

/// Why a verb was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbRefused {
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// It means nothing in this phase.
    #[error("cannot {} a run that is {}", verb.as_str(), phase.as_str())]
    NotNow {
        /// The verb.
        verb: Verb,
        /// Where the run is.
        phase: Phase,
    },
}

/// The signal that carries a cancel.
pub(super) fn cancel_signal(actor: &str, reason: &str, now: Time) -> Signal {
    Signal {
        name: CANCEL.to_owned(),
        key: String::new(),
        payload: json!({ "by": actor, "reason": reason }),
        received_at: now,
        consumed: false,
    }
}

/// Whether an operator asked for the end, and the end is not begun.
pub(super) fn cancel_pending(snapshot: &Snapshot) -> bool {
    snapshot.run.phase.is_forward() && request(snapshot).is_some()
}

/// The change that ends a run because an operator asked for it.
pub(super) fn cancelled(snapshot: &Snapshot, circumstances: &Circumstances<'_>) -> Change {
    marked(decide::conclude(snapshot, Outcome::Cancelled, Some(failure(snapshot)), circumstances), snapshot)
}

/// The same while a step was at work: what it found and did is kept, whatever it concluded.
pub(super) fn cancelled_during_step(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    circumstances: &Circumstances<'_>,
) -> Change {
    let report =
        StepReport { verdict: Verdict::Fail(failure(snapshot)), children: Vec::new(), ..report.clone() };
    marked(decide::after(snapshot, record, &report, circumstances), snapshot)
}

fn request(snapshot: &Snapshot) -> Option<&Signal> {
    snapshot.pending().find(|signal| signal.name == CANCEL)
}

fn failure(snapshot: &Snapshot) -> Failure {
    let payload = request(snapshot).map(|signal| &signal.payload);
    let said = |key: &str| {
        payload.and_then(|payload| payload.get(key)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let reason = said("reason");
    Failure {
        class: class::CANCELLED.to_owned(),
        step: snapshot.run.step.clone().unwrap_or_else(|| "queued".to_owned()),
        summary: if reason.is_empty() {
            format!("cancelled by {}", said("by"))
        } else {
            format!("cancelled by {}: {reason}", said("by"))
        },
        evidence: None,
        next_action: "create a new job when the server should be installed after all".to_owned(),
    }
}

fn marked(mut change: Change, snapshot: &Snapshot) -> Change {
    change.run.cancel_requested_at =
        change.run.cancel_requested_at.or(request(snapshot).map(|signal| signal.received_at));
    change.consumed.push((CANCEL.to_owned(), String::new()));
    change
}

/// The change of a hold asked for by an operator.
pub(super) fn held(snapshot: &Snapshot, actor: &str, reason: &str, now: Time) -> Change {
    let detail =
        if reason.is_empty() { format!("held by {actor}") } else { format!("held by {actor}: {reason}") };
    hold::hold(snapshot, hold::held("operator", detail, now))
}

/// The change of a resume.
pub(super) fn resumed(snapshot: &Snapshot, actor: &str, now: Time) -> Change {
    let mut change = hold::resume(snapshot, now);
    change.events.push(NewEvent::info("run.resumed", format!("resumed by {actor}")).by(actor));
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_verbs_is_the_documented_one() {
        let row = |verb: Verb| Phase::ALL.map(|phase| verb.allowed(phase));
        assert_eq!(row(Verb::Cancel), [true, true, true, true, false, false, false]);
        assert_eq!(row(Verb::Hold), [true, false, true, false, false, false, false]);
        assert_eq!(row(Verb::Resume), [false, false, false, true, false, false, false]);
    }
}
