//! What the API returns for a server of restored data.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A server of restored data: what the data says, and what its BMC shows now.
#[derive(Clone, Debug, Deserialize)]
pub struct RestoredServerJson {
    /// The serial number.
    pub serial: String,
    /// Why the server is not released; nothing when it is.
    pub restored: Option<RestorationJson>,
    /// What the data says.
    pub believed: BelievedMachine,
    /// What the BMC shows; nothing when it could not be read.
    pub observed: Option<ObservedMachine>,
    /// Why the BMC could not be read.
    pub problem: Option<String>,
}

/// Why nothing is done to a server.
#[derive(Clone, Debug, Deserialize)]
pub struct RestorationJson {
    /// The time of the last event in the data.
    pub as_of: Timestamp,
    /// How the controller found that its data is a copy or old.
    pub reason: String,
}

/// What the data says about a machine.
#[derive(Clone, Debug, Deserialize)]
pub struct BelievedMachine {
    /// The jobs that have not ended.
    pub jobs: Vec<BelievedJob>,
    /// When the BMC responded last.
    pub last_seen: Option<Timestamp>,
}

/// A job that has not ended in the data.
#[derive(Clone, Debug, Deserialize)]
pub struct BelievedJob {
    /// The id.
    pub job_id: String,
    /// The kind of job.
    pub workflow: String,
    /// The step at which it was.
    pub step: Option<String>,
    /// The last step that was completed.
    pub completed: Option<String>,
    /// What it was waiting for.
    pub waiting: Option<String>,
    /// The time of its last change.
    pub updated_at: Timestamp,
}

/// What a BMC shows.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedMachine {
    /// When it was read.
    pub at: Timestamp,
    /// The power state of the host.
    pub power: Option<String>,
    /// Whether the BMC belongs to the registered machine.
    pub serial_check: Option<String>,
    /// The boot override.
    pub boot: Value,
    /// The virtual media slots.
    pub media: Vec<ObservedSlot>,
}

/// A virtual media slot.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedSlot {
    /// Its id.
    pub id: String,
    /// Whether it is empty.
    pub empty: bool,
}
