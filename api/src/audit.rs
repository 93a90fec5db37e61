//! `GET /api/v1/audit`: the audit log, the newest entry first.

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::extract::{CanAdminister, Parameters, page_size};
use super::openapi::types;
use model::audit::AuditEntry;
use store::AuditFilter;

/// The longest text of a filter.
const MAX_TEXT: usize = 256;

/// One page of the audit log.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AuditPage")]
pub(super) struct AuditPage {
    #[schemars(with = "Vec<types::AuditEntry>")]
    entries: Vec<AuditEntry>,
    /// The newest entry of the whole log as `SEQ:HASH`. Keep it elsewhere: `shoal audit verify --head` notices with it that
    /// the end of the log was cut off.
    head: String,
    /// The `cursor` of the next page; null on the last one.
    next: Option<String>,
}

/// `GET /api/v1/audit`.
pub(super) async fn list(
    State(api): State<Api>,
    _admin: CanAdminister,
    Parameters(query): Parameters<HashMap<String, String>>,
) -> Result<Json<AuditPage>, ApiError> {
    let limit = page_size(query.get("limit").map(String::as_str), 100, 1000)?;
    let text = |name: &str| match query.get(name) {
        Some(text) if text.is_empty() || text.len() > MAX_TEXT => {
            let message = format!("{name} has 1 to {MAX_TEXT} bytes");
            Err(ApiError::invalid(vec![Detail::new(name, Rule::Length, message)]))
        }
        text => Ok(text.cloned()),
    };
    let since = query.get("since").map(|text| text.parse()).transpose().map_err(|_| {
        let message = "since is a time such as 2026-11-23T08:00:00Z";
        ApiError::invalid(vec![Detail::new("since", Rule::Format, message)])
    })?;
    let before = query.get("cursor").map(|text| text.parse()).transpose().map_err(|_| {
        ApiError::invalid(vec![Detail::new("cursor", Rule::Format, "cursor is the field next of a page")])
    })?;
    let filter = AuditFilter {
        actor: text("actor")?,
        action: text("action")?,
        target: text("target")?,
        since,
        before,
        limit,
    };
    let head = api.store().audit_head().await?.to_string();
    let entries = api.store().audit(filter).await?;
    let full = entries.len() == limit as usize;
    let next = entries.last().filter(|_| full).map(|entry| entry.seq.to_string());
    Ok(Json(AuditPage { entries, head, next }))
}
