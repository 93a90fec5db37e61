//! `POST` and `DELETE /api/v1/registry/read-only`: the switch that stops pushes and deletes.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{Body, Writer};
use super::super::jobs::reason;
use super::{RegistryStatus, care};

/// Nothing changes from now on, with a reason that clients are told.
pub(in crate::api) async fn begin(
    State(api): State<Api>,
    Writer(principal): Writer,
    body: Body,
) -> Result<Json<RegistryStatus>, ApiError> {
    let care = care(&api)?;
    let reason = reason(&body)?;
    if reason.trim().is_empty() {
        let message = "say why: clients whose push is refused are told";
        return Err(ApiError::invalid(vec![Detail::new("/reason", "required", message)]));
    }
    care.set_read_only(Some(reason), &principal.name).await?;
    Ok(Json(care.status().await?))
}

/// Pushes and deletes are taken again.
pub(in crate::api) async fn end(
    State(api): State<Api>,
    Writer(principal): Writer,
) -> Result<Json<RegistryStatus>, ApiError> {
    let care = care(&api)?;
    care.set_read_only(None, &principal.name).await?;
    Ok(Json(care.status().await?))
}
