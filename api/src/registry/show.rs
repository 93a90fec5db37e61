//! `GET /api/v1/registry`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanRead;
use super::{RegistryStatus, registry_admin};

/// Returns the status of the registry.
pub(crate) async fn show(State(api): State<Api>, _reader: CanRead) -> Result<Json<RegistryStatus>, ApiError> {
    Ok(Json(registry_admin(&api)?.status().await?))
}
