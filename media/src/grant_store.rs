//! The durable store of grants: what it keeps of a grant, and the calls that the media server makes.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::body::ImageDigest;
use super::token::Artifact;

/// The database does not respond.
#[derive(Debug, Clone, thiserror::Error)]
#[error("media grants cannot be looked up or recorded: {reason}")]
pub struct GrantStoreUnavailable {
    /// The error of the database.
    pub reason: String,
}

/// The durable store of grants, implemented by the controller.
#[async_trait]
pub trait GrantStore: Send + Sync {
    /// Returns the grant whose token has this hash, open or ended.
    async fn find(&self, token_hash: &str) -> Result<Option<GrantRecord>, GrantStoreUnavailable>;

    /// Adds `reads` to the recorded reads with [`ReadSummary::merge`].
    async fn record_read(&self, token_hash: &str, reads: ReadSummary) -> Result<(), GrantStoreUnavailable>;
}

/// A grant as the store keeps it.
#[derive(Debug, Clone)]
pub struct GrantRecord {
    /// SHA-256 of the token, hexadecimal.
    pub token_hash: String,
    /// The job that uses the image.
    pub run_id: Uuid,
    /// The name under which the image is served.
    pub artifact: Artifact,
    /// The image.
    pub source: GrantSource,
    /// The time at which the grant was issued.
    pub created_at: Timestamp,
    /// The time at which the grant ended.
    pub ended_at: Option<Timestamp>,
    /// The digest of the image.
    pub sha256: ImageDigest,
    /// The reads recorded so far.
    pub reads: ReadSummary,
}

/// The image that a grant allows to read.
#[derive(Clone)]
pub enum GrantSource {
    /// The task image of the job.
    Task {
        /// [`TaskInputs::to_bytes`](crate::TaskInputs::to_bytes), already unsealed.
        inputs: Vec<u8>,
    },
    /// A maintenance image with the task's files in it.
    Spliced {
        /// [`SpliceInputs::to_bytes`](crate::SpliceInputs::to_bytes), already unsealed.
        inputs: Vec<u8>,
    },
    /// An image of the library.
    Maintenance {
        /// The digest of the image.
        digest: ImageDigest,
        /// The length of the image in bytes.
        len: u64,
    },
}

impl fmt::Debug for GrantSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task { inputs } => write!(f, "Task({} bytes)", inputs.len()),
            Self::Spliced { inputs } => write!(f, "Spliced({} bytes)", inputs.len()),
            Self::Maintenance { digest, len } => write!(f, "Maintenance({digest}, {len} bytes)"),
        }
    }
}

/// The reads of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// The time of the first read.
    pub first_read_at: Option<Timestamp>,
    /// The time of the latest read.
    pub last_read_at: Option<Timestamp>,
    /// The number of bytes read; bytes that were read twice count twice.
    pub bytes: u64,
    /// Whether a read included bytes of an El Torito image.
    pub boot_read: bool,
}

impl ReadSummary {
    /// Combines two summaries: the earlier first read, the later last read, the sum of the bytes.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            first_read_at: [self.first_read_at, other.first_read_at].into_iter().flatten().min(),
            last_read_at: self.last_read_at.max(other.last_read_at),
            bytes: self.bytes.saturating_add(other.bytes),
            boot_read: self.boot_read || other.boot_read,
        }
    }
}

/// Returns the context to which the sealed inputs of a grant are bound. The workflow that issues the grant seals with it; the
/// store opens with it.
pub fn grant_context(run_id: Uuid) -> String {
    format!("media-grant/{run_id}")
}
