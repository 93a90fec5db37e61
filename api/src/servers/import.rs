//! `POST /api/v1/server-imports`: registers many servers in one request.
//!
//! ```text
//!  rows --each checked--> servers --chunks of 500--> one transaction each --> a result per row, in the order of the rows
//!                                                    (a refused row does not affect the others)
//! ```
//!
//! Invariants: a repetition registers nothing twice and changes nothing; a registered server with other values is left as it is
//! and its row says which fields differ; no password is in a response.

use std::collections::HashSet;

use axum::Json;
use axum::extract::State;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::Api;
use super::super::error::{ApiError, Detail, ErrorBody};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody, Parameters};
use super::super::{request_audit, shape};
use super::change::{NewServer, ServerFields};
use super::create::same;
use model::{NewEvent, Serial, Server};
use secrecy::SecretString;
use store::ServerChange;

/// The maximum of rows in one request.
const MAX_ROWS: usize = 5000;
/// Rows written in one transaction.
const CHUNK: usize = 500;

/// The query of an import.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ImportQuery {
    dry_run: bool,
}

/// The servers to register.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// Each is read on its own: one that cannot be read stops no other.
    rows: Vec<Box<RawValue>>,
}

/// The schema of a request: rows of new servers.
pub(crate) struct NewServers;

impl JsonSchema for NewServers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewServers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let row = generator.subschema_for::<NewServer>();
        schemars::json_schema!({
            "description": "Servers to register.",
            "type": "object",
            "properties": { "rows": { "type": "array", "items": row, "minItems": 1, "maxItems": MAX_ROWS } },
            "required": ["rows"],
            "additionalProperties": false,
        })
    }
}

/// The results of an import.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerImport")]
pub(crate) struct ImportView {
    /// Whether nothing was written.
    dry_run: bool,
    /// The number of rows whose server is new.
    created: usize,
    /// The number of rows whose server is registered with equal values.
    exists: usize,
    /// The number of rows that were refused.
    refused: usize,
    /// The results in the order of the rows.
    rows: Vec<RowView>,
}

/// The result of a row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerImportRow")]
struct RowView {
    /// The position of the row in the request, from 0.
    index: usize,
    /// The serial number as the request has it.
    serial: Option<String>,
    result: RowResult,
    /// Why the row was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody>,
}

/// The result of a row in one word.
#[derive(Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ServerImportResult")]
enum RowResult {
    /// The server is new.
    Created,
    /// The server is registered with equal values.
    Exists,
    /// Nothing was written for the row.
    Refused,
}

/// A row that can be registered.
struct ReadyRow {
    server: Server,
    password: Option<SecretString>,
}

/// Registers servers. Those that the response counts as created are durable.
pub(crate) async fn import(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    Parameters(query): Parameters<ImportQuery>,
    body: JsonBody,
) -> Result<Json<ImportView>, ApiError> {
    let request: Request = body.read()?;
    if request.rows.is_empty() || request.rows.len() > MAX_ROWS {
        let message = format!("an import has 1 to {MAX_ROWS} rows");
        return Err(ApiError::invalid(vec![Detail::new("/rows", Rule::Length, message)]));
    }
    request_audit::target("servers", &format!("{} rows", request.rows.len()));
    if query.dry_run {
        request_audit::changes_nothing();
    }
    let mut seen = HashSet::new();
    let mut prepared = Vec::with_capacity(request.rows.len());
    for (index, row) in request.rows.into_iter().enumerate() {
        let fields = fields_of(&row);
        let shown = fields.as_ref().map_or_else(|_| serial_of(&row), |fields| fields.serial.clone());
        let row = fields.and_then(|fields| ready(&api, fields)).and_then(|row| {
            match seen.insert(row.server.serial.clone()) {
                true => Ok(row),
                // Without the number of the row: a client may send only some rows of its file.
                false => Err(ApiError::invalid(vec![Detail::new(
                    "/serial",
                    Rule::Value,
                    format!("an earlier row has the serial number {} too", row.server.serial),
                )])),
            }
        });
        prepared.push((index, shown, row));
    }
    let mut rows = Vec::with_capacity(prepared.len());
    let mut rest = prepared.into_iter().peekable();
    while rest.peek().is_some() {
        let chunk: Vec<_> = rest.by_ref().take(CHUNK).collect();
        rows.extend(register(&api, &principal.name, query.dry_run, chunk).await?);
    }
    let count = |result: RowResult| rows.iter().filter(|row| row.result == result).count();
    let (created, exists) = (count(RowResult::Created), count(RowResult::Exists));
    let refused = count(RowResult::Refused);
    Ok(Json(ImportView { dry_run: query.dry_run, created, exists, refused, rows }))
}

/// The fields of a row.
fn fields_of(row: &RawValue) -> Result<ServerFields, ApiError> {
    serde_json::from_str(row.get()).map_err(|error| {
        ApiError::invalid(vec![shape::refusal::<ServerFields>(row.get().as_bytes(), &error)])
    })
}

