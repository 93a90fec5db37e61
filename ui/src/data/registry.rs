//! The registry as the API returns it.

use jiff::Timestamp;
use serde::Deserialize;

/// The registry.
#[derive(Clone, Debug, Deserialize)]
pub struct RegistryJson {
    /// Whether pushes are accepted.
    pub accepts_pushes: bool,
    /// The free bytes of the data disk.
    pub free_bytes: u64,
    /// The reason of the read-only state, if it is set.
    pub read_only: Option<String>,
    /// The number of pins.
    pub pins: u64,
    /// The quotas.
    pub quotas: Vec<QuotaJson>,
    /// The scrub.
    pub scrub: ScrubStatusJson,
}

/// A quota and its use.
#[derive(Clone, Debug, Deserialize)]
pub struct QuotaJson {
    /// The pattern of the repositories.
    pub repositories: String,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// The stored bytes.
    pub used_bytes: u64,
}

/// The last scrub.
#[derive(Clone, Debug, Deserialize)]
pub struct ScrubStatusJson {
    /// The end of the last complete scrub; `None` before the first.
    pub last_verified: Option<Timestamp>,
    /// The number of blobs that the last scrub read.
    pub blobs: u64,
    /// The number of bytes that the last scrub read.
    pub bytes: u64,
    /// Corrupted content.
    pub quarantined: Vec<String>,
}

/// The repositories of the registry.
#[derive(Clone, Debug, Deserialize)]
pub struct Repositories {
    /// The repositories by name.
    pub repositories: Vec<Repository>,
}

/// A repository.
#[derive(Clone, Debug, Deserialize)]
pub struct Repository {
    /// The name.
    pub name: String,
    /// The number of tags.
    pub tags: u64,
    /// Some of the tags.
    pub names: Vec<String>,
    /// The bytes of its content.
    #[serde(default)]
    pub bytes: u64,
    /// When a tag was last pushed or removed.
    #[serde(default)]
    pub changed_at: Option<Timestamp>,
    /// The number of pins that hold content of the repository.
    #[serde(default)]
    pub pins: u64,
}

/// One repository with a page of its tags.
#[derive(Clone, Debug, Deserialize)]
pub struct RepositoryDetail {
    /// The name.
    pub name: String,
    /// The bytes of its content.
    pub bytes: u64,
    /// The tags by name.
    pub tags: Vec<ImageTag>,
    /// The cursor of the following page.
    pub next: Option<String>,
    /// The pins that hold content of the repository.
    pub held: Vec<HeldContent>,
    /// The number of pins that are left out.
    pub more_held: u64,
}

/// A tag with what it names.
#[derive(Clone, Debug, Deserialize)]
pub struct ImageTag {
    /// The tag.
    pub tag: String,
    /// The digest of the manifest.
    pub digest: String,
    /// The kind of the manifest: `image`, `index`, or the type of the artifact.
    pub kind: String,
    /// The bytes of everything below the tag; `None` when a part is not in this repository.
    pub bytes: Option<u64>,
    /// The platforms of the image, as `linux/amd64`.
    pub platforms: Vec<String>,
    /// When the tag was pushed.
    pub pushed_at: Option<Timestamp>,
    /// Whether the tag never moves.
    pub immutable: bool,
    /// The owners of the pins that hold the manifest.
    pub held_by: Vec<String>,
    /// Why the manifest cannot be shown.
    pub problem: Option<String>,
}

/// Held content.
#[derive(Clone, Debug, Deserialize)]
pub struct HeldContent {
    /// The digest.
    pub digest: String,
    /// The owner of the pin.
    pub owner: String,
    /// The job, if a job holds it.
    pub job_id: Option<String>,
    /// The time since which the content is held, if it is known.
    pub since: Option<Timestamp>,
}
