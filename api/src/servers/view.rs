//! The JSON of a server, without the password.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::super::openapi::types;
use model::{GateClosure, PendingCleanup, Restoration, Serial, Server, Time, TlsMode};

/// A registered server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Server")]
pub(crate) struct ServerView {
    /// The id of the record, a UUID.
    #[schemars(with = "String", extend("format" = "uuid"))]
    id: Uuid,
    #[schemars(with = "types::SerialNumber")]
    serial: Serial,
    /// The URL of the BMC.
    bmc_address: String,
    bmc_username: String,
    /// The vendor, as the operator gave it.
    vendor: Option<String>,
    /// The profile that the operator has chosen; null means that the BMC determines it.
    bmc_profile: Option<String>,
    /// The flags of the profile that the operator has overridden.
    #[schemars(with = "Option<types::Object>")]
    quirks: Option<Map<String, Value>>,
    /// The network of the machine, for jobs whose recipe has none.
    #[schemars(with = "Option<types::Object>")]
    network: Option<Map<String, Value>>,
    labels: BTreeMap<String, String>,
    #[schemars(with = "types::TlsMode")]
    tls: TlsMode,
    /// The fingerprint of the accepted certificate.
    tls_fingerprint: Option<String>,
    /// Whether a BMC that shows no serial number is accepted.
    allow_unverified_serial: bool,
    /// The URL under which the BMC reads media, if it differs from the default.
    media_base_url: Option<String>,
    /// The revision; it is the `ETag` too.
    revision: i64,
    #[schemars(with = "types::Timestamp")]
    created_at: Time,
    #[schemars(with = "types::Timestamp")]
    updated_at: Time,
    /// When the BMC responded last.
    #[schemars(with = "Option<types::Timestamp>")]
    last_seen: Option<Time>,
    /// What the last discovery observed; `update` is an update of firmware that a job has left to the BMC.
    #[schemars(with = "Option<types::Object>")]
    observed: Option<Value>,
    /// What jobs have learned about the BMC.
    #[schemars(with = "Option<types::Object>")]
    learned: Option<Value>,
    /// The cleanup that the last job could not do; the next job does it.
    #[schemars(with = "Option<types::PendingCleanup>")]
    pending_cleanup: Option<PendingCleanup>,
    /// The maintenance during which no job starts on the server.
    #[schemars(with = "Option<types::GateClosure>")]
    maintenance: Option<GateClosure>,
    /// Why nothing is done to the server: its data was restored, and no operator has released it.
    #[schemars(with = "Option<types::Restoration>")]
    restored: Option<Restoration>,
}

/// One page of servers.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ServerPage")]
pub(crate) struct ServerPage {
    pub(super) servers: Vec<ServerView>,
    /// The cursor of the following page; null on the last one.
    #[schemars(with = "Option<types::SerialNumber>")]
    pub(super) next: Option<Serial>,
}

impl ServerView {
    pub(super) fn of(server: &Server) -> Self {
        let server = server.clone();
        Self {
            id: server.id,
            serial: server.serial,
            bmc_address: server.bmc_address,
            bmc_username: server.bmc_username,
            vendor: server.vendor,
            bmc_profile: server.bmc_profile,
            quirks: server.quirks,
            network: server.network,
            labels: server.labels,
            tls: server.tls,
            tls_fingerprint: server.tls_fingerprint,
            allow_unverified_serial: server.allow_unverified_serial,
            media_base_url: server.media_base_url,
            revision: server.revision,
            created_at: server.created_at,
            updated_at: server.updated_at,
            last_seen: server.last_seen,
            observed: server.observed,
            learned: server.learned,
            pending_cleanup: server.pending_cleanup,
            maintenance: server.maintenance,
            restored: server.restored,
        }
    }
}

/// The `ETag` of a server: its revision.
pub(super) fn etag(server: &Server) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", server.revision)) {
        headers.insert(header::ETAG, tag);
    }
    headers
}
