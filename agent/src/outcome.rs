//! How an installation ended.

/// The end of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Success,
    /// A step failed.
    Failed {
        /// The name of the unit.
        step: String,
        /// One sentence for the operator.
        message: String,
    },
}
