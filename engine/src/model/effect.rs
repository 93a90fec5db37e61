//! Typed results of steps that belong into tables of their own, written in the transaction of the change that caused them.
//!
//! The engine carries them without looking inside; the store knows one statement for each.

use serde_json::Value;

use super::batch::BatchId;
use super::ids::{RunId, Serial};
use super::time::Time;

/// The image a grant lets somebody read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Artifact {
    /// The per-job image with recipe and job document.
    Task,
    /// What the machine boots from.
    Boot,
}

impl Artifact {
    /// The artifact's name in the database and in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Boot => "boot",
        }
    }

    /// The artifact of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Task, Self::Boot].into_iter().find(|artifact| artifact.as_str() == name)
    }
}

/// The right to read one image (lock L2).
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// SHA-256 of the token in hex; the token itself is never stored.
    pub token_hash: String,
    /// The job it belongs to.
    pub run: RunId,
    /// Which image.
    pub artifact: Artifact,
    /// The frozen inputs of a task image, sealed; `None` for boot media.
    pub frozen: Option<String>,
    /// SHA-256 of the image in hex.
    pub sha256: String,
    /// Length of the image in bytes.
    pub size: u64,
    /// When it was issued.
    pub created_at: Time,
}

/// What was read through a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantReads {
    /// The first range read.
    pub first_read_at: Option<Time>,
    /// The first read inside the boot image.
    pub boot_read_at: Option<Time>,
    /// The last range read.
    pub last_read_at: Option<Time>,
    /// Bytes handed over.
    pub bytes: u64,
}

/// The row of seed 000's `jobs` table as it is first written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// The server's serial.
    pub server: Serial,
    /// The recipe, byte for byte as submitted.
    pub recipe_json: String,
    /// The `$id` of the schema it was validated against.
    pub recipe_schema_id: String,
    /// SHA-256 of the canonical request, to tell a replay from another request under the same key.
    pub request_sha256: String,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// Where the maintenance ISO comes from.
    pub maintenance_iso_url: String,
    /// SHA-256 of the job's own report token.
    pub webhook_token_hash: String,
    /// Operator's labels.
    pub labels: Value,
    /// The ended job it tries again.
    pub retry_of: Option<RunId>,
    /// The batch it was ordered with.
    pub batch: Option<BatchId>,
}

/// The signal that tells a run that it has its place of a resource; its key is the resource.
pub const TURN: &str = "turn";

/// The name of a resource that is taken and given back in the middle of a run.
pub fn turn(name: &str) -> String {
    format!("turn/{name}")
}

/// A write that belongs to a step's result.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The job's row.
    JobCreated(Box<NewJob>),
    /// The digest (and, when kept as a file, the path) of the job's image.
    TaskImage {
        /// SHA-256 in hex.
        sha256: String,
        /// Where it was also written.
        path: Option<String>,
    },
    /// A grant was issued.
    GrantIssued(Box<Grant>),
    /// The job's maintenance OS may pull from this repository.
    PullGrantIssued {
        /// SHA-256 of the pull password in hex.
        token_hash: String,
        /// The repository it may pull from.
        repository: String,
    },
    /// All grants of the run end: its media and its pull.
    GrantsEnded,
    /// What was seen of a server (never changes its revision).
    ServerObserved {
        /// Which one.
        serial: Serial,
        /// Capabilities as observed.
        observed: Value,
    },
    /// What the BMC of a server has taught, with the firmware version (never changes its revision).
    ServerLearned {
        /// Which server.
        serial: Serial,
        /// The facts.
        learned: Value,
    },
    /// The certificate a BMC showed at the first contact; kept unless one is registered already.
    ServerPinned {
        /// Which server.
        serial: Serial,
        /// SHA-256 of the certificate in hex.
        fingerprint: String,
    },
    /// The run's family asks for a place of a resource that only so many may use at once, or stands in line for it.
    PermitRequested {
        /// The resource; see [`turn`].
        resource: String,
        /// How many families may have a place.
        places: u32,
    },
    /// The family gives its place back.
    PermitReleased {
        /// The resource.
        resource: String,
    },
    /// What could not be undone on a server, or that nothing is left to undo.
    CleanupPending {
        /// Which one.
        serial: Serial,
        /// What remains; `None` when all is clean.
        debt: Option<Value>,
    },
}
