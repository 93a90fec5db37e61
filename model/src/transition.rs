//! The transition table of a run: pure, total, and the only definition of which phase may follow which.
//!
//! ```text
//!            claim              park
//!  queued ----------> running <======> waiting        claim on running = take-over after a lost lease
//!    |  \               |  ^   claim     |
//!    |   \ hold         |   \            | hold
//!    |    +----------> held <------------+
//!    |                  | resume -> waiting (due at once)
//!    |   conclude       | conclude (success, failure, cancel, deadline)
//!    +------------------+------> [unwinding] ----> finishing ----> ended
//!                               only workflows that undo
//! ```
//!
//! Invariants: no transition leaves `ended`; only a claim leads to `running`; only a verb ends a hold.
//! `golden/transitions.txt` contains the whole table; the test below generates it from this function.

use serde::{Deserialize, Serialize};

/// The position of a run in its state machine; every workflow has these phases (docs/architecture.md).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Phase {
    /// The run was created and never claimed.
    Queued,
    /// A worker has the lease and executes a step.
    Running,
    /// The run is parked with a typed wait; it uses no worker.
    Waiting,
    /// The run is stopped until an operator decides.
    Held,
    /// The finished steps are undone in reverse order.
    Unwinding,
    /// The steps of the finish list run.
    Finishing,
    /// The run has ended.
    Ended,
}

impl Phase {
    /// The phase's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The phase of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Whether the run is in its forward stage: not in undo, the finish list, or ended.
    pub fn is_forward(self) -> bool {
        matches!(self, Self::Queued | Self::Running | Self::Waiting | Self::Held)
    }
}

/// The event that moves a run from one phase to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::VariantArray)]
pub enum Trigger {
    /// A worker takes the lease, also from an owner that lost it.
    Claim,
    /// The worker gives the lease back and records a wait.
    Park,
    /// A step or an operator stops the run until an operator decides.
    Hold,
    /// An operator continues a held run.
    Resume,
    /// The outcome is known and there is nothing to undo.
    Conclude,
    /// The outcome is known and the workflow undoes its steps first.
    Unwind,
    /// The finish list is done or given up.
    End,
}

/// The error of a trigger that the table does not allow in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{trigger:?} is not possible while {}", phase.as_str())]
pub struct Illegal {
    /// The phase of the run.
    pub phase: Phase,
    /// The trigger that is not allowed.
    pub trigger: Trigger,
}

/// The phase after `trigger` in `phase`.
///
/// # Errors
/// When the table does not allow `trigger` in `phase`.
pub fn transition(phase: Phase, trigger: Trigger) -> Result<Phase, Illegal> {
    use Phase as P;
    use Trigger as T;
    match (phase, trigger) {
        (P::Queued | P::Running | P::Waiting, T::Claim) => Ok(P::Running),
        (P::Unwinding, T::Claim | T::Park) => Ok(P::Unwinding),
        (P::Finishing, T::Claim | T::Park) => Ok(P::Finishing),
        (P::Running, T::Park) => Ok(P::Waiting),
        (P::Queued | P::Running | P::Waiting, T::Hold) => Ok(P::Held),
        (P::Held, T::Resume) => Ok(P::Waiting),
        (P::Queued | P::Running | P::Waiting | P::Held | P::Unwinding, T::Conclude) => Ok(P::Finishing),
        (P::Queued | P::Running | P::Waiting | P::Held, T::Unwind) => Ok(P::Unwinding),
        (P::Finishing, T::End) => Ok(P::Ended),
        _ => Err(Illegal { phase, trigger }),
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_whole_table_is_the_golden_one() {
        let mut table = String::from("phase x trigger -> phase (generated; UPDATE_GOLDEN=1 rewrites)\n");
        for &phase in Phase::VARIANTS {
            for &trigger in Trigger::VARIANTS {
                let next = match transition(phase, trigger) {
                    Ok(next) => next.as_str(),
                    Err(_) => "-",
                };
                table.push_str(&format!(
                    "{:<10} {:<9} {next}\n",
                    phase.as_str(),
                    format!("{trigger:?}").to_lowercase()
                ));
            }
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/transitions.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }

    #[test]
    fn every_phase_but_the_last_has_a_way_out_and_reaches_the_end() {
        for &start in Phase::VARIANTS {
            let mut reached = vec![start];
            let mut next = 0;
            while let Some(phase) = reached.get(next).copied() {
                for &trigger in Trigger::VARIANTS {
                    if let Ok(to) = transition(phase, trigger)
                        && !reached.contains(&to)
                    {
                        reached.push(to);
                    }
                }
                next += 1;
            }
            assert!(reached.contains(&Phase::Ended), "{start:?} never ends");
            assert!(start != Phase::Ended || reached.len() == 1, "a transition leaves ended");
        }
    }

    #[test]
    fn running_is_entered_by_a_claim_only() {
        for &phase in Phase::VARIANTS {
            for &trigger in Trigger::VARIANTS {
                if transition(phase, trigger) == Ok(Phase::Running) {
                    assert_eq!(trigger, Trigger::Claim);
                }
            }
        }
    }
}
