//! `DELETE /api/v1/firmware-sets/{name}`.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, TextPath};
use super::unknown_set;
use model::{NewEvent, error_chain};

/// Deletes a set. Its files stay, and are no longer held by it.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(name): TextPath,
) -> Result<StatusCode, ApiError> {
    let event = NewEvent::info("firmware-set.deleted", format!("the firmware set {name} was deleted"))
        .by(&principal.name)
        .with(json!({ "name": name }));
    let deleted = api.store().delete_firmware_set(&name, event, api.now()).await?.ok_or_else(unknown_set)?;
    // The set is gone; a hold that remains is ended by the next start.
    if let Some(files) = &api.firmware
        && let Err(error) = files.release_set(&deleted.id).await
    {
        tracing::warn!(error = %error_chain(&error), "a hold of a firmware set was not ended; the next start ends it");
    }
    Ok(StatusCode::NO_CONTENT)
}
