//! `GET /api/v1/servers/{serial}/inventory`: what the machine reported that it is made of.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, SerialPath, unknown_server};
use super::super::openapi::types;
use engine::model::{Serial, Time};

/// What a machine reported that it is made of.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerInventory")]
pub(in crate::api) struct ServerInventoryView {
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    /// When the report arrived; null while there is none.
    #[schemars(with = "Option<types::Timestamp>")]
    received_at: Option<Time>,
    /// The inventory as the maintenance OS reported it.
    #[schemars(with = "Option<types::Object>")]
    inventory: Option<Value>,
}

/// Shows the latest inventory that the maintenance OS of a server reported.
pub(in crate::api) async fn inventory(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(serial): SerialPath,
) -> Result<Json<ServerInventoryView>, ApiError> {
    api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let (received_at, inventory) = match api.store().server_inventory(&serial).await? {
        Some(reported) => (Some(reported.received_at), Some(reported.inventory)),
        None => (None, None),
    };
    Ok(Json(ServerInventoryView { serial, received_at, inventory }))
}
