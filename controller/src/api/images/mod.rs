//! `/api/v1/registry`: what an operator asks of the registry beside `/v2/`. It stands behind a trait that `app` fills in.
//!
//! Collecting garbage and retention may take long on a large registry: who asked is answered within [`PATIENCE`], with the
//! report or with 202, and the work goes on. Verifying everything takes hours and is only begun.

mod collect;
mod read_only;
mod retain;
mod scrub;
mod show;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::Api;
use super::error::{ApiError, Detail};

pub(super) use collect::collect;
pub(super) use read_only::{begin as begin_read_only, end as end_read_only};
pub(super) use retain::retain;
pub(super) use scrub::scrub;
pub(super) use show::show;

/// How long a request waits for work that may take longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What an operator can ask of the registry.
#[async_trait]
pub trait RegistryAdmin: Send + Sync {
    /// How it stands.
    async fn status(&self) -> Result<RegistryStatus, RegistryAdminError>;
    /// Refuses pushes and deletes with a reason, also after a restart, or ends that.
    async fn set_read_only(&self, reason: Option<String>, by: &str) -> Result<(), RegistryAdminError>;
    /// Removes what no image needs. The report, or nothing when it takes longer than [`PATIENCE`].
    async fn collect(&self, order: Collect, by: &str) -> Result<Option<Value>, RegistryAdminError>;
    /// Removes the tags the rules do not keep, in the same way.
    async fn retain(&self, dry_run: bool, by: &str) -> Result<Option<Value>, RegistryAdminError>;
    /// Begins to verify everything, unless that goes on already; whether it began.
    async fn scrub(&self, by: &str) -> Result<bool, RegistryAdminError>;
}

/// How garbage is to be collected.
#[derive(Clone, Copy, Debug)]
pub struct Collect {
    /// Only say what would go.
    pub dry_run: bool,
    /// Also images no tag leads to; as configured when unset.
    pub untagged: Option<bool>,
    /// How long what nobody needs is kept; as configured when unset.
    pub grace: Option<Duration>,
}

/// How the registry stands.
#[derive(Clone, Debug, Serialize)]
pub struct RegistryStatus {
    /// Why nothing may be changed, while that is so.
    pub read_only: Option<String>,
    /// Whether there is room for pushes.
    pub accepts_pushes: bool,
    /// Free bytes of its disk.
    pub free_bytes: u64,
    /// Repositories there are.
    pub repositories: usize,
    /// Images kept for somebody.
    pub pins: usize,
    /// Limits and what is taken of them.
    pub quotas: Vec<QuotaStatus>,
    /// Garbage collection.
    pub gc: PeriodicStatus,
    /// Retention.
    pub retention: PeriodicStatus,
    /// Verifying everything.
    pub scrub: ScrubStatus,
}

/// One quota.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaStatus {
    /// The pattern of the repositories that share it.
    pub repositories: String,
    /// The limit.
    pub limit_bytes: u64,
    /// What is stored.
    pub used_bytes: u64,
    /// What is being pushed.
    pub reserved_bytes: u64,
}

/// Work that is done from time to time.
#[derive(Clone, Debug, Serialize)]
pub struct PeriodicStatus {
    /// Whether it goes on now.
    pub running: bool,
    /// The report of the last one that changed something.
    pub last: Option<Value>,
}

/// How verifying stands.
#[derive(Clone, Debug, Serialize)]
pub struct ScrubStatus {
    /// Whether it goes on now.
    pub running: bool,
    /// When everything was last verified, RFC 3339.
    pub last_verified: Option<String>,
    /// Contents read then.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What had rotted then and was put aside.
    pub quarantined: Vec<String>,
}

/// Why something could not be done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryAdminError {
    /// It would change something, and nothing may be changed.
    #[error("the registry is read-only: {0}")]
    ReadOnly(String),
    /// A setting says otherwise.
    #[error("{0}")]
    Fixed(&'static str),
    /// It went wrong; the log has the causes.
    #[error("{0}")]
    Failed(String),
}

impl From<RegistryAdminError> for ApiError {
    fn from(error: RegistryAdminError) -> Self {
        let message = error.to_string();
        match error {
            RegistryAdminError::ReadOnly(_) => Self::conflict("registry.read_only", message),
            RegistryAdminError::Fixed(_) => Self::conflict("registry.fixed", message),
            RegistryAdminError::Failed(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "registry.failed", message)
            }
        }
    }
}

fn care(api: &Api) -> Result<&Arc<dyn RegistryAdmin>, ApiError> {
    api.images.as_ref().ok_or_else(|| {
        ApiError::not_found("no_registry", "there is no registry here; ENABLE_REGISTRY=true makes one")
    })
}

/// Query parameters that are switches, seconds, or a mistake: a mistyped `dry_run` must not remove anything.
fn only(query: &HashMap<String, String>, known: &[&str]) -> Result<(), ApiError> {
    let unknown = query.keys().filter(|name| !known.contains(&name.as_str()));
    let details: Vec<Detail> = unknown
        .map(|name| {
            Detail::new(name, "unknown", format!("there is no such parameter; there is {}", known.join(", ")))
        })
        .collect();
    if details.is_empty() { Ok(()) } else { Err(ApiError::invalid(details)) }
}

fn switch(query: &HashMap<String, String>, name: &str) -> Result<Option<bool>, ApiError> {
    match query.get(name).map(String::as_str) {
        None => Ok(None),
        Some("true" | "1" | "") => Ok(Some(true)),
        Some("false" | "0") => Ok(Some(false)),
        Some(_) => Err(ApiError::invalid(vec![Detail::new(name, "type", "give true or false")])),
    }
}

/// The report of work that is done, or that it goes on.
fn answer(report: Option<Value>) -> (StatusCode, axum::Json<Value>) {
    match report {
        Some(report) => (StatusCode::OK, axum::Json(report)),
        None => (StatusCode::ACCEPTED, axum::Json(serde_json::json!({ "running": true }))),
    }
}
