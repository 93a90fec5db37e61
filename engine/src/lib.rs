//! The durable workflow engine: claim, lease, step runner, waits, signals, locks, sweeper.
//!
//! ```text
//!   dispatcher --claim (epoch + 1)--> worker: step -> commit(done i, intent i+1) -> step ... -> park | end
//!        ^                                        |                                    |
//!        | due: time, signal, freed lock          +--- Moved: decide again             +-- no lease, no task, no thread
//!        +---------------------------------------------------------------------------- row with a wait and a time
//! ```
//!
//! What it knows: kinds (named tables of steps), plans, and the five commands of the store (claim, progress, commit,
//! deliver, release; a release is a commit that gives the lease back). What it does not know: what any step is about.
//!
//! Invariants
//! - An intent is on disk before a step runs (lock L8); a step gets its own old evidence and observes before it acts again.
//! - Every write names the epoch of the claim (lock L7); a worker that lost its lease writes nothing and is cancelled.
//! - A parked run holds nothing but its row (lock L5) and is due by a time at the latest (lock L6).
//! - What follows a step's verdict is decided by pure functions ([`decide`]) from the row as it is, and decided again when
//!   the row moved under it.

mod decide;
mod deliver;
mod dispatcher;
mod explain;
mod hold;
mod interrupt;
pub mod model;
mod pressure;
pub mod store;
mod verbs;
mod worker;
mod workflow;

#[cfg(test)]
mod tests;

pub use deliver::{Delivery, SignalError, VerbFailure};
pub use dispatcher::{Engine, EngineConfig};
pub use explain::{Blockers, Condition, Explanation, explain, unreadable};
pub use pressure::PressureGauge;
pub use verbs::{Verb, VerbRefused};
pub use workflow::{
    AfterCommit, Kind, LeaseGuard, LeaseLost, Order, PermitRequest, Reason, Refusal, Step, StepContext,
    StepPolicy, StepReport, Verdict, WaitRequest, WorkflowRegistry, fail_on_deadline,
};

pub use crate::store::{Created, Creation, QueuePosition, StoreError};

/// Failure classes the engine itself gives.
pub mod class {
    /// A deadline passed.
    pub const DEADLINE: &str = "deadline";
    /// An operator ended the run.
    pub const CANCELLED: &str = "cancelled";
    /// A defect of the program.
    pub const INTERNAL: &str = "internal";
    /// A child could not be started because its resource is locked by another family.
    pub const CONFLICT: &str = "conflict";
}
