//! `GET /api/v1/registry`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::Reader;
use super::{RegistryStatus, care};

/// How the registry stands.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    _reader: Reader,
) -> Result<Json<RegistryStatus>, ApiError> {
    Ok(Json(care(&api)?.status().await?))
}
