//! `/api/v1/registry`: administration of the registry, beside `/v2/`. `app` implements the trait [`RegistryAdmin`].
//!
//! Garbage collection and retention of a large registry may take long: the response is sent within [`RESPONSE_WAIT`], with the
//! report or with 202 while the work continues. A scrub takes hours; the request only starts it.

mod collect;
mod read_only;
mod repositories;
mod retain;
pub(super) mod scrub;
mod show;
mod tags;
pub(super) mod uploads;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::{ErrorCode, Rule};
use super::openapi::types;

pub(super) use collect::collect;
pub(super) use read_only::{begin as begin_read_only, end as end_read_only};
pub(super) use repositories::{list_repositories, show_repository};
pub(super) use retain::retain;
pub(super) use scrub::scrub;
pub(super) use show::show;
pub(super) use tags::delete as delete_tag;
pub(super) use uploads::UploadPage;
pub use uploads::UploadView;
pub(super) use uploads::{cancel as cancel_upload, list as list_uploads};

/// How long a request waits for garbage collection or retention.
pub const RESPONSE_WAIT: Duration = Duration::from_secs(20);

/// The registry operations of an operator.
#[async_trait]
pub trait RegistryAdmin: Send + Sync {
    /// Returns the status of the registry.
    async fn status(&self) -> Result<RegistryStatus, RegistryAdminError>;
    /// With a reason, refuses pushes and deletes, also after a restart; with `None`, accepts them again.
    async fn set_read_only(&self, reason: Option<String>, by: &str) -> Result<(), RegistryAdminError>;
    /// Collects garbage. Returns the report, or `None` when it takes longer than [`RESPONSE_WAIT`].
    async fn collect(&self, order: GcRequest, by: &str) -> Result<Option<Value>, RegistryAdminError>;
    /// Removes the tags that no retention rule keeps. Returns the report, or `None` after [`RESPONSE_WAIT`].
    async fn retain(&self, dry_run: bool, by: &str) -> Result<Option<Value>, RegistryAdminError>;
    /// Starts a scrub. Returns `false` when one is already running.
    async fn scrub(&self, by: &str) -> Result<bool, RegistryAdminError>;
    /// Returns every repository with some of its tags.
    async fn repositories(&self) -> Result<Vec<RepositoryView>, RegistryAdminError>;
    /// Returns a repository with up to `limit` tags after `after`; `None` when it does not exist.
    async fn repository(
        &self,
        name: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Option<RepositoryDetailView>, RegistryAdminError>;
    /// Deletes a tag. Durable when this returns.
    async fn delete_tag(&self, gone: TagToDelete<'_>, by: &str) -> Result<(), RegistryAdminError>;
    /// Returns every open upload session.
    async fn uploads(&self) -> Result<Vec<UploadView>, RegistryAdminError>;
    /// Cancels an upload session. Returns `false` when no session has this id.
    async fn cancel_upload(&self, id: &str, by: &str) -> Result<bool, RegistryAdminError>;
}

/// A tag that is to be deleted, as the request names it.
#[derive(Clone, Copy, Debug)]
pub struct TagToDelete<'a> {
    /// The repository.
    pub repository: &'a str,
    /// The tag.
    pub tag: &'a str,
    /// The manifest that the tag must name.
    pub digest: Option<&'a str>,
}

/// The repositories of the registry.
#[derive(Serialize, JsonSchema)]
pub(super) struct RepositoryPage {
    /// The repositories by name.
    pub(super) repositories: Vec<RepositoryView>,
    /// Always null: all repositories are in one page.
    pub(super) next: Option<String>,
}

/// A repository.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Repository")]
pub struct RepositoryView {
    /// The name.
    pub name: String,
    /// The number of tags.
    pub tags: usize,
    /// The first tags by name, at most 100.
    pub names: Vec<String>,
    /// The bytes of its content. A blob that is in two repositories counts in both.
    pub bytes: u64,
    /// When a tag was last pushed or deleted, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub changed_at: Option<String>,
    /// The number of pins that hold content of it.
    pub pins: usize,
}

/// One repository with a page of its tags.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RepositoryDetail")]
pub struct RepositoryDetailView {
    /// The name.
    pub name: String,
    /// The bytes of its content. A blob that is in two repositories counts in both.
    pub bytes: u64,
    /// The tags by name.
    pub tags: Vec<ImageTagView>,
    /// The cursor of the following page: the last tag of this one; null on the last page.
    pub next: Option<String>,
    /// The pins that hold content, at most 100.
    pub held: Vec<HeldView>,
    /// The number of pins that are left out.
    pub more_held: usize,
}

/// A tag with what it names.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "ImageTag")]
pub struct ImageTagView {
    /// The tag.
    pub tag: String,
    /// The digest of the manifest.
    pub digest: String,
    /// `image`, `index`, or the type of the artifact.
    pub kind: String,
    /// The bytes of everything below the tag; null when a part is not in this repository.
    pub bytes: Option<u64>,
    /// The platforms, as `linux/amd64`.
    pub platforms: Vec<String>,
    /// When the tag was last pushed, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub pushed_at: Option<String>,
    /// Whether the tag never moves and is never deleted.
    pub immutable: bool,
    /// Who holds the manifest.
    pub held_by: Vec<String>,
    /// Why the manifest cannot be shown.
    pub problem: Option<String>,
}

/// Held content.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "HeldContent")]
pub struct HeldView {
    /// The digest of a manifest, with which everything below it is held, or of a blob.
    pub digest: String,
    /// Who holds it.
    pub owner: String,
    /// The job that holds it, if a job does.
    #[schemars(with = "Option<types::JobId>")]
    pub job_id: Option<String>,
    /// Since when, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub since: Option<String>,
}

/// The options of one garbage collection.
#[derive(Clone, Copy, Debug)]
pub struct GcRequest {
    /// Only report what would be removed.
    pub dry_run: bool,
    /// Also remove untagged manifests; `None` uses the setting.
    pub untagged: Option<bool>,
    /// The grace period of unreferenced content; `None` uses the setting.
    pub grace: Option<Duration>,
}

/// The status of the registry.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RegistryStatus {
    /// The reason of the read-only state, if it is set.
    pub read_only: Option<String>,
    /// Whether the disk has space for pushes.
    pub accepts_pushes: bool,
    /// Free bytes of the disk of the registry.
    pub free_bytes: u64,
    /// The number of repositories.
    pub repositories: usize,
    /// The number of pins.
    pub pins: usize,
    /// The uploads in progress and their limits.
    pub uploads: UploadsStatus,
    /// The quotas with their use.
    pub quotas: Vec<QuotaStatus>,
    /// Garbage collection and its last report.
    pub gc: PeriodicStatus,
    /// Retention and its last report.
    pub retention: PeriodicStatus,
    /// The scrub and its last result.
    pub scrub: ScrubStatus,
}

