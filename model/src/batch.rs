//! A batch: jobs that one request creates together, of which a limited number runs at a time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::time::Time;

/// The maximum of canary rows of a batch.
pub const MAX_CANARIES: u32 = 100;

/// The number of rounds that `total` jobs take of which `at_once` run at a time; one when their number is not limited. A default
/// deadline counts the time in the queue, so it has the time of one job for each round.
pub fn rounds(total: u32, at_once: Option<u32>) -> u32 {
    total.div_ceil(at_once.unwrap_or(total).max(1)).max(1)
}

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

/// The stop of a batch: no further job of it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStop {
    /// The reason of the stop.
    pub reason: BatchStopReason,
    /// The time since which no further job starts.
    pub since: Time,
    /// The number of jobs that have failed since the batch was created or continued.
    pub failures: u32,
}

/// The reason why no further job of a batch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum BatchStopReason {
    /// The canaries have not all succeeded yet.
    Canary,
    /// A canary did not succeed, or as many jobs have failed as the batch allows.
    Stopped,
}

impl BatchStopReason {
    /// The reason's name in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The reason of that name.
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A batch as it was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The id of the batch.
    pub id: BatchId,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// SHA-256 of the request. It tells a repetition from another request with the same key.
    pub request_sha256: String,
    /// The number of requested jobs, including the refused ones.
    pub total: u32,
    /// The maximum of jobs of the batch that run at a time; `None` for no limit.
    pub max_parallel: Option<u32>,
    /// The number of rows, from the first, that are canaries: their jobs must succeed before the others start.
    pub canary: u32,
    /// The number of failed jobs after which no further job starts; `None` for no such limit.
    pub stop_after: Option<u32>,
    /// The batch whose failed jobs this batch repeats.
    pub retry_of: Option<BatchId>,
    /// The stop, because of which no further job of the batch starts now; `None` while jobs start.
    pub stop: Option<BatchStop>,
    /// The time at which every row had its result; `None` while the request is under way, or when it was interrupted.
    pub filled_at: Option<Time>,
    /// The user that created the batch.
    pub created_by: String,
    /// When the batch was created.
    pub created_at: Time,
}

impl Batch {
    /// The number of rounds that the jobs of the batch take: the canaries first, then the others.
    pub fn rounds(&self) -> u32 {
        let canaries = self.canary.min(self.total);
        let of = |jobs: u32| if jobs == 0 { 0 } else { rounds(jobs, self.max_parallel) };
        of(canaries).saturating_add(of(self.total - canaries)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rounds_of_a_batch_are_those_of_its_canaries_and_of_the_others() {
        let batch = |total, canary, max_parallel| Batch {
            id: BatchId::new(),
            idempotency_key: None,
            request_sha256: String::new(),
            total,
            max_parallel,
            canary,
            stop_after: None,
            retry_of: None,
            stop: None,
            filled_at: None,
            created_by: String::new(),
            created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        for (total, canary, at_once, rounds) in [
            (100, 0, None, 1),
            (100, 2, None, 2),
            (100, 2, Some(2), 1 + 49),
            (100, 3, Some(2), 2 + 49),
            (2, 2, None, 1),
            (2, 9, Some(1), 2),
            (0, 0, None, 1),
        ] {
            assert_eq!(batch(total, canary, at_once).rounds(), rounds, "{total} {canary} {at_once:?}");
        }
    }
}
