//! `POST /api/v1/backups/{name}/verify`: starts to read all of a backup.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, TextPath};
use super::{BackupStatus, backup_admin};

/// Starts a verification; the status shows its result.
pub(crate) async fn verify(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    TextPath(name): TextPath,
) -> Result<(StatusCode, Json<BackupStatus>), ApiError> {
    let backups = backup_admin(&api)?;
    backups.verify(&name, &principal.name)?;
    Ok((StatusCode::ACCEPTED, Json(backups.status())))
}
