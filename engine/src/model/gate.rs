//! Gates: why a run may not begin yet. Never part of its state (DESIGN section 1).
//!
//! ```text
//!  drain        the whole controller     an operator closes and opens it; durable
//!  maintenance  one server               an operator closes and opens it; durable
//!  pressure     the whole controller     disk, registry: seen by the controller itself, gone when it is
//! ```
//!
//! Invariant: a gate keeps from *beginning* only. What has begun goes on to its end, what is to end is ended: a machine half
//! way through must not be left there because somebody closed a gate.

use serde::{Deserialize, Serialize};

use super::ids::Serial;
use super::time::Time;

/// An operator's word that nothing is to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closed {
    /// Since when.
    pub since: Time,
    /// Who said so.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// What the controller itself cannot do more of right now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// What is short: `disk`, `registry`.
    pub name: String,
    /// Since when.
    pub since: Time,
    /// What was seen.
    pub detail: String,
    /// What a person can do.
    pub next_action: String,
}

/// Why a run may not begin yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The controller is drained.
    Drain(Closed),
    /// Its server is in maintenance.
    Maintenance(Serial, Closed),
    /// The controller itself is short of something.
    Pressure(Pressure),
}

impl Gate {
    /// The gate's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Drain(_) => "drain",
            Self::Maintenance(..) => "maintenance",
            Self::Pressure(pressure) => &pressure.name,
        }
    }

    /// Since when it is closed.
    pub fn since(&self) -> Time {
        match self {
            Self::Drain(closed) | Self::Maintenance(_, closed) => closed.since,
            Self::Pressure(pressure) => pressure.since,
        }
    }
}
