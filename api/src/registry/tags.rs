//! `DELETE /api/v1/registry/repositories/{name}/tags/{tag}?digest=`: deletes a tag. Its manifest stays under its digest.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::StatusCode;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, Parameters, TextPair};
use super::super::request_audit;
use super::{TagToDelete, check_parameters, registry_admin};

/// Deletes a tag; with `digest`, only while the tag names this manifest.
pub(crate) async fn delete(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    TextPair(repository, tag): TextPair,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<StatusCode, ApiError> {
    check_parameters(&query, &["digest"])?;
    request_audit::target("repository", &format!("{repository}:{tag}"));
    let gone =
        TagToDelete { repository: &repository, tag: &tag, digest: query.get("digest").map(String::as_str) };
    registry_admin(&api)?.delete_tag(gone, &principal.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
