//! `/api/v1/me`: the caller's own login.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{JsonBody, OwnAccount, peer};
use super::super::request_audit;
use super::accounts;
use access::accounts::AccountError;
use access::auth::{AuthMethod, MAX_PASSWORD_BYTES, MIN_PASSWORD_BYTES};

/// Who the caller is, and what the caller may do.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Me")]
pub(crate) struct Me {
    /// The name, which events show as their actor.
    name: String,
    /// How the caller logged in: `password`, `token`, `jwt`, `session`, or `none` without authentication.
    login: &'static str,
    /// What the caller may do.
    role: Option<String>,
    /// The labels of the servers that the caller may see; empty for all servers.
    labels: BTreeMap<String, String>,
    /// The registry scopes of the caller's token.
    registry: Vec<String>,
}

/// A new password of the caller.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewPassword")]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    /// The new password.
    #[schemars(with = "String", length(min = MIN_PASSWORD_BYTES, max = MAX_PASSWORD_BYTES))]
    password: SecretString,
}

/// `GET /api/v1/me`.
pub(crate) async fn show(OwnAccount(principal): OwnAccount) -> Json<Me> {
    let registry = principal.rights.limits().map(|limits| &limits.registry);
    Json(Me {
        login: match principal.method {
            AuthMethod::Open => "none",
            AuthMethod::Password => "password",
            AuthMethod::ApiToken { .. } => "token",
            AuthMethod::Jwt => "jwt",
            AuthMethod::Session { .. } => "session",
            AuthMethod::Job { .. } => "job",
        },
        role: principal.rights.role().map(|role| role.to_string()),
        labels: principal.servers().0,
        registry: registry.into_iter().flatten().map(ToString::to_string).collect(),
        name: principal.name,
    })
}

/// `POST /api/v1/me/password`: another password of the user who sends the present one with the request.
pub(crate) async fn set_password(
    State(api): State<Api>,
    OwnAccount(principal): OwnAccount,
    caller: Parts,
    body: JsonBody,
) -> Result<StatusCode, ApiError> {
    let NewPassword { password } = body.read()?;
    request_audit::target("user", &principal.name);
    let configured = api.auth.logins().configured_user.as_deref() == Some(principal.name.as_str());
    if principal.method != AuthMethod::Password || configured {
        return Err(AccountError::NoPassword(principal.name).into());
    }
    // The body may have come long after the credentials were checked, and an administrator may have changed the password since.
    let former = accounts(&api).password_now(&principal.name).await?;
    let authorization = caller.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let principal = api.auth.authenticate(authorization, peer(&caller), api.now().timestamp()).await?;
    accounts(&api).change_own_password(&principal.name, password, former, api.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
