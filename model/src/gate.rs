//! Gates: why a run may not start yet. A gate is no part of the state of a run (docs/glossary.md).
//!
//! ```text
//!  drain        the whole controller     an operator closes and opens it; durable
//!  maintenance  one server               an operator closes and opens it; durable
//!  pressure     the whole controller     disk, registry: measured by the controller, ends with the shortage
//!  canary       one batch                closed until its first jobs have succeeded; durable
//!  stopped      one batch                a canary or too many jobs failed; an operator opens it; durable
//! ```
//!
//! Invariant: a gate prevents only the *start* of a run. A run that has started continues to its end, and a cancel takes effect:
//! a closed gate must not leave a machine half installed.

use serde::{Deserialize, Serialize};

use super::batch::{BatchId, BatchStop, BatchStopReason};
use super::ids::Serial;
use super::time::Time;

/// The instruction by which an operator closed a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateClosure {
    /// When the gate was closed.
    pub since: Time,
    /// The operator that closed the gate.
    pub by: String,
    /// The operator's reason.
    pub reason: String,
}

/// A shortage of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// The name of the shortage: `disk`, `registry`.
    pub name: String,
    /// When the shortage began.
    pub since: Time,
    /// The measured values, in words.
    pub detail: String,
    /// The next action of an operator.
    pub next_action: String,
}

/// A closed gate: why a run may not start yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The controller is drained.
    Drain(GateClosure),
    /// The server of the run is in maintenance.
    Maintenance(Serial, GateClosure),
    /// The batch of the run starts no further job.
    Batch(BatchId, BatchStop),
    /// The controller is short of a resource.
    Pressure(Pressure),
}

impl Gate {
    /// The gate's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Drain(_) => "drain",
            Self::Maintenance(..) => "maintenance",
            Self::Batch(_, stop) => match stop.reason {
                BatchStopReason::Canary => "batch-canary",
                BatchStopReason::Stopped => "batch-stopped",
            },
            Self::Pressure(pressure) => &pressure.name,
        }
    }

    /// When the gate was closed.
    pub fn since(&self) -> Time {
        match self {
            Self::Drain(closed) | Self::Maintenance(_, closed) => closed.since,
            Self::Batch(_, stop) => stop.since,
            Self::Pressure(pressure) => pressure.since,
        }
    }
}
