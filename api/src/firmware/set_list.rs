//! `GET /api/v1/firmware-sets` and `GET /api/v1/firmware-sets/{name}`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, TextPath};
use super::view::{FirmwareSetPage, FirmwareSetView};
use super::{set_of, unknown_set};

/// Lists all sets in one page.
pub(crate) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
) -> Result<Json<FirmwareSetPage>, ApiError> {
    let stored = api.store().firmware_sets().await?;
    let sets: Result<Vec<_>, ApiError> =
        stored.iter().map(|stored| Ok(FirmwareSetView::of(stored, &set_of(stored)?))).collect();
    Ok(Json(FirmwareSetPage { sets: sets?, next: None }))
}

/// Shows a set.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    TextPath(name): TextPath,
) -> Result<Json<FirmwareSetView>, ApiError> {
    let stored = api.store().firmware_set(&name).await?.ok_or_else(unknown_set)?;
    Ok(Json(FirmwareSetView::of(&stored, &set_of(&stored)?)))
}
