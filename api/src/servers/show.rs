//! `GET /api/v1/servers/{serial}`.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, SerialPath, unknown_server};
use super::view::{self, ServerView};

/// Shows one server, without its password.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(serial): SerialPath,
) -> Result<(HeaderMap, Json<ServerView>), ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    Ok((view::etag(&server), Json(ServerView::of(&server))))
}
