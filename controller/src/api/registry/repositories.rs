//! `GET /api/v1/registry/repositories`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::CanRead;
use super::{RepositoryPage, registry_admin};

/// Lists the repositories with some of their tags.
pub(in crate::api) async fn list_repositories(
    State(api): State<Api>,
    _reader: CanRead,
) -> Result<Json<RepositoryPage>, ApiError> {
    Ok(Json(RepositoryPage { repositories: registry_admin(&api)?.repositories().await?, next: None }))
}
