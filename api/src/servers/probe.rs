//! `GET` and `POST /api/v1/servers/{serial}/probe`: the capability card of a BMC; neither changes anything on the BMC.
//!
//! ```text
//!  GET   reads and shows the card; nothing is stored
//!  POST  in the audit log: the card is kept for `…/card`, and the certificate it met is pinned if none is registered
//! ```
//!
//! Invariant: only a request that the audit log has changes which certificate of a BMC is trusted.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, Parameters, SerialPath, unknown_server};
use super::bmc_error;
use bmc::probe::ProbeResult;
use model::{Serial, Server};

/// The query of a probe request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProbeQuery {
    /// Also returns the redacted resources.
    capture: bool,
}

/// Shows what the BMC of a registered server is and can do.
pub(crate) async fn look(
    State(api): State<Api>,
    _operator: CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<ProbeQuery>,
) -> Result<Json<Value>, ApiError> {
    let (_server, probed) = read(&api, &serial, &query).await?;
    Ok(shown(probed))
}

/// Probes the BMC of a registered server, and keeps what was found.
pub(crate) async fn probe(
    State(api): State<Api>,
    _writer: CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<ProbeQuery>,
) -> Result<Json<Value>, ApiError> {
    let (server, mut probed) = read(&api, &serial, &query).await?;
    if let Some(fingerprint) = probed.met.take() {
        api.store().pin_server(&serial, server.revision, fingerprint).await?;
    }
    api.store().keep_card(&serial, server.revision, &probed.card, api.now()).await?;
    Ok(shown(probed))
}

async fn read(api: &Api, serial: &Serial, query: &ProbeQuery) -> Result<(Server, ProbeResult), ApiError> {
    let server = api.store().server(serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let probed = api.services.bmc.probe(&server, query.capture, api.now()).await;
    Ok((server, probed.map_err(|why| bmc_error::error(&why))?))
}

fn shown(probed: ProbeResult) -> Json<Value> {
    let mut card = probed.card;
    if let Some(capture) = probed.capture {
        card["capture"] = capture;
    }
    Json(card)
}
