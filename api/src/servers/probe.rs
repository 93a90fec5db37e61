//! `GET` and `POST /api/v1/servers/{serial}/probe`: the capability card of a BMC; a probe changes nothing on the BMC.
//! The card is kept for `…/card`. The certificate it met is pinned if none is registered.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanWrite, Parameters, SerialPath, unknown_server};
use super::bmc_error;

/// The query of a probe request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProbeQuery {
    /// Also returns the redacted resources.
    capture: bool,
}

/// Probes the BMC of a registered server.
pub(crate) async fn probe(
    State(api): State<Api>,
    _writer: CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<ProbeQuery>,
) -> Result<Json<Value>, ApiError> {
    let server = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    let probed = api
        .services
        .bmc
        .probe(&server, query.capture, api.now())
        .await
        .map_err(|why| bmc_error::error(&why))?;
    if let Some(fingerprint) = probed.met {
        api.store().pin_server(&serial, server.revision, fingerprint).await?;
    }
    api.store().keep_card(&serial, server.revision, &probed.card, api.now()).await?;
    let mut card = probed.card;
    if let Some(capture) = probed.capture {
        card["capture"] = capture;
    }
    Ok(Json(card))
}
