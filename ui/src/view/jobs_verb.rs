//! The verbs that an operator uses on all jobs of a filter.

/// A verb for all jobs of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobsVerb {
    /// Ends jobs without an outcome.
    Cancel,
    /// Creates a batch with the requests of installations that have failed.
    Retry,
    /// Lets held jobs try again.
    Resume,
}

impl JobsVerb {
    /// Every verb.
    pub const ALL: [Self; 3] = [Self::Cancel, Self::Retry, Self::Resume];

    /// The verb in a URL.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Resume => "resume",
        }
    }

    /// The verb at the beginning of a question.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cancel => "Cancel",
            Self::Retry => "Retry",
            Self::Resume => "Resume",
        }
    }
}
