//! `POST /api/v1/backups`: starts a backup now.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanAdminister;
use super::{BackupStatus, backup_admin};

/// Starts a backup, unless one is being made; the status shows how far it is and how it ended.
pub(crate) async fn create(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
) -> Result<(StatusCode, Json<BackupStatus>), ApiError> {
    let backups = backup_admin(&api)?;
    backups.make(&principal.name)?;
    Ok((StatusCode::ACCEPTED, Json(backups.status())))
}