/// The uploads in progress and their limits.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UploadsStatus {
    /// Open upload sessions, idle ones included.
    pub sessions: usize,
    /// The maximum of open sessions.
    pub sessions_max: usize,
    /// Request bodies that are being received.
    pub receiving: usize,
    /// The maximum of bodies received at one time.
    pub receiving_max: usize,
    /// Whether clients are refused because a maximum is reached.
    pub exhausted: bool,
}

/// A quota and its use.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct QuotaStatus {
    /// The pattern of the repositories that share the quota.
    pub repositories: String,
    /// The limit in bytes.
    pub limit_bytes: u64,
    /// Stored bytes.
    pub used_bytes: u64,
    /// Bytes of pushes in progress.
    pub reserved_bytes: u64,
}

/// The status of scheduled work.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PeriodicStatus {
    /// Whether the work is running.
    pub running: bool,
    /// The report of the last run that changed something.
    #[schemars(with = "Option<types::Object>")]
    pub last: Option<Value>,
}

/// The status of the scrub.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScrubStatus {
    /// Whether the work is running.
    pub running: bool,
    /// The end of the last complete scrub, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub last_verified: Option<String>,
    /// Blobs read by the last scrub.
    pub blobs: u64,
    /// Bytes read by the last scrub.
    pub bytes: u64,
    /// Digests of corrupted content that the last scrub quarantined.
    pub quarantined: Vec<String>,
}

