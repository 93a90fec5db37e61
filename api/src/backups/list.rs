//! `GET /api/v1/backups`: the backups at the target.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanAdminister;
use super::{BackupView, backup_admin};

/// The backups at the target.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BackupPage {
    /// The backups by name, at most 1000; the newest of a controller is its last.
    backups: Vec<BackupView>,
    /// Always null: all backups are in one page.
    next: Option<String>,
}

/// Returns the backups at the target, also those of other controllers.
pub(crate) async fn list(
    State(api): State<Api>,
    _admin: CanAdminister,
) -> Result<Json<BackupPage>, ApiError> {
    Ok(Json(BackupPage { backups: backup_admin(&api)?.list().await?, next: None }))
}
