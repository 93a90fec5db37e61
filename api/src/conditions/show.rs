//! `GET /api/v1/servers/{serial}/condition?kind=K` and `GET /api/v1/servers/{serial}/conditions`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanRead, Parameters, SerialPath};
use super::view::{ConditionList, ConditionView};
use super::{kind_of, newest, server_of};
use upkeep::ConditionKind;

/// The query of a read of one condition.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ShowQuery {
    /// The kind, in one of its spellings.
    kind: Option<String>,
}

/// Shows the newest condition of a kind.
pub(crate) async fn show(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(name): SerialPath,
    Parameters(query): Parameters<ShowQuery>,
) -> Result<Response, ApiError> {
    let Some(kind) = query.kind else {
        let message = "kind is required; /conditions lists the newest condition of every kind";
        return Err(ApiError::invalid(vec![Detail::new("kind", Rule::Required, message)]));
    };
    let kind = kind_of("kind", &kind)?;
    let server = server_of(&api, &name).await?.serial;
    let job = newest(&api, &server, kind).await?.ok_or_else(|| {
        ApiError::new(ErrorCode::UnknownCondition, format!("server {server} never had a condition {kind}"))
    })?;
    let view = ConditionView::of(&api, &server, &job).await?;
    Ok((view.etag(), Json(view)).into_response())
}

/// Lists the newest condition of every kind, the open ones first.
pub(crate) async fn list(
    State(api): State<Api>,
    _reader: CanRead,
    SerialPath(name): SerialPath,
) -> Result<Json<ConditionList>, ApiError> {
    let server = server_of(&api, &name).await?.serial;
    let mut conditions = Vec::new();
    for kind in ConditionKind::all() {
        if let Some(job) = newest(&api, &server, *kind).await? {
            conditions.push(ConditionView::of(&api, &server, &job).await?);
        }
    }
    conditions.sort_by_key(|condition| condition.order());
    Ok(Json(ConditionList { server_serial: server, conditions }))
}
