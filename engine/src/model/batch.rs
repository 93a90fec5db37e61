//! A batch: many jobs ordered in one call, of which only so many work at once.

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

    /// What its jobs stand in line for.
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

/// A batch as it was ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its id.
    pub id: BatchId,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request, to tell a replay from another request under the same key.
    pub request_sha256: String,
    /// Rows that were ordered, the refused ones included.
    pub total: u32,
    /// How many of its jobs may work at once; no limit of its own when `None`.
    pub max_parallel: Option<u32>,
    /// Who ordered it.
    pub created_by: String,
    /// When.
    pub created_at: Time,
}
