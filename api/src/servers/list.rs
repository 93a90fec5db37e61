//! `GET /api/v1/servers`.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::Rule;
use super::super::extract::{CanRead, Parameters, page_size};
use super::super::filters;
use super::view::{ServerPage, ServerView};
use model::Subject;
use store::{Present, ServerFilter};

/// Lists servers in pages, ordered by serial number; `next` is the cursor of the following page.
pub(crate) async fn list(
    State(api): State<Api>,
    CanRead(visible): CanRead,
    Parameters(query): Parameters<Vec<(String, String)>>,
) -> Result<Json<ServerPage>, ApiError> {
    let filter = server_filter(&query, filters::present(&api))?;
    let limit = filter.limit;
    let filter = ServerFilter { labels: visible.0, limit: limit + 1, ..filter };
    let mut servers = api.store().filtered_servers(filter).await?;
    let more = servers.len() > limit as usize;
    servers.truncate(limit as usize);
    let next = servers.last().filter(|_| more).map(|server| server.serial.clone());
    Ok(Json(ServerPage { servers: servers.iter().map(ServerView::of).collect(), next }))
}

/// The filter of the query of a list of servers.
///
/// # Errors
/// 400 with every refused parameter.
pub(crate) fn server_filter(query: &[(String, String)], present: Present) -> Result<ServerFilter, ApiError> {
    let (filter, others) = filters::of_query(Subject::Servers, query, present).map_err(ApiError::invalid)?;
    let limit = others.iter().find(|(name, _)| *name == "limit").map(|(_, value)| *value);
    let limit = page_size(limit, 100, 1000)?;
    let mut found = ServerFilter { filter, limit, present: Some(present), ..ServerFilter::default() };
    for (name, value) in others {
        match name {
            "cursor" => {
                let refused = || Detail::new("cursor", Rule::Value, "not a cursor of a list of servers");
                found.after = Some(value.parse().map_err(|_| ApiError::invalid(vec![refused()]))?);
            }
            "limit" => {}
            _ => {
                let detail = Detail::new(name, Rule::Unknown, "not a parameter of a list of servers");
                return Err(ApiError::invalid(vec![detail]));
            }
        }
    }
    Ok(found)
}
