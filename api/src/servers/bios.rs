//! `GET /api/v1/servers/{serial}/bios`: the settings of the BIOS and the boot order, read from the BMC now. Nothing is changed.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, SerialPath, unknown_server};
use super::super::openapi::types;
use super::bmc_error;
use bmc::probe::{BmcProblem, bmc_problem};
use model::{Serial, Server, Time};
use upkeep::bios::{AttributeRow, BiosShown, Wanted, shown};

/// The settings of a BIOS and the boot order, as the BMC shows them.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerBios")]
pub(crate) struct BiosView {
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    #[schemars(with = "types::Timestamp")]
    read_at: Time,
    /// The attributes by name; null when the BMC shows none.
    attributes: Option<Vec<AttributeView>>,
    /// Why there are no attributes.
    attributes_missing: Option<String>,
    /// Why no registry says what attributes take.
    registry_missing: Option<String>,
    /// The persistent boot order; null when the BMC shows none.
    boot_order: Option<Vec<String>>,
    /// Another boot order that waits for a restart of the host.
    boot_order_pending: Option<Vec<String>>,
    /// Why there is no boot order.
    boot_order_missing: Option<String>,
}

/// One attribute of a BIOS.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "BiosAttribute")]
struct AttributeView {
    name: String,
    /// The value in force; null for a password.
    value: Value,
    /// Another value that waits for a restart of the host.
    pending: Option<Value>,
    /// What the attribute takes, in words.
    takes: Option<String>,
    /// Whether it cannot be written; null when it is not known.
    read_only: Option<bool>,
    /// Whether it is a password, which is neither shown nor set.
    secret: bool,
}

impl From<AttributeRow> for AttributeView {
    fn from(row: AttributeRow) -> Self {
        let AttributeRow { name, value, pending, takes, read_only, secret } = row;
        Self { name, value, pending, takes, read_only, secret }
    }
}

/// Reads and shows the settings of the BIOS of a registered server.
pub(crate) async fn bios(
    State(api): State<Api>,
    _operator: CanWrite,
    SerialPath(serial): SerialPath,
) -> Result<Json<BiosView>, ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let wanted = Wanted { attributes: true, boot_order: true };
    let seen = read(&api, &server, wanted).await?.map_err(|why| bmc_error::error(&why))?;
    let attributes = seen.attributes().map(|rows| rows.into_iter().map(AttributeView::from).collect());
    let (boot_order, boot_order_pending) = (seen.order(), seen.pending_order());
    Ok(Json(BiosView {
        serial,
        read_at: api.now(),
        attributes,
        attributes_missing: seen.bios.err(),
        registry_missing: seen.registry.err(),
        boot_order,
        boot_order_pending,
        boot_order_missing: seen.boot_order.err(),
    }))
}

/// Reads a BMC. The certificate that it met is not pinned: neither a `GET` nor a preview is in the audit log.
pub(crate) async fn read(
    api: &Api,
    server: &Server,
    wanted: Wanted,
) -> Result<Result<BiosShown, BmcProblem>, ApiError> {
    let bmc = &api.services.bmc;
    let reader = match bmc.reader(server).await {
        Ok(reader) => reader,
        Err(problem) => return Ok(Err(problem)),
    };
    let seen = shown(&reader.bmc, &reader.discovery.system, wanted).await;
    bmc.close_reader(&server.serial, &reader).await;
    Ok(seen.map_err(|error| bmc_problem(&error, Some(server.serial.as_str()))))
}
