//! `GET /api/v1/servers`.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::view::{ServerPage, ServerView};

/// Lists servers in pages, ordered by serial number; `next` is the cursor of the following page.
pub(in crate::api) async fn list(
    State(api): State<Api>,
    CanRead(visible): CanRead,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<ServerPage>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 100, 1000)?;
    let after = query.get("cursor").map(|cursor| cursor.parse()).transpose().map_err(|_| {
        ApiError::invalid(vec![Detail::new("cursor", Rule::Value, "not a cursor of a list of servers")])
    })?;
    let mut servers = api.store().servers_with_labels(after, visible.0, limit + 1).await?;
    let more = servers.len() > limit as usize;
    servers.truncate(limit as usize);
    let next = servers.last().filter(|_| more).map(|server| server.serial.clone());
    Ok(Json(ServerPage { servers: servers.iter().map(ServerView::of).collect(), next }))
}
