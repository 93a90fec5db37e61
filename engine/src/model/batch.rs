//! A batch: jobs that one request creates together, of which a limited number runs at a time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::time::Time;

/// The id of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BatchId(pub Uuid);

impl BatchId {
    /// A new, time-ordered id (UUID version 7).
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The resource whose permits limit how many jobs of the batch run at a time.
    pub fn resource(self) -> String {
        format!("batch/{self}")
    }
}

impl Default for BatchId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BatchId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self)
    }
}

/// A batch as it was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The id.
    pub id: BatchId,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request. It tells a repetition from another request with the same key.
    pub request_sha256: String,
    /// The number of requested jobs, including the refused ones.
    pub total: u32,
    /// How many jobs of the batch run at a time; `None` for no limit.
    pub max_parallel: Option<u32>,
    /// The user that created the batch.
    pub created_by: String,
    /// When the batch was created.
    pub created_at: Time,
}
