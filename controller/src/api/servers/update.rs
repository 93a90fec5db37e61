//! `PATCH /api/v1/servers/{serial}`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{Body, SerialPath, Writer, unknown_server};
use super::change::Fields;
use super::view;
use engine::model::{JobStatus, NewEvent, Server};
use engine::store::UpdatedServer;

/// Changes what an operator may change of a server. `If-Match` with the `ETag` of GET guards against somebody else's change.
pub(in crate::api) async fn update(
    State(api): State<Api>,
    Writer(principal): Writer,
    SerialPath(serial): SerialPath,
    headers: HeaderMap,
    body: Body,
) -> Result<(HeaderMap, Json<Value>), ApiError> {
    let fields: Fields = body.read()?;
    if fields.serial.as_deref().is_some_and(|given| given != serial.as_str()) {
        return Err(ApiError::invalid(vec![Detail::new("/serial", "const", "a serial does not change")]));
    }
    let existing = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    if let Some(expected) = headers.get(header::IF_MATCH) {
        let current = format!("\"{}\"", existing.revision);
        if expected != "*" && expected.as_bytes() != current.as_bytes() {
            return Err(moved(&existing));
        }
    }
    let address = existing.bmc_address.clone();
    let given_fingerprint = existing.tls_fingerprint.clone();
    let mut server = existing;
    fields.apply(&mut server, &api.resolver)?;
    server.updated_at = api.now();
    let moves = server.bmc_address != address || server.tls_fingerprint != given_fingerprint;
    if moves
        && let Some(job) = api.store().newest_job(&serial).await?
        && job.status != JobStatus::Complete
    {
        return Err(ApiError::conflict(
            "conflict.active_job",
            format!("job {} works on server {serial}; its BMC cannot be exchanged meanwhile", job.run.id),
        ));
    }
    if server.bmc_address != address && server.tls_fingerprint == given_fingerprint {
        // Another address is another BMC: the certificate met at the old one says nothing about it.
        server.tls_fingerprint = None;
    }
    let event = NewEvent::info("server.updated", format!("server {serial} changed")).by(&principal.name);
    match api.store().update_server(server, event).await? {
        UpdatedServer::Updated(server) => Ok((view::etag(&server), Json(view::server(&server)))),
        UpdatedServer::Moved(server) => Err(moved(&server)),
        UpdatedServer::Unknown => Err(unknown_server(serial.as_str())),
    }
}

fn moved(server: &Server) -> ApiError {
    ApiError::new(
        StatusCode::PRECONDITION_FAILED,
        "precondition_failed",
        format!("server {} was changed meanwhile; get it again and repeat the change", server.serial),
    )
}
