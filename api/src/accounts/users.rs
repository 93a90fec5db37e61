//! `/api/v1/users`: the users of the controller.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, JsonBody};
use super::super::request_audit;
use super::{NamePath, accounts};
use access::accounts::{ChangedUser, NewUser, UserView};

/// All users.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UserPage")]
pub(crate) struct UserPage {
    users: Vec<UserView>,
    /// Always null: all users are in one page.
    next: Option<String>,
}

/// `GET /api/v1/users`.
pub(crate) async fn list(State(api): State<Api>, _admin: CanAdminister) -> Result<Json<UserPage>, ApiError> {
    Ok(Json(UserPage { users: accounts(&api).users().await?, next: None }))
}

/// `GET /api/v1/users/{name}`.
pub(crate) async fn show(
    State(api): State<Api>,
    _admin: CanAdminister,
    NamePath(name): NamePath,
) -> Result<Json<UserView>, ApiError> {
    Ok(Json(accounts(&api).user(&name).await?))
}

/// `POST /api/v1/users`.
pub(crate) async fn create(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    body: JsonBody,
) -> Result<(StatusCode, Json<UserView>), ApiError> {
    let new: NewUser = body.read()?;
    request_audit::target("user", &new.name);
    let user = accounts(&api).create_user(new, &principal.name, api.now()).await?;
    Ok((StatusCode::CREATED, Json(user)))
}

/// `PATCH /api/v1/users/{name}`: role, password or state. It takes effect with the next request of the user.
pub(crate) async fn update(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
    body: JsonBody,
) -> Result<Json<UserView>, ApiError> {
    let change: ChangedUser = body.read()?;
    Ok(Json(accounts(&api).change_user(&name, change, &principal.name, api.now()).await?))
}

/// `POST /api/v1/users/{name}/confirm`: a user of restored data can log in again, with the next request.
pub(crate) async fn confirm(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
) -> Result<Json<UserView>, ApiError> {
    Ok(Json(accounts(&api).confirm_user(&name, &principal.name, api.now()).await?))
}

/// `DELETE /api/v1/users/{name}`.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    NamePath(name): NamePath,
) -> Result<StatusCode, ApiError> {
    accounts(&api).remove_user(&name, &principal.name, api.now()).await?;
    Ok(StatusCode::NO_CONTENT)
}
