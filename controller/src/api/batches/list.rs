//! `GET /api/v1/batches`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Query, State};
use serde_json::{Value, json};

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, page_size};
use super::view;

/// Lists the newest batches.
pub(in crate::api) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 20, 100)?;
    let mut rows = Vec::new();
    for batch in api.store().batches(limit).await? {
        rows.push(view::batch(&batch, &api.store().batch_counts(batch.id).await?));
    }
    Ok(Json(json!({ "batches": rows, "next": null })))
}
