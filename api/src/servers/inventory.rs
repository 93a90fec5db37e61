//! `GET /api/v1/servers/{serial}/inventory`: what a machine is made of, from two sources: its own report, and its BMC.

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

/// What a machine is made of, from two sources.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerInventory")]
pub(crate) struct ServerInventoryView {
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    /// When the report of the machine arrived; null while there is none.
    #[schemars(with = "Option<types::Timestamp>")]
    received_at: Option<Time>,
    /// The inventory as the maintenance OS reported it.
    #[schemars(with = "Option<types::Object>")]
    inventory: Option<Value>,
    /// When the BMC was read; null while it was not.
    #[schemars(with = "Option<types::Timestamp>")]
    out_of_band_read_at: Option<Time>,
    /// The inventory as the BMC showed it.
    #[schemars(with = "Option<types::Object>")]
    out_of_band: Option<Value>,
}

/// Shows the latest inventory that the maintenance OS of a server reported, and the latest one that was read from its BMC.
pub(crate) async fn inventory(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(serial): SerialPath,
) -> Result<Json<ServerInventoryView>, ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let (received_at, inventory) = match api.store().server_inventory(&serial).await? {
        Some(reported) => (Some(reported.received_at), Some(reported.inventory)),
        None => (None, None),
    };
    let (out_of_band_read_at, out_of_band) = match api.store().server_hardware(&serial).await? {
        Some(read) => (Some(read.read_at), Some(read.hardware)),
        None => (None, None),
    };
    Ok(Json(ServerInventoryView { serial, received_at, inventory, out_of_band_read_at, out_of_band }))
}
