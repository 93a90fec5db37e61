//! A server of restored data as the API returns it.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// A server of restored data: what the data says, and what its BMC shows now.
#[derive(Clone, Debug, Deserialize)]
pub struct RestoredServerJson {
    /// The serial number.
    pub serial: String,
    /// The restoration, because of which the server is not released; `None` when it is released.
    pub restored: Option<RestorationJson>,
    /// The state of the machine by the restored data.
    pub believed: BelievedMachine,
    /// The state of the machine as its BMC shows it now; `None` when the BMC could not be read.
    pub observed: Option<ObservedMachine>,
    /// Why the BMC could not be read.
    pub problem: Option<String>,
}

/// The restoration of a server: nothing is done to it, because its data is a copy or old.
#[derive(Clone, Debug, Deserialize)]
pub struct RestorationJson {
    /// The time of the last event in the data.
    pub as_of: Timestamp,
    /// The sign by which the controller found that its data is a copy or old.
    pub reason: String,
}

/// The state of a machine by the restored data.
#[derive(Clone, Debug, Deserialize)]
pub struct BelievedMachine {
    /// The jobs that have not ended.
    pub jobs: Vec<BelievedJob>,
    /// The time of the last response of the BMC.
    pub last_seen: Option<Timestamp>,
}

/// A job that has not ended in the data.
#[derive(Clone, Debug, Deserialize)]
pub struct BelievedJob {
    /// The id.
    pub job_id: String,
    /// The kind of job.
    pub workflow: String,
    /// The step at which the job was.
    pub step: Option<String>,
    /// The last step that was completed.
    pub completed: Option<String>,
    /// The wait of the job at the time of the data.
    pub waiting: Option<String>,
    /// The time of its last change.
    pub updated_at: Timestamp,
}

/// The state of a machine as its BMC shows it.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedMachine {
    /// The time at which the BMC was read.
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
    /// The id of the slot.
    pub id: String,
    /// Whether the slot is empty.
    pub empty: bool,
}
