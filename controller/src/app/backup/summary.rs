//! The contents of a backup, as its `backup.json` describes them.

use model::Time;
use serde::{Deserialize, Serialize};

/// The form of backups that this program writes and reads.
pub(super) const FORMAT: u32 = 1;

/// The place of a backup among those that one controller made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesPlace {
    /// The id of the series. Restored data begins another one.
    pub id: String,
    /// The number in the series; a later backup has a larger one, whatever the clock showed.
    pub number: u64,
}

/// The description of a backup: its version, time, counts and digests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSummary {
    pub(super) format: u32,
    /// The version of the program that made the backup.
    pub program: String,
    /// When the backup was made.
    pub made_at: Time,
    /// The time of the last event in the backup; `None` when nothing has happened.
    pub as_of: Option<Time>,
    /// The number of servers.
    pub servers: u64,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of jobs that have not ended.
    pub unfinished: u64,
    /// The number of files.
    pub files: u64,
    /// The size of all files in bytes.
    pub bytes: u64,
    /// Whether the backup contains the content of the registry.
    pub registry: bool,
    /// Whether the backup contains the master key.
    pub master_key: bool,
    /// The ids of the versions of the master key with which records of the backup are sealed.
    #[serde(default)]
    pub sealed_with: Vec<String>,
    /// Content that was damaged or missing in the data directory and is not part of the backup.
    pub damaged: Vec<String>,
    /// The SHA-256 digest of `SHA256SUMS`, in hex.
    pub(super) sums_sha256: String,
    /// The place of the backup among those that one controller makes; `None` for one that a command made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesPlace>,
}
