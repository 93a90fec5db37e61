//! The JSON of a server, without the password.

use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};

use engine::model::Server;

/// The JSON of a server.
pub(super) fn server(server: &Server) -> Value {
    json!({
        "id": server.id,
        "serial": server.serial,
        "bmc_address": server.bmc_address,
        "bmc_username": server.bmc_username,
        "vendor": server.vendor,
        "bmc_profile": server.bmc_profile,
        "quirks": server.quirks,
        "labels": server.labels,
        "tls": server.tls,
        "tls_fingerprint": server.tls_fingerprint,
        "allow_unverified_serial": server.allow_unverified_serial,
        "media_base_url": server.media_base_url,
        "revision": server.revision,
        "created_at": server.created_at,
        "updated_at": server.updated_at,
        "last_seen": server.last_seen,
        "observed": server.observed,
        "learned": server.learned,
        "pending_cleanup": server.pending_cleanup,
        "maintenance": server.maintenance,
    })
}

/// The `ETag` of a server: its revision.
pub(super) fn etag(server: &Server) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", server.revision)) {
        headers.insert(header::ETAG, tag);
    }
    headers
}
