//! `/api/v1/tokens`: the API tokens of the controller. The text of a token is in the response to its creation or rotation
//! and nowhere else.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, JsonBody, OptionalJsonBody};
use super::super::openapi::types;
use super::super::request_audit;
use super::{NamePath, accounts};
use access::accounts::{NewToken, TokenView};
use model::Time;
use secrecy::SecretString;

/// All API tokens.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApiTokenPage")]
pub(crate) struct TokenPage {
    tokens: Vec<TokenView>,
    /// Always null: all tokens are in one page.
    next: Option<String>,
}

/// An API token with its text.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "IssuedApiToken")]
pub(crate) struct IssuedToken {
    #[serde(flatten)]
    view: TokenView,
    /// The text of the token. It is stored as a hash and not shown again.
    token: String,
}

impl IssuedToken {
    fn of((view, text): (TokenView, SecretString)) -> Self {
        Self { view, token: text.expose_secret().to_owned() }
    }
}

/// A rotation of an API token.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RotateApiToken")]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// When the token expires from now on; absent or null: as before.
    #[serde(default)]
    #[schemars(with = "Option<types::Timestamp>")]
    expires_at: Option<Time>,
}

/// `GET /api/v1/tokens`.
pub(crate) async fn list(State(api): State<Api>, _admin: CanAdminister) -> Result<Json<TokenPage>, ApiError> {
    Ok(Json(TokenPage { tokens: accounts(&api).tokens().await?, next: None }))
}

/// `GET /api/v1/tokens/{name}`.
pub(crate) async fn show(
    State(api): State<Api>,
    _admin: CanAdminister,
    NamePath(name): NamePath,
) -> Result<Json<TokenView>, ApiError> {
    Ok(Json(accounts(&api).token(&name).await?))
}

/// `POST /api/v1/tokens`.
pub(crate) async fn create(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    body: JsonBody,
) -> Result<(StatusCode, Json<IssuedToken>), ApiError> {
    let new: NewToken = body.read()?;
    request_audit::target("token", &new.name);
    let issued = accounts(&api).create_token(new, &principal.name, api.now()).await?;
    Ok((StatusCode::CREATED, Json(IssuedToken::of(issued))))
}

/// `POST /api/v1/tokens/{name}/rotate`: another text for the token. The former one is refused with the next request.
pub(crate) async fn rotate(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Json<IssuedToken>, ApiError> {
    let Rotation { expires_at } = body.read()?;
    let issued = accounts(&api).rotate_token(&name, expires_at, &principal.name, api.now()).await;
    // Also after an error: a write whose result was lost may have been stored.
    api.auth.tokens_changed();
    Ok(Json(IssuedToken::of(issued?)))
}

/// `POST /api/v1/tokens/{name}/confirm`: a token of restored data is accepted again, with the next request.
pub(crate) async fn confirm(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
) -> Result<Json<TokenView>, ApiError> {
    let confirmed = accounts(&api).confirm_token(&name, &principal.name, api.now()).await;
    api.auth.tokens_changed();
    confirmed.map(Json).map_err(ApiError::from)
}

/// `DELETE /api/v1/tokens/{name}`: the token is refused with the next request.
pub(crate) async fn revoke(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
) -> Result<StatusCode, ApiError> {
    let revoked = accounts(&api).revoke_token(&name, &principal.name, api.now()).await;
    api.auth.tokens_changed();
    revoked.map(|_token| StatusCode::NO_CONTENT).map_err(ApiError::from)
}
