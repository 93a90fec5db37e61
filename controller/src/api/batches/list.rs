//! `GET /api/v1/batches`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::extract::{CanRead, Parameters, page_size};
use super::view::{BatchPage, BatchView};

/// Lists the newest batches.
pub(in crate::api) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<BatchPage>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 20, 100)?;
    let mut rows = Vec::new();
    for batch in api.store().batches(limit).await? {
        rows.push(BatchView::of(&batch, &api.store().batch_counts(batch.id).await?));
    }
    Ok(Json(BatchPage { batches: rows, next: None }))
}
