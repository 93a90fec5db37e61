//! The condition of a run: the one word that `explain` and the filters of lists use for why a run is where it is.

use serde::Serialize;

/// The kind of state that a run is in.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Condition {
    /// The run was created and no worker has been free yet.
    Queued,
    /// The data is a copy or old, and no operator has released the server: the run is not claimed in any phase.
    Restored,
    /// A closed gate prevents the start.
    Gated,
    /// Another run tree has the lock or permit that the run needs.
    Blocked,
    /// A worker executes a step.
    Working,
    /// A cancel was requested while a worker executes a step.
    Cancelling,
    /// The lease of the worker has expired.
    Abandoned,
    /// The run is parked until a signal or a time.
    Waiting,
    /// The run is parked between two attempts.
    Retrying,
    /// The run is between two steps; the next free worker takes it.
    Due,
    /// The run is stopped until an operator decides.
    Held,
    /// The run has ended.
    Ended,
}

impl Condition {
    /// All conditions.
    pub const ALL: [Self; 12] = [
        Self::Queued,
        Self::Restored,
        Self::Gated,
        Self::Blocked,
        Self::Working,
        Self::Cancelling,
        Self::Abandoned,
        Self::Waiting,
        Self::Retrying,
        Self::Due,
        Self::Held,
        Self::Ended,
    ];

    /// The condition's name in JSON and in filters.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The condition of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