/// An error of a registry operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryAdminError {
    /// The registry is read-only.
    #[error("the registry is read-only: {0}")]
    ReadOnly(String),
    /// A setting forbids the operation.
    #[error("{0}")]
    Fixed(&'static str),
    /// The repository has no such tag.
    #[error("the repository has no such tag; `shoal registry ls REPOSITORY --online` shows its tags")]
    UnknownTag,
    /// The digest of a request is none.
    #[error("{0}")]
    InvalidDigest(String),
    /// The tag never moves and is never deleted.
    #[error("the tag {0} is immutable and stays; REGISTRY_IMMUTABLE_TAGS names such tags")]
    Immutable(String),
    /// The tag names another manifest than the request says.
    #[error("the tag names {0} now, and was not deleted; look at it again, then decide")]
    TagMoved(String),
    /// The operation failed; the log has the causes.
    #[error("{0}")]
    Failed(String),
}

impl From<RegistryAdminError> for ApiError {
    fn from(error: RegistryAdminError) -> Self {
        let message = error.to_string();
        match error {
            RegistryAdminError::ReadOnly(_) => Self::new(ErrorCode::RegistryReadOnly, message),
            RegistryAdminError::Fixed(_) => Self::new(ErrorCode::RegistryFixed, message),
            RegistryAdminError::UnknownTag => Self::new(ErrorCode::UnknownTag, message),
            RegistryAdminError::InvalidDigest(_) => {
                Self::invalid(vec![Detail::new("digest", Rule::Format, message)])
            }
            RegistryAdminError::Immutable(_) => Self::new(ErrorCode::RegistryImmutable, message),
            RegistryAdminError::TagMoved(_) => Self::new(ErrorCode::PreconditionFailed, message),
            RegistryAdminError::Failed(_) => Self::new(ErrorCode::RegistryFailed, message),
        }
    }
}

fn registry_admin(api: &Api) -> Result<&Arc<dyn RegistryAdmin>, ApiError> {
    api.registry.as_ref().ok_or_else(|| {
        ApiError::new(
            ErrorCode::NoRegistry,
            "this controller has no registry; ENABLE_REGISTRY=true enables it",
        )
    })
}

/// Refuses unknown query parameters: a mistyped `dry_run` must not remove anything.
fn check_parameters(query: &HashMap<String, String>, known: &[&str]) -> Result<(), ApiError> {
    let unknown = query.keys().filter(|name| !known.contains(&name.as_str()));
    let details: Vec<Detail> = unknown
        .map(|name| {
            Detail::new(
                name,
                Rule::Unknown,
                format!("unknown parameter; the parameters are {}", known.join(", ")),
            )
        })
        .collect();
    if details.is_empty() { Ok(()) } else { Err(ApiError::invalid(details)) }
}

fn switch(query: &HashMap<String, String>, name: &str) -> Result<Option<bool>, ApiError> {
    match query.get(name).map(String::as_str) {
        None => Ok(None),
        Some("true" | "1" | "") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(ApiError::invalid(vec![Detail::new(name, Rule::Type, "give true or false")])),
    }
}

/// The response to a request whose work continues.
#[derive(Serialize, JsonSchema)]
pub(super) struct StillRunning {
    /// Always true.
    running: bool,
}

/// 200 with the report of finished work, or 202 while it is running.
fn respond(report: Option<Value>) -> (StatusCode, axum::Json<Value>) {
    match report {
        Some(report) => (StatusCode::OK, axum::Json(report)),
        None => (StatusCode::ACCEPTED, axum::Json(serde_json::json!(StillRunning { running: true }))),
    }
}
