//! `POST /api/v1/registry/gc?dry_run=&untagged=&grace=`: collects garbage, beside everything else.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use serde_json::Value;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::Writer;
use super::{Collect, answer, care, only, switch};

/// Removes what no tag, no job and no pin needs, or says what would go.
pub(in crate::api) async fn collect(
    State(api): State<Api>,
    Writer(principal): Writer,
    Query(query): Query<HashMap<String, String>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    only(&query, &["dry_run", "untagged", "grace"])?;
    let order = Collect {
        dry_run: switch(&query, "dry_run")?.unwrap_or(false),
        untagged: switch(&query, "untagged")?,
        grace: query.get("grace").map(|seconds| grace(seconds)).transpose()?,
    };
    Ok(answer(care(&api)?.collect(order, &principal.name).await?))
}

fn grace(text: &str) -> Result<Duration, ApiError> {
    let seconds: u32 = text.parse().map_err(|_| {
        ApiError::invalid(vec![Detail::new("grace", "type", "give a whole number of seconds")])
    })?;
    Ok(Duration::from_secs(seconds.into()))
}
