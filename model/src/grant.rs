//! Grants: the rights that a job gives out with a token and that end with the job.
//!
//! ```text
//!  step ── Effect::GrantIssued ──────> media_grants   Grant ── StoredGrant { ended_at, reads } ──> media listener
//!       ── Effect::PullGrantIssued ──> pull_grants    PullGrant ─────────────────────────────────> registry
//!       ── Effect::GrantsEnded ──────> both end
//! ```
//!
//! Each type is written once: the step that issues a grant, the store that keeps it and the listener that serves it use the
//! same one. Invariant: a grant contains the hash of its token and never the token (decisions D2 and D18).

use serde::{Deserialize, Serialize};

use super::ids::{RunId, Serial};
use super::time::Time;

/// The maximum length of the base of media URLs, `scheme://host[:port]`, in bytes: with its path a URL has fewer than 128, which every BMC
/// accepts.
pub const MEDIA_BASE_MAX: usize = 80;

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
    /// A firmware image, which the BMC installs.
    Firmware,
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
    /// The kind of the image.
    pub artifact: Artifact,
    /// The recorded inputs from which the image is rebuilt, sealed; `None` for an unchanged maintenance image, for a firmware
    /// image and for an ended grant.
    pub inputs: Option<String>,
    /// SHA-256 of the image in hex.
    pub sha256: String,
    /// The length of the image in bytes.
    pub size: u64,
    /// When the grant was issued.
    pub created_at: Time,
}

/// A grant with its state: its server, its end and the reads of its image.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredGrant {
    /// The grant.
    pub grant: Grant,
    /// The server of the job; `None` for a run without one.
    pub server: Option<Serial>,
    /// When the grant ended; `None` for an open one.
    pub ended_at: Option<Time>,
    /// The recorded reads.
    pub reads: GrantReads,
}

/// The reads through a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantReads {
    /// When the first range was read.
    pub first_read_at: Option<Time>,
    /// When a range inside the El Torito image was first read.
    pub boot_read_at: Option<Time>,
    /// When the last range was read.
    pub last_read_at: Option<Time>,
    /// The number of bytes sent; bytes that were sent twice count twice.
    pub bytes: u64,
}

impl GrantReads {
    /// Combines two records of reads: the earlier first reads, the later last read, the sum of the bytes.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let earlier = |one: Option<Time>, two: Option<Time>| one.into_iter().chain(two).min();
        Self {
            first_read_at: earlier(self.first_read_at, other.first_read_at),
            boot_read_at: earlier(self.boot_read_at, other.boot_read_at),
            last_read_at: self.last_read_at.max(other.last_read_at),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// The reads of the media of a job until one moment. Later reads are found by their number of bytes: a comparison of times
/// would be wrong after the clock was set, or between the clocks of two workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadMark {
    /// The number of bytes that were read of the boot image until then, as far as the store had recorded them.
    pub boot: u64,
    /// The number of bytes of the task image.
    pub task: u64,
    /// The time since which the controller that set the mark counts reads; another time is another controller.
    pub counting_since: Time,
}

/// The right of one job to pull from one repository of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullGrant {
    /// SHA-256 of the pull password in hex; the password itself is never stored.
    pub token_hash: String,
    /// The job to which the grant belongs.
    pub run: RunId,
    /// The repository.
    pub repository: String,
}

/// The reads through one media grant of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaEvidence {
    /// The kind of the image.
    pub artifact: Artifact,
    /// The length of the image in bytes.
    pub size: u64,
    /// The recorded reads.
    pub reads: GrantReads,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_reads_keep_the_earliest_and_the_latest() {
        let at = |second: &str| Some(format!("2027-01-15T08:00:{second}Z").parse::<Time>().unwrap());
        let (early, late) = (at("00"), at("30"));
        let one = GrantReads { first_read_at: early, boot_read_at: late, last_read_at: early, bytes: 1 };
        let two = GrantReads { first_read_at: late, boot_read_at: None, last_read_at: late, bytes: 2 };
        let both = GrantReads { first_read_at: early, boot_read_at: late, last_read_at: late, bytes: 3 };
        assert_eq!((one.merge(two), two.merge(one)), (both, both));
        assert_eq!(one.merge(GrantReads::default()), one);
    }
}
