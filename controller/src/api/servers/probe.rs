//! `GET` and `POST /api/v1/servers/{serial}/probe`: what the BMC is and can, read and never changed.

use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{SerialPath, Writer, unknown_server};
use super::bmc_error;

/// How a probe is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(in crate::api) struct Asked {
    /// Whether the redacted resources are wanted too.
    capture: bool,
}

/// Looks at the BMC of a registered server.
pub(in crate::api) async fn probe(
    State(api): State<Api>,
    _writer: Writer,
    SerialPath(serial): SerialPath,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let probed =
        api.site.probe(&server, asked.capture, api.now()).await.map_err(|why| bmc_error::error(&why))?;
    let mut card = probed.card;
    if let Some(capture) = probed.capture {
        card["capture"] = capture;
    }
    Ok(Json(card))
}
