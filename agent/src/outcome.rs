//! How an installation ended.

use crate::rescue::Reach;

/// The end of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Success,
    /// The machine is in the rescue system, and an operator works on it.
    Reachable(Reach),
    /// A step failed.
    Failed {
        /// The name of the unit.
        step: String,
        /// One sentence for the operator.
        message: String,
    },
}
