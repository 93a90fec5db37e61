//! Operator verbs, and the table of phases that allow each of them. A workflow may offer fewer verbs (`Workflow::verbs`).
//!
//! ```text
//!             queued  running  waiting  held  unwinding  finishing  ended
//!   cancel      yes     yes      yes     yes     no          no       no     (a run with outcome cancelled accepts it
//!                                                                             again: nothing changes)
//!   hold        yes     no       yes      no     no          no       no
//!   resume      no      no       no      yes     no          no       no
//! ```

use super::transition::Phase;

/// A verb that an operator can request for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
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
