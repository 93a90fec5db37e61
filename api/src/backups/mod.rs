//! `/api/v1/backups` and `/api/v1/backup-status`: the backups that the controller makes itself. `app` implements the trait [`BackupAdmin`].
//!
//! A backup and a verification take minutes or hours: a request only starts one, and the status shows how far it is.

mod create;
mod list;
mod show;
mod verify;

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::openapi::types;
use model::Time;

pub(super) use create::create;
pub(super) use list::{BackupPage, list};
pub(super) use show::show;
pub(super) use verify::verify;

/// The operations on the backups of a controller.
#[async_trait]
pub trait BackupAdmin: Send + Sync {
    /// Returns what is known without a look at the target.
    fn status(&self) -> BackupStatus;
    /// Returns the backups at the target, also those of others.
    async fn list(&self) -> Result<Vec<BackupView>, BackupAdminError>;
    /// Starts a backup. Returns `false` when one is already being made.
    ///
    /// # Errors
    /// When there is no target, or another operation is under way.
    fn make(&self, by: &str) -> Result<bool, BackupAdminError>;
    /// Starts the verification of a backup by its name. Returns `false` when it is already being verified.
    ///
    /// # Errors
    /// When there is no target, another operation is under way, or the name is none of a backup.
    fn verify(&self, name: &str, by: &str) -> Result<bool, BackupAdminError>;
}

/// A backup.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Backup")]
pub struct BackupView {
    /// The name: of its directory, or its tag.
    pub name: String,
    /// When it was made; null for a backup in a registry that another controller made.
    #[schemars(with = "Option<types::Timestamp>")]
    pub made_at: Option<Time>,
    /// The bytes of all its files.
    pub bytes: Option<u64>,
    /// The number of its files.
    pub files: Option<u64>,
    /// The number of servers in it.
    pub servers: Option<u64>,
    /// The number of jobs in it.
    pub jobs: Option<u64>,
    /// The digest of its `backup.json`, or of its manifest in a registry.
    pub digest: Option<String>,
    /// The last time at which all of it was read and was right.
    #[schemars(with = "Option<types::Timestamp>")]
    pub verified_at: Option<Time>,
    /// What is wrong with it, if it is damaged.
    pub damage: Option<String>,
    /// Whether this controller made it. It removes no others.
    pub own: bool,
}

/// An operation on a backup that is under way.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackupProgress {
    /// `backup` or `verification`.
    pub what: &'static str,
    /// `waiting`, `copying`, `verifying`, `sending` or `removing`.
    pub phase: &'static str,
    /// The bytes of the phase so far.
    pub done_bytes: u64,
    /// When it began.
    #[schemars(with = "types::Timestamp")]
    pub since: Time,
    /// The user or token that requested it, or `schedule`.
    pub by: String,
}

/// Why the last attempt to make a backup failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackupFailureView {
    /// When it failed.
    #[schemars(with = "types::Timestamp")]
    pub at: Time,
    /// Why.
    pub message: String,
    /// How many attempts in a row have failed.
    pub attempts: u32,
}

/// The result of the last verification that was requested.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BackupVerification {
    /// The backup.
    pub name: String,
    /// When it ended.
    #[schemars(with = "types::Timestamp")]
    pub at: Time,
    /// What is wrong; null if all of it is right.
    pub damage: Option<String>,
    /// Why it could not be read to its end; null if it was.
    pub error: Option<String>,
}

/// What is known about the backups of the controller.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct BackupStatus {
    /// `BACKUP_SCHEDULE`.
    pub schedule: String,
    /// `BACKUP_TARGET`.
    pub target: Option<String>,
    /// `BACKUP_KEEP`.
    pub keep: usize,
    /// What is under way.
    pub running: Option<BackupProgress>,
    /// The newest backup that is not damaged.
    pub last: Option<BackupView>,
    /// The age of that backup in seconds.
    pub age_seconds: Option<u64>,
    /// Whether the last backup is older than twice the interval of the schedule, or none was made in that time.
    pub old: bool,
    /// When the next backup is due; null without a schedule.
    #[schemars(with = "Option<types::Timestamp>")]
    pub next: Option<Time>,
    /// The last attempt, if it failed.
    pub failure: Option<BackupFailureView>,
    /// The last verification that was requested.
    pub verification: Option<BackupVerification>,
    /// What an operator should know: the last backup is old, or the target is beside the data.
    pub warnings: Vec<String>,
}

/// An error of an operation on backups.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackupAdminError {
    /// There is no target.
    #[error("this controller makes no backups: set BACKUP_TARGET, and BACKUP_SCHEDULE for backups by itself")]
    NoTarget,
    /// Another operation is under way.
    #[error("{0}")]
    Busy(String),
    /// There is no such backup.
    #[error("there is no backup {0}; `shoal backup list` shows all")]
    Unknown(String),
    /// The target cannot be read.
    #[error("{0}")]
    Failed(String),
}

impl From<BackupAdminError> for ApiError {
    fn from(error: BackupAdminError) -> Self {
        let code = match &error {
            BackupAdminError::NoTarget => ErrorCode::NoBackupTarget,
            BackupAdminError::Busy(_) => ErrorCode::ConflictBackup,
            BackupAdminError::Unknown(_) => ErrorCode::UnknownBackup,
            BackupAdminError::Failed(_) => ErrorCode::BackupFailed,
        };
        Self::new(code, error.to_string())
    }
}

fn backup_admin(api: &Api) -> Result<&Arc<dyn BackupAdmin>, ApiError> {
    api.backups.as_ref().ok_or_else(|| BackupAdminError::NoTarget.into())
}
