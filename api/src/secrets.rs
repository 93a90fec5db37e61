//! `/api/v1/secrets`: the keys of the controller and their rotation. No response contains a key.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Api;
use super::error::ApiError;
use super::error_code::ErrorCode;
use super::extract::{CanAdminister, JsonBody, TextPath};
use keys::{RotateError, RotationState, RotationView, SecretName, SecretView};
use model::NewEvent;

/// Every key that is in use, without a value.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SecretPage")]
pub(super) struct SecretPage {
    secrets: Vec<SecretView>,
    /// Always null: all keys are in one page.
    next: Option<String>,
}

/// A rotation of a key.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RotateSecret")]
#[serde(deny_unknown_fields)]
pub(super) struct RotateSecret {
    /// The id of the version to leave, as the list shows it. A repeated request with it continues the rotation and never begins
    /// another one.
    #[schemars(length(max = 64))]
    from: String,
}

/// `GET /api/v1/secrets`.
pub(super) async fn list(
    State(api): State<Api>,
    _admin: CanAdminister,
) -> Result<Json<SecretPage>, ApiError> {
    Ok(Json(SecretPage { secrets: api.keys.list(api.tls.as_deref())?, next: None }))
}

/// `POST /api/v1/secrets/{name}/rotate`: begins or continues a rotation. The request does about a second of work; the client repeats
/// it while the state is `sealing`.
pub(super) async fn rotate(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    TextPath(name): TextPath,
    body: JsonBody,
) -> Result<Json<RotationView>, ApiError> {
    let name: SecretName = name.parse().map_err(|()| {
        ApiError::new(ErrorCode::UnknownSecret, "no key has this name; `shoal secret list` shows the names")
    })?;
    let RotateSecret { from } = body.read()?;
    let (store, now) = (api.store().clone(), api.now());
    // A request that is abandoned continues: it would leave a rotation between two effects otherwise.
    let work = tokio::spawn(async move {
        let rotated = api.keys.rotate(name, &from, api.store(), api.tls.as_ref(), api.now()).await;
        if name == SecretName::Report {
            (api.renew_report_secrets)();
        }
        rotated
    });
    let rotated = work.await.map_err(|_panic| ApiError::from(RotateError::Busy))??;
    tracing::info!(
        by = principal.name,
        key = name.as_str(),
        from = rotated.from,
        to = rotated.key_id,
        state = ?rotated.state,
        "a key is rotated"
    );
    if rotated.state != RotationState::Sealing {
        let event = NewEvent::info(
            "secret.rotated",
            format!("the key {} was rotated by {}", name.as_str(), principal.name),
        )
        .by(&principal.name)
        .with(json!({ "name": name.as_str(), "from": rotated.from, "to": rotated.key_id }));
        store.append(None, None, vec![event], now).await?;
    }
    Ok(Json(rotated))
}
