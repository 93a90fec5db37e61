//! `POST /api/v1/servers/{serial}/condition`: requests an action for a server.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanPreview, JsonBody, SerialPath, unknown_job};
use super::super::jobs::order::idempotency_key;
use super::super::request_audit;
use super::super::servers::release;
use super::request::{NewCondition, refused};
use super::view::ConditionView;
use super::{dry_run, newest, server_of};
use model::{Job, RunId, Serial};
use store::{Created, Creation};
use telemetry::request_span;
use upkeep::ConditionKind;

/// Creates a condition. The response is sent after the condition is stored.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: CanPreview,
    SerialPath(name): SerialPath,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let body: NewCondition = body.read()?;
    let server = server_of(&api, &name).await?;
    request_span::of_server(Some(&server.serial));
    request_audit::target("server", server.serial.as_str());
    let revision = expected_revision(&headers, body.revision)?;
    let asked = body.checked(idempotency_key(&headers)?)?;
    let kind = asked.kind;
    let before = newest(&api, &server.serial, kind).await?;
    let name = &caller.principal.name;
    if caller.dry_run {
        request_audit::changes_nothing();
        if kind == ConditionKind::BiosApply {
            caller.may_operate()?;
        }
        let request = asked.order(&api, &server).await?;
        return dry_run::respond(&api, name, server, request, before).await;
    }
    let id = RunId(api.engine.id_source().new_id(api.now()));
    let created = match api.store().earlier(&server.serial, asked.idempotency.as_ref()).await? {
        Some(earlier) => earlier,
        // The run would not be claimed before the release.
        None if server.restored.is_some() => return Err(release::not_released(&server.serial)),
        None => {
            let order = asked.order(&api, &server).await?.order;
            expect_revision(&server.serial, kind, before.as_ref(), revision)?;
            let run = order.run(id, name, api.now());
            api.engine.create(Creation { run }).await?
        }
    };
    let server = server.serial;
    let id = match created {
        Created::New(_) => {
            request_audit::target("server", &format!("{server}/job/{id}"));
            request_span::of_job(id, api.engine.owner());
            id
        }
        Created::Replay(earlier) => earlier,
        other => return Err(refused(&server, kind, &other)),
    };
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let view = ConditionView::of(&api, &server, &job).await?;
    Ok((view.etag(), Json(view)).into_response())
}

/// The revision that the client has seen, from the body or from `If-Match`.
fn expected_revision(headers: &HeaderMap, body: Option<i64>) -> Result<Option<i64>, ApiError> {
    let Some(header) = headers.get(header::IF_MATCH) else { return Ok(body) };
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(body);
    }
    match text.trim_matches('"').parse() {
        Ok(revision) if body.is_none_or(|body| body == revision) => Ok(Some(revision)),
        _ => {
            let message = "If-Match is the ETag of one condition, and equal to the revision in the body";
            Err(ApiError::invalid(vec![Detail::new("If-Match", Rule::Value, message)]))
        }
    }
}

/// Refuses a request whose client has seen another condition than the newest one.
fn expect_revision(
    server: &Serial,
    kind: ConditionKind,
    newest: Option<&Job>,
    expected: Option<i64>,
) -> Result<(), ApiError> {
    let current = newest.map_or(0, |job| job.run.revision);
    match expected {
        Some(expected) if expected != current => Err(ApiError::new(
            ErrorCode::ConflictRevision,
            format!(
                "the condition {kind} of server {server} is at revision {current}, not {expected}: read it again, then decide"
            ),
        )),
        _ => Ok(()),
    }
}
