//! The changes that operator verbs make to a run; [`Verb`] has the table of phases that allow each of them.
//! A run of a restored server accepts none: its release decides whether it continues or ends (decision D26).

use super::cancel;
use super::decide::{self, DecisionContext};
use super::hold;
use super::workflow::{StepOutcome, StepReport};
use model::{HoldClass, NewEvent, Outcome, Phase, RunChange, Serial, Snapshot, StepRecord, Time, Verb};
use store::CANCEL;

/// Why a verb was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbRefused {
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// The workflow does not offer the verb.
    #[error("cannot {} a job of the workflow {workflow}", verb.as_str())]
    NotOffered {
        /// The verb.
        verb: Verb,
        /// The name of the workflow.
        workflow: String,
    },
    /// The server of the run is restored and not released.
    #[error(
        "cannot {} a run of restored data: server {server} must be released first (shoal server release {server}); the release \
         can also end the run without touching the machine",
        verb.as_str()
    )]
    Restored {
        /// The verb.
        verb: Verb,
        /// The server.
        server: Serial,
    },
    /// The run has another revision than the one for which the verb was requested.
    #[error(
        "the job has changed since it was read; its ETag is now \"{revision}\": read it again, then decide"
    )]
    Changed {
        /// The revision of the run.
        revision: i64,
    },
    /// A run in this phase does not accept the verb.
    #[error("cannot {} a run that is {}", verb.as_str(), phase.as_str())]
    NotNow {
        /// The verb.
        verb: Verb,
        /// The phase of the run.
        phase: Phase,
    },
}

/// The change that ends a cancelled run between two steps.
pub(super) fn cancelled(snapshot: &Snapshot, context: &DecisionContext<'_>) -> RunChange {
    with_cancel(
        decide::conclude(snapshot, Outcome::Cancelled, Some(cancel::failure(snapshot)), context),
        snapshot,
    )
}

/// The change that ends a cancelled run after a step has reported. The output and effects of the step are kept, whatever its
/// outcome was.
pub(super) fn cancelled_during_step(
    snapshot: &Snapshot,
    record: &StepRecord,
    report: &StepReport,
    context: &DecisionContext<'_>,
) -> RunChange {
    let report = StepReport {
        outcome: StepOutcome::Fail(cancel::failure(snapshot)),
        children: Vec::new(),
        ..report.clone()
    };
    with_cancel(decide::apply_report(snapshot, record, &report, context), snapshot)
}

fn with_cancel(mut change: RunChange, snapshot: &Snapshot) -> RunChange {
    change.run.cancel_requested_at =
        change.run.cancel_requested_at.or(cancel::request(snapshot).map(|signal| signal.received_at));
    change.consumed.push((CANCEL.to_owned(), String::new()));
    change
}

/// The change of a hold that an operator requested.
pub(super) fn held(snapshot: &Snapshot, actor: &str, reason: &str, now: Time) -> RunChange {
    let detail = said("held", actor, reason);
    let mut change = hold::hold(snapshot, hold::held(HoldClass::OPERATOR, detail, now));
    for event in &mut change.events {
        actor.clone_into(&mut event.actor);
    }
    change
}

/// The change of a resume that an operator requested.
pub(super) fn resumed(snapshot: &Snapshot, actor: &str, reason: &str, now: Time) -> RunChange {
    let mut change = hold::resume(snapshot, now);
    change.events.push(NewEvent::info("run.resumed", said("resumed", actor, reason)).by(actor));
    change
}

/// What an operator did, with the reason if there is one.
pub(super) fn said(done: &str, actor: &str, reason: &str) -> String {
    match reason {
        "" => format!("{done} by {actor}"),
        reason => format!("{done} by {actor}: {reason}"),
    }
}
