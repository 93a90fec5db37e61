//! Effects: typed database writes that belong to a step's result and are committed with it.
//!
//! The engine passes them on without reading them; the store executes one statement for each.

use serde_json::Value;

use super::batch::BatchId;
use super::ids::{RunId, Serial};
use super::time::Time;

/// The image that a grant allows to read.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Artifact {
    /// The task image of the job, with recipe and job document.
    Task,
    /// The boot image of the job.
    Boot,
}

impl Artifact {
    /// The artifact's name in the database and in URLs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The artifact of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The right of one job to read one image (decision D2).
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// SHA-256 of the token in hex; the token itself is never stored.
    pub token_hash: String,
    /// The job to which the grant belongs.
    pub run: RunId,
    /// The image.
    pub artifact: Artifact,
    /// The recorded inputs from which the image is rebuilt, sealed; `None` for an unchanged maintenance image.
    pub inputs: Option<String>,
    /// SHA-256 of the image in hex.
    pub sha256: String,
    /// The length of the image in bytes.
    pub size: u64,
    /// When the grant was issued.
    pub created_at: Time,
}

/// What was read through a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantReads {
    /// When the first range was read.
    pub first_read_at: Option<Time>,
    /// When a range inside the El Torito image was first read.
    pub boot_read_at: Option<Time>,
    /// When the last range was read.
    pub last_read_at: Option<Time>,
    /// The number of bytes sent.
    pub bytes: u64,
}

/// The row of the `jobs` table (docs/seeds.md S000-41) as it is first written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The serial number of the server.
    pub server: Serial,
    /// The recipe, byte for byte as submitted.
    pub recipe_json: String,
    /// The `$id` of the schema against which the recipe was validated.
    pub recipe_schema_id: String,
    /// SHA-256 of the canonical request. It tells a repetition from another request with the same key.
    pub request_sha256: String,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// The source of the maintenance image.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub webhook_token_hash: String,
    /// The operator's labels.
    pub labels: Value,
    /// The ended job that this job repeats.
    pub retry_of: Option<RunId>,
    /// The batch to which the job belongs.
    pub batch: Option<BatchId>,
}

/// The signal that gives a run its permit; the key is the resource.
pub const PERMIT: &str = "permit";

/// The resource of a permit that a step requests and that is released during the run.
pub fn permit_resource(name: &str) -> String {
    format!("permit/{name}")
}

/// A database write that belongs to a step's result.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The row of the job.
    JobCreated(Box<NewJob>),
    /// The digest of the task image, and the path of its copy.
    TaskImage {
        /// SHA-256 in hex.
        sha256: String,
        /// The path of the copy, if one was written.
        path: Option<String>,
    },
    /// A media grant was issued.
    GrantIssued(Box<Grant>),
    /// The maintenance OS of the job may pull from a repository.
    PullGrantIssued {
        /// SHA-256 of the pull password in hex.
        token_hash: String,
        /// The repository.
        repository: String,
    },
    /// All media grants and the pull grant of the run end.
    GrantsEnded,
    /// What was observed of a server; the revision of the server stays.
    ServerObserved {
        /// The serial number of the server.
        serial: Serial,
        /// The observed capabilities.
        observed: Value,
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
    /// The run tree requests a permit, or stays in the queue for it.
    PermitRequested {
        /// The resource; see [`permit_resource`].
        resource: String,
        /// How many run trees may have a permit at the same time.
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
        pending: Option<Value>,
    },
}
