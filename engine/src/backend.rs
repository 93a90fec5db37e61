//! The commands between a worker and what keeps its runs: one trait, so that the code of a worker does not depend on where the
//! database is (decision D33).
//!
//! ```text
//!   claim -----> NextCall::Call(call) --> Worker: step.run --+--> progress: checkpoint, lease renewed
//!                      ^                                     |
//!                      +---- report: decided, committed <----+--> release: no report, lease given back
//!                      +---- Released | Lost: the worker stops
//! ```
//!
//! The claim is not in the trait: a dispatcher claims beside the database. A signal is delivered by the controller only
//! ([`super::Engine::deliver`]).
//!
//! Invariants: a worker decides nothing. It returns the report of a step, and the backend decides and commits under the epoch of
//! the claim. A backend that cannot say whether a command was carried out returns an error, and the worker stops.

use std::sync::Arc;

use async_trait::async_trait;

use super::checkpoint::{BackendError, Progress};
use super::workflow::{StepPolicy, StepReport};
use model::{Snapshot, StepRecord};

/// One call of a step: everything that a worker needs to make it.
#[derive(Clone, Debug)]
pub struct StepCall {
    /// The run with its input, plan, records and signals. Its epoch is the fence of every command.
    pub snapshot: Arc<Snapshot>,
    /// The record of the step; its intent is durable.
    pub record: StepRecord,
    /// Whether the intent was durable before this claim, so that the step may have acted already.
    pub reentered: bool,
    /// Whether the step is undone.
    pub undo: bool,
    /// The limits of the call.
    pub policy: StepPolicy,
}

/// The call or the end of the lease that follows a command.
#[derive(Clone, Debug)]
pub enum NextCall {
    /// The lease is kept, and this call is next.
    Call(Box<StepCall>),
    /// The run is parked or has ended; the lease is given back.
    Released,
    /// Nothing was written: the lease is lost.
    Lost,
}

/// The keeper of a worker's runs: the database, or a controller that is reached by messages.
#[async_trait]
pub trait Backend: Progress {
    /// Decides what follows a report and commits it. `record` is the record of the step with its last checkpoint.
    ///
    /// # Errors
    /// When it is not known whether the report was committed.
    async fn report(
        &self,
        call: &StepCall,
        record: StepRecord,
        report: StepReport,
    ) -> Result<NextCall, BackendError>;

    /// Gives the lease back, because the call was dropped and has no report.
    ///
    /// # Errors
    /// When it is not known whether the lease was given back.
    async fn release(&self, call: &StepCall) -> Result<(), BackendError>;
}
