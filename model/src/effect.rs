//! Effects: typed database writes that belong to a step's result and are committed with it.
//!
//! The engine passes them on without reading them; the store executes one statement for each.

use std::sync::Arc;

use serde_json::Value;

use super::grant::{Grant, PullGrant};
use super::ids::Serial;
use super::job_recipe::JobRecipe;
use super::server::PendingCleanup;

/// The columns of the `jobs` table (docs/seeds.md S000-41) that are written first: what only a provisioning run has.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The serial number of the server.
    pub server: Serial,
    /// The recipe.
    pub recipe: Arc<JobRecipe>,
    /// The source of the maintenance image.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub report_token_hash: String,
}

/// The signal that requests the cancel of a run. Storing it marks the row of the run at once, also when a worker has its
/// lease.
pub const CANCEL: &str = "verb.cancel";

/// The signal that gives a run its permit; the key is the resource.
pub const PERMIT: &str = "permit";

/// The beginning of the name of every [`server_lock`].
pub const SERVER_LOCKS: &str = "server/";

/// The lock that a run has on the server that it changes.
pub fn server_lock(server: &Serial) -> String {
    format!("{SERVER_LOCKS}{server}")
}

/// The lock that a run has on a BMC through which several servers are managed.
pub fn bmc_lock(address: &str) -> String {
    format!("bmc/{address}")
}

/// The resource of a permit that a step requests and that is released during the run.
pub fn permit_resource(name: &str) -> String {
    format!("permit/{name}")
}

/// Whether a resource is that of a permit, and not a lock that a run got when it was created.
pub fn is_permit(resource: &str) -> bool {
    resource.starts_with("permit/")
}

/// A database write that belongs to a step's result.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The row of the job.
    JobCreated(Box<NewJob>),
    /// The digest of the task image, and the path of its copy.
    TaskImage {
        /// The SHA-256 of the task image in hex.
        sha256: String,
        /// The path of the copy, if one was written.
        path: Option<String>,
    },
    /// A media grant was issued.
    GrantIssued(Box<Grant>),
    /// The maintenance OS of the job may pull from a repository.
    PullGrantIssued(PullGrant),
    /// All media grants and the pull grant of the run end.
    GrantsEnded,
    /// The capabilities that a discovery observed of a server; the revision of the server stays.
    ServerObserved {
        /// The serial number of the server.
        serial: Serial,
        /// The observed capabilities.
        observed: Value,
    },
    /// The BMC of a server responded as the one of this server; the revision of the server stays.
    ServerSeen {
        /// The serial number of the server.
        serial: Serial,
    },
    /// The update that a run leaves to the BMC of a server, beside what was observed; the revision of the server stays.
    ServerUpdateLeft {
        /// The serial number of the server.
        serial: Serial,
        /// The state of the update; `None` when it has ended.
        update: Option<Value>,
    },
    /// The learned behaviour of a server's BMC, with the firmware version; the revision of the server stays.
    ServerLearned {
        /// The serial number of the server.
        serial: Serial,
        /// The learned facts.
        learned: Value,
    },
    /// The certificate of a BMC at the first contact; stored unless one is registered already.
    ServerPinned {
        /// The serial number of the server.
        serial: Serial,
        /// SHA-256 of the certificate in hex.
        fingerprint: String,
    },
    /// The inventory that the machine itself reported; the revision of the server stays.
    ServerInventoried {
        /// The serial number of the server.
        serial: Serial,
        /// The inventory as the machine reported it.
        inventory: Value,
    },
    /// The out-of-band inventory of a server, as its BMC showed it; the revision of the server stays.
    ServerHardwareRead {
        /// The serial number of the server.
        serial: Serial,
        /// The out-of-band inventory.
        hardware: Value,
    },
    /// The end of the log of the machine's maintenance OS. A later log of the same job replaces it.
    InstallLogged {
        /// The log, lines divided by line feeds.
        text: String,
    },
    /// The run tree requests a permit, or stays in the queue for it.
    PermitRequested {
        /// The resource; see [`permit_resource`].
        resource: String,
        /// The number of run trees that may have a permit at the same time.
        capacity: u32,
    },
    /// The run tree gives its permit back.
    PermitReleased {
        /// The resource.
        resource: String,
    },
    /// The pending cleanup of a server.
    CleanupPending {
        /// The serial number of the server.
        serial: Serial,
        /// The cleanup that remains; `None` when nothing remains.
        pending: Option<PendingCleanup>,
    },
}
