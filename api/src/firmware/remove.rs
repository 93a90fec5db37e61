//! `DELETE /api/v1/firmware/{digest}`.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanWrite, TextPath};
use super::{files, unknown_firmware};
use model::NewEvent;

/// Removes a firmware file that no set and no open run holds.
pub(crate) async fn remove(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    TextPath(digest): TextPath,
) -> Result<StatusCode, ApiError> {
    let files = files(&api)?;
    let stored = files.find(&digest).await?.ok_or_else(unknown_firmware)?;
    let sets = api.store().firmware_sets_with(&digest).await?;
    if !sets.is_empty() {
        return Err(ApiError::new(
            ErrorCode::ConflictFirmwareInUse,
            format!(
                "{} is in the firmware sets {}; delete them first with `shoal firmware set delete`",
                stored.file,
                sets.join(", ")
            ),
        ));
    }
    files.remove(&stored).await?;
    let event = NewEvent::info("firmware.removed", format!("firmware {} was removed", stored.file))
        .by(&principal.name)
        .with(json!({ "digest": digest }));
    api.store().append(None, None, vec![event], api.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
