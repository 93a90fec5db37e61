//! Restored data: the database is a copy of the one on which the last controller ran, or it is older (decision D26).
//!
//! ```text
//!   server.restored = {"since", "as_of", "reason"} --an operator releases the server--> NULL
//!   run.restored    = 1: in no lane, never claimed                                       0: continued, or ended without the BMC
//! ```
//!
//! What such data says about a machine may be hours old: a job that looks unfinished may have ended, and its machine may be in
//! use. So a run of a restored server is not claimed in any phase, and only an operator who has looked at the machine decides.

use serde::{Deserialize, Serialize};

use super::ids::{RunId, Serial};
use super::time::Time;

/// The restoration of a server: the reason why it is not released, and the age of its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoration {
    /// When the controller found that its data is a copy or old.
    pub since: Time,
    /// The time of the last event in the data. Nothing that happened later is known.
    pub as_of: Time,
    /// The sign by which the controller found that its data is a copy or old.
    pub reason: String,
}

/// A server that no operator has released yet.
#[derive(Clone, Debug, PartialEq)]
pub struct RestoredServer {
    /// The serial number of the server.
    pub serial: Serial,
    /// The restoration, because of which the server is not released.
    pub restoration: Restoration,
    /// The runs of the server that have not ended in the data.
    pub unfinished: Vec<RunId>,
}

/// The decision about the unfinished runs of a server that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum UnfinishedRuns {
    /// The runs continue where the data says they were. The time since the data was written counts against no deadline.
    Continue,
    /// The runs end at once. Nothing is sent to the BMC: no cleanup, no power change.
    End,
}

impl UnfinishedRuns {
    /// The name of the decision.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