/// The serial number of a row whose other fields cannot be read.
fn serial_of(row: &RawValue) -> Option<String> {
    let fields: Map<String, Value> = serde_json::from_str(row.get()).ok()?;
    fields.get("serial").and_then(Value::as_str).map(str::to_owned)
}

/// Checks a row and seals its password.
fn ready(api: &Api, fields: ServerFields) -> Result<ReadyRow, ApiError> {
    let mut wrong = fields.missing();
    let serial = match fields.serial.as_deref().map(str::parse::<Serial>) {
        Some(Ok(serial)) => Some(serial),
        Some(Err(why)) => {
            wrong.push(Detail::new("/serial", Rule::Pattern, why.to_string()));
            None
        }
        None => None,
    };
    let Some(serial) = serial.filter(|_| wrong.is_empty()) else { return Err(ApiError::invalid(wrong)) };
    let password = fields.password();
    let mut server = Server::unknown(serial, api.now());
    fields.apply(api, &mut server)?;
    Ok(ReadyRow { server, password })
}

/// Registers the rows of one chunk, or sees what a registration would do.
async fn register(
    api: &Api,
    by: &str,
    dry_run: bool,
    chunk: Vec<(usize, Option<String>, Result<ReadyRow, ApiError>)>,
) -> Result<Vec<RowView>, ApiError> {
    let servers = || chunk.iter().filter_map(|(_, _, row)| row.as_ref().ok()).map(|row| &row.server);
    let mut changes = if dry_run {
        let registered =
            api.store().servers_of(servers().map(|server| server.serial.clone()).collect()).await?;
        let change = |server: &Server| match registered.get(&server.serial) {
            Some(existing) => ServerChange::Exists(Box::new(existing.clone())),
            None => ServerChange::Created(Box::new(server.clone())),
        };
        servers().map(change).collect::<Vec<_>>()
    } else {
        let event = |server: &Server| {
            NewEvent::info("server.created", format!("server {} registered", server.serial)).by(by)
        };
        api.store().create_servers(servers().map(|server| (server.clone(), event(server))).collect()).await?
    }
    .into_iter();
    let mut rows = Vec::with_capacity(chunk.len());
    for (index, serial, row) in &chunk {
        let result = match row {
            Err(why) => Err(why.body()),
            Ok(row) => match changes.next() {
                Some(ServerChange::Created(_)) => Ok(RowResult::Created),
                Some(ServerChange::Exists(existing))
                    if same(api, &existing, &row.server, row.password.as_ref()) =>
                {
                    Ok(RowResult::Exists)
                }
                Some(ServerChange::Exists(existing)) => Err(differs(&existing, &row.server).body()),
                None => Err(ApiError::new(ErrorCode::Internal, "see the log").body()),
            },
        };
        let (result, error) = match result {
            Ok(result) => (result, None),
            Err(error) => (RowResult::Refused, Some(error)),
        };
        rows.push(RowView { index: *index, serial: serial.clone(), result, error });
    }
    Ok(rows)
}

/// The refusal of a row whose server is registered with other values.
fn differs(existing: &Server, new: &Server) -> ApiError {
    let labels = |server: &Server| {
        let labels: Vec<String> = server.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if labels.is_empty() { "none".to_owned() } else { labels.join(" ") }
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let with_values = [
        ("bmc_address", existing.bmc_address.to_string(), new.bmc_address.to_string()),
        ("bmc_username", existing.bmc_username.clone(), new.bmc_username.clone()),
        ("vendor", text(&existing.vendor), text(&new.vendor)),
        ("bmc_profile", text(&existing.bmc_profile), text(&new.bmc_profile)),
        ("labels", labels(existing), labels(new)),
        ("media_base_url", text(&existing.media_base_url), text(&new.media_base_url)),
    ];
    let by_name = [
        ("quirks", existing.quirks != new.quirks),
        ("network", existing.network != new.network),
        ("tls", existing.tls != new.tls),
        ("tls_fingerprint", new.tls_fingerprint.is_some() && existing.tls_fingerprint != new.tls_fingerprint),
        ("allow_unverified_serial", existing.allow_unverified_serial != new.allow_unverified_serial),
    ];
    let mut names: Vec<String> = with_values
        .into_iter()
        .filter(|(_, registered, given)| registered != given)
        .map(|(name, registered, given)| format!("{name} ({registered}; the row has {given})"))
        .chain(by_name.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned()))
        .collect();
    if names.is_empty() {
        names.push("bmc_password".to_owned());
    }
    let message = format!(
        "server {0} is registered with another {1}; it is left as it is. `shoal server update {0}` changes it",
        existing.serial,
        names.join(", ")
    );
    ApiError::new(ErrorCode::ConflictServer, message)
}
