//! `GET /api/v1/registry/uploads` and `DELETE /api/v1/registry/uploads/{id}`: the upload sessions of all clients.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanAdminister, CanRead, TextPath};
use super::super::openapi::types;
use super::registry_admin;

/// The open upload sessions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct UploadPage {
    /// The sessions; the one that waits longest for a write is first.
    pub uploads: Vec<UploadView>,
}

/// An open upload session.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct UploadView {
    /// The id, which is the last part of the session's URL.
    pub id: String,
    /// The repository.
    pub repository: String,
    /// The user who began it, `anonymous at ADDRESS`, or `unknown`.
    pub uploader: String,
    /// When it began, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub begun: Option<String>,
    /// When bytes last arrived, RFC 3339.
    #[schemars(with = "Option<types::Timestamp>")]
    pub written: Option<String>,
    /// Received bytes.
    pub received_bytes: u64,
    /// Whether a request is using it now.
    pub active: bool,
}

/// Returns all open upload sessions.
pub(crate) async fn list(State(api): State<Api>, _reader: CanRead) -> Result<Json<UploadPage>, ApiError> {
    Ok(Json(UploadPage { uploads: registry_admin(&api)?.uploads().await? }))
}

/// Cancels an upload session; later requests of its client are refused. Returns the sessions that are left.
pub(crate) async fn cancel(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    TextPath(id): TextPath,
) -> Result<Json<UploadPage>, ApiError> {
    let admin = registry_admin(&api)?;
    if !admin.cancel_upload(&id, &principal.name).await? {
        return Err(ApiError::new(
            ErrorCode::UnknownUpload,
            "no upload session has this id; `shoal registry uploads` shows the sessions",
        ));
    }
    Ok(Json(UploadPage { uploads: admin.uploads().await? }))
}
