//! `POST /api/v1/registry/scrub`: starts a scrub of all content.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanWrite;
use super::registry_admin;

/// Starts a scrub; `GET /api/v1/registry` shows its result.
pub(in crate::api) async fn scrub(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let started = registry_admin(&api)?.scrub(&principal.name).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "running": true, "started": started }))))
}
