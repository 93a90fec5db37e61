//! `GET /api/v1/servers/{serial}/card`: the capability card of the last probe.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, SerialPath, unknown_server};
use super::super::openapi::types;
use model::{Serial, Time};

/// The card of the last probe.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeptBmcCard")]
pub(crate) struct KeptCard {
    #[schemars(with = "types::SerialNumber")]
    server_serial: Serial,
    /// When the probe was made; null before the first.
    #[schemars(with = "Option<types::Timestamp>")]
    probed_at: Option<Time>,
    /// The card as the probe returned it; null before the first.
    #[schemars(with = "Option<types::Object>")]
    card: Option<Value>,
}

/// Shows the card of the last probe without a request to the BMC.
pub(crate) async fn card(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(serial): SerialPath,
) -> Result<Json<KeptCard>, ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let kept = api.store().card(&serial).await?;
    let (probed_at, card) = kept.map(|kept| (kept.probed_at, kept.card)).unzip();
    Ok(Json(KeptCard { server_serial: serial, probed_at, card }))
}
