//! `POST /api/v1/registry/gc?dry_run=&untagged=&grace=`: collects garbage while the registry serves requests.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanAdminister, Parameters};
use super::super::request_audit;
use super::{GcRequest, check_parameters, registry_admin, respond, switch};

/// Removes content that no tag, manifest or pin needs, or reports what would be removed.
pub(crate) async fn collect(
    State(api): State<Api>,
    CanAdminister(principal): CanAdminister,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    check_parameters(&query, &["dry_run", "untagged", "grace"])?;
    let order = GcRequest {
        dry_run: switch(&query, "dry_run")?.unwrap_or(false),
        untagged: switch(&query, "untagged")?,
        grace: query.get("grace").map(|seconds| grace(seconds)).transpose()?,
    };
    if order.dry_run {
        request_audit::changes_nothing();
    }
    Ok(respond(registry_admin(&api)?.collect(order, &principal.name).await?))
}

fn grace(text: &str) -> Result<Duration, ApiError> {
    let seconds: u32 = text.parse().map_err(|_| {
        ApiError::invalid(vec![Detail::new("grace", Rule::Type, "grace is a whole number of seconds")])
    })?;
    Ok(Duration::from_secs(seconds.into()))
}
