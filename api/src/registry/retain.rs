//! `POST /api/v1/registry/retention?dry_run=`: removes the tags that `REGISTRY_RETENTION` does not keep.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanAdminister, Parameters};
use super::super::request_audit;
use super::{check_parameters, registry_admin, respond, switch};

/// Removes tags, or reports which would be removed.
pub(crate) async fn retain(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    check_parameters(&query, &["dry_run"])?;
    let dry_run = switch(&query, "dry_run")?.unwrap_or(false);
    if dry_run {
        request_audit::changes_nothing();
    }
    Ok(respond(registry_admin(&api)?.retain(dry_run, &principal.name).await?))
}
