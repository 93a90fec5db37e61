//! `POST /api/v1/registry/scrub`: starts a scrub of all content.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanAdminister;
use super::registry_admin;

/// The response to a request for a scrub.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ScrubRequested")]
pub(crate) struct ScrubView {
    /// Always true.
    running: bool,
    /// Whether this request started the scrub.
    started: bool,
}

/// Starts a scrub; `GET /api/v1/registry` shows its result.
pub(crate) async fn scrub(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
) -> Result<(StatusCode, Json<ScrubView>), ApiError> {
    let started = registry_admin(&api)?.scrub(&principal.name).await?;
    Ok((StatusCode::ACCEPTED, Json(ScrubView { running: true, started })))
}
