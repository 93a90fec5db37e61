//! `GET /api/v1/registry/repositories` and `GET /api/v1/registry/repositories/{name}`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::super::extract::{CanRead, Parameters, TextPath, page_size};
use super::{RepositoryDetailView, RepositoryPage, registry_admin};

/// Lists the repositories with some of their tags.
pub(crate) async fn list_repositories(
    State(api): State<Api>,
    _reader: CanRead,
) -> Result<Json<RepositoryPage>, ApiError> {
    Ok(Json(RepositoryPage { repositories: registry_admin(&api)?.repositories().await?, next: None }))
}

/// Shows a repository with a page of its tags.
pub(crate) async fn show_repository(
    State(api): State<Api>,
    _reader: CanRead,
    TextPath(name): TextPath,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<RepositoryDetailView>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 50, 100)?;
    let after = query.get("cursor").cloned();
    let found = registry_admin(&api)?.repository(&name, after, limit as usize).await?;
    found.map(Json).ok_or_else(|| {
        let message = "no repository has this name";
        ApiError::new(ErrorCode::UnknownRepository, message)
    })
}
