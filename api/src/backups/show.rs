//! `GET /api/v1/backup-status`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanAdminister;
use super::{BackupStatus, backup_admin};

/// Returns what is known about backups, without a look at the target.
pub(crate) async fn show(
    State(api): State<Api>,
    _admin: CanAdminister,
) -> Result<Json<BackupStatus>, ApiError> {
    Ok(Json(backup_admin(&api)?.status()))
}
