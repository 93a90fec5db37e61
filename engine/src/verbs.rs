//! Operator verbs, and the table of phases that allow each of them.
//!
//! ```text
//!             queued  running  waiting  held  unwinding  finishing  ended
//!   cancel      yes     yes      yes     yes     no          no       no     (a run with outcome cancelled accepts it
//!                                                                             again: nothing changes)
//!   hold        yes     no       yes      no     no          no       no
//!   resume      no      no       no      yes     no          no       no
//! ```

use super::cancel;
use super::decide::{self, DecisionContext};
use super::hold;
use super::workflow::{StepOutcome, StepReport};
use crate::model::{NewEvent, Outcome, Phase, RunChange, Snapshot, StepRecord, Time};
use crate::store::CANCEL;

/// What an operator can request for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Verb {
    /// End the run and clean up.
    Cancel,
    /// Stop the run until an operator decides.
    Hold,
    /// Continue a held run.
    Resume,
}

impl Verb {
    /// The verb's name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a run in this phase accepts the verb.
    pub fn allowed(self, phase: Phase) -> bool {
        match self {
            Self::Cancel => phase.is_forward(),
            Self::Hold => matches!(phase, Phase::Queued | Phase::Waiting),
            Self::Resume => phase == Phase::Held,
        }
    }
}

/// Why a verb was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerbRefused {
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
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
    let detail =
        if reason.is_empty() { format!("held by {actor}") } else { format!("held by {actor}: {reason}") };
    hold::hold(snapshot, hold::held("operator", detail, now))
}

/// The change of a resume that an operator requested.
pub(super) fn resumed(snapshot: &Snapshot, actor: &str, now: Time) -> RunChange {
    let mut change = hold::resume(snapshot, now);
    change.events.push(NewEvent::info("run.resumed", format!("resumed by {actor}")).by(actor));
    change
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_table_of_verbs_is_the_documented_one() {
        let row = |verb: Verb| Phase::VARIANTS.iter().map(|phase| verb.allowed(*phase)).collect::<Vec<_>>();
        assert_eq!(row(Verb::Cancel), [true, true, true, true, false, false, false]);
        assert_eq!(row(Verb::Hold), [true, false, true, false, false, false, false]);
        assert_eq!(row(Verb::Resume), [false, false, false, true, false, false, false]);
    }
}
