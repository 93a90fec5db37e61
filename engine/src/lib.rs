//! The durable workflow engine: claims, leases, workers, waits, signals, locks and permits.
//!
//! ```text
//!   dispatcher --claim (epoch + 1)--> decider: intent --call--> worker: step --report--> decider: commit(done i, intent i+1)
//!        ^                                       ^                                          |  conflict: decide again
//!        | due: time, signal, freed lock         +--- call of the next step ----------------+
//!        +-------------------------------------------- park | end: a row with a wait and a time, no lease, no task, no thread
//! ```
//!
//! A worker reaches its run through a [`Backend`] only. It neither decides nor writes.
//!
//! What a run is and which transitions it has, is the crate [`model`]; where it is kept is the crate [`store`].
//!
//! The engine knows workflows (named tables of steps), plans, and the commands of the store (claim, progress, commit, deliver;
//! a release is a commit that gives the lease back). It does not know what any step does.
//!
//! Invariants
//! - An intent is durable before a step runs (decision D8). A step receives the output of its previous call and observes before
//!   it acts again.
//! - Every write names the epoch of the claim (decision D7). A worker that lost its lease writes nothing and is cancelled.
//! - A parked run costs only its row (decision D5) and is due at a known time (decision D6).
//! - What follows a step's outcome is decided by pure functions ([`decide`]) from the current row, and decided again when the
//!   row has changed meanwhile.

mod backend;
mod cancel;
mod checkpoint;
mod cursor;
mod decide;
mod decider;
mod deliver;
mod dispatcher;
mod explain;
mod hold;
mod interrupt;
mod lease;
mod outage;
mod presence;
mod pressure;
mod remote;
mod step_error;
mod verbs;
mod wire;
mod worker;
mod workflow;

#[cfg(test)]
mod tests;

pub use backend::{Backend, NextCall, StepCall};
pub use checkpoint::{BackendError, Progress};
pub use deliver::{SignalDelivery, SignalError, VerbError};
pub use dispatcher::{Engine, EngineConfig};
pub use explain::{Blockers, Explanation, explain, unreadable};
pub use lease::{LeaseGuard, LeaseLost};
pub use presence::QueueWorkers;
pub use pressure::PressureGauge;
pub use remote::{RemoteError, RemoteNext, RemoteQueues};
pub use step_error::{StepEnd, StepError};
pub use verbs::VerbRefused;
pub use wire::{CallKey, CallMessage, MAX_MESSAGE, MessageRefused, NotPortable, PROTOCOL, ReportMessage};
pub use worker::Worker;
pub use workflow::{
    AfterCommit, ChildRefused, ChildRequest, PermitRequest, Remark, Step, StepContext, StepOutcome,
    StepPolicy, StepReport, WaitLimit, WaitReason, WaitRequest, Workflow, WorkflowRegistry, fail_on_deadline,
};
