//! `POST /api/v1/registry/scrub`: begins to verify everything.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::Writer;
use super::care;

/// Begins a pass over all content; `GET /api/v1/registry` shows how it ended.
pub(in crate::api) async fn scrub(
    State(api): State<Api>,
    Writer(principal): Writer,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let began = care(&api)?.scrub(&principal.name).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "running": true, "began": began }))))
}
