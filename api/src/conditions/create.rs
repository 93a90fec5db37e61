//! `POST /api/v1/servers/{serial}/condition`: requests an action for a server.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody, Parameters, SerialPath, unknown_job};
use super::super::jobs::order::idempotency_key;
use super::super::openapi::types;
use super::super::request_audit;
use super::super::servers::release;
use super::request::{Request, refused};
use super::view::ConditionView;
use super::{dry_run, firmware, kind_of, newest, server_of};
use model::{Idempotency, Job, RunId, Serial, Server, Time};
use store::{Created, Creation};
use telemetry::request_span;
use upkeep::{ConditionKind, ParallelLimit, RestartWindow, UpkeepAction, UpkeepOrder};

/// The greatest `max_parallel`.
const MAX_PARALLEL: u32 = 1000;
/// The allowed priorities.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// The query of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateQuery {
    /// Writes nothing and returns what the request would do.
    dry_run: bool,
}

/// A condition to create.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewServerCondition")]
pub(crate) struct NewCondition {
    /// The kind, such as `powerCycleSoft`; a capital first letter is accepted.
    kind: String,
    /// The parameters of the kind; absent ones have their defaults.
    #[schemars(with = "Option<types::Object>")]
    parameters: Option<Value>,
    /// For `firmwareInstall`: the set, by its name or id. Same as the parameter `firmware_set`.
    #[serde(rename = "firmware-set-id", alias = "firmware_set_id")]
    firmware_set_id: Option<String>,
    /// Whether the condition may wait behind an open condition of another kind. By default it is then refused.
    #[serde(default)]
    queue: bool,
    /// The priority; of the conditions and jobs that wait for a server, a greater one gets it first.
    #[schemars(range(min = -100, max = 100))]
    priority: Option<i32>,
    /// The maximum of such conditions that run at once on servers with the same value of the label `per`: this one waits while as many
    /// conditions of its kind run that have a limit with this label.
    #[schemars(range(min = 1, max = MAX_PARALLEL))]
    max_parallel: Option<u32>,
    /// The label for `max_parallel`, such as `rack`; the server must have it.
    per: Option<String>,
    /// A condition that has not ended by then fails; the default is four hours, and twelve for `firmwareInstall` and `biosApply`, from the
    /// end of the maintenance window on, or from a week later if an operator restarts the host.
    #[schemars(with = "Option<types::Timestamp>")]
    deadline: Option<Time>,
    /// The revision of the newest condition of this kind when it was read; 0 for none. Same as `If-Match`.
    #[schemars(range(min = 0))]
    revision: Option<i64>,
}

/// Creates a condition. The response is sent after the condition is stored.
pub(crate) async fn create(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(name): SerialPath,
    Parameters(query): Parameters<CreateQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let body: NewCondition = body.read()?;
    let server = server_of(&api, &name).await?;
    request_span::of_server(Some(&server.serial));
    request_audit::target("server", server.serial.as_str());
    let revision = expected_revision(&headers, body.revision)?;
    let request = checked(&api, &server, body, idempotency_key(&headers)?).await?;
    let earlier = newest(&api, &request.server, request.kind).await?;
    if query.dry_run {
        request_audit::changes_nothing();
        return dry_run::respond(&api, &principal.name, server, request, earlier).await;
    }
    if server.restored.is_some() {
        // The run would not be claimed before the release.
        return Err(release::not_released(&server.serial));
    }
    let Request { server, kind, order } = request;
    let replay = match &order.idempotency {
        Some(Idempotency { key, request_sha256 }) => {
            api.store().earlier(&server, key, request_sha256).await?
        }
        None => None,
    };
    let id = RunId(api.engine.id_source().new_id(api.now()));
    let created = match replay {
        Some(replay) => replay,
        None => {
            expect_revision(&server, kind, earlier.as_ref(), revision)?;
            let run = order.run(id, &principal.name, api.now());
            api.engine.create(Creation { run }).await?
        }
    };
    let id = match created {
        Created::New(_) => {
            request_audit::target("server", &format!("{server}/job/{id}"));
            request_span::of_job(id);
            id
        }
        Created::Replay(earlier) => earlier,
        other => return Err(refused(&server, kind, &other)),
    };
    let job = api.store().job(id).await?.ok_or_else(unknown_job)?;
    let view = ConditionView::of(&api, &server, &job).await?;
    Ok((view.etag(), Json(view)).into_response())
}

/// Checks the form of a request.
async fn checked(
    api: &Api,
    record: &Server,
    body: NewCondition,
    key: Option<String>,
) -> Result<Request, ApiError> {
    let server = record.serial.clone();
    let kind = kind_of("/kind", &body.kind)?;
    let parameters = with_set(body.parameters.unwrap_or(Value::Null), body.firmware_set_id)?;
    let action = UpkeepAction::of(kind, parameters)
        .map_err(|why| ApiError::invalid(vec![Detail::new("/parameters", Rule::Shape, why.to_string())]))?;
    let priority = body.priority.unwrap_or(0);
    let mut problems = Vec::new();
    if !PRIORITIES.contains(&priority) {
        problems.push(Detail::new("/priority", Rule::Range, "priority is a number from -100 to 100"));
    }
    if body.deadline.is_some_and(|deadline| deadline <= api.now()) {
        problems.push(Detail::new("/deadline", Rule::Range, "the deadline has passed"));
    }
    let parallel = parallel(record, body.max_parallel, body.per.as_deref());
    let parallel = parallel.map_err(|problem| problems.push(problem)).unwrap_or_default();
    problems.extend(window_problem(action.restart_window(), body.deadline, api.now()));
    if !problems.is_empty() {
        return Err(ApiError::invalid(problems));
    }
    let action = firmware::fill(api, &server, action).await?;
    let canonical = json!({
        "kind": kind, "parameters": action.parameters(), "queue": body.queue, "priority": priority,
        "deadline": body.deadline, "max_parallel": body.max_parallel, "per": body.per,
    });
    let idempotency = key.map(|key| Idempotency {
        key,
        request_sha256: hex::encode(Sha256::digest(format!("condition {canonical}"))),
    });
    let resources = api.store().resources_of(vec![server.clone()]).await?;
    let shared_bmc = resources.get(&server).and_then(|resources| resources.shared_bmc.clone());
    let order = UpkeepOrder {
        queue: body.queue,
        priority,
        deadline: body.deadline,
        parallel,
        shared_bmc,
        idempotency,
        ..UpkeepOrder::new(server.clone(), action).in_facility_of(&record.labels)
    };
    Ok(Request { server, kind, order })
}

/// How many orders of a kind run at once on servers that share a label with this one.
fn parallel(
    server: &Server,
    count: Option<u32>,
    label: Option<&str>,
) -> Result<Option<ParallelLimit>, Detail> {
    let (count, label) = match (count, label) {
        (None, None) => return Ok(None),
        (Some(count), Some(label)) => (count, label),
        _ => {
            let message = "max_parallel and per belong together";
            return Err(Detail::new("/max_parallel", Rule::Shape, message));
        }
    };
    if !(1..=MAX_PARALLEL).contains(&count) {
        let message = format!("max_parallel is a number from 1 to {MAX_PARALLEL}");
        return Err(Detail::new("/max_parallel", Rule::Range, message));
    }
    let Some(value) = server.labels.get(label) else {
        return Err(Detail::new("/per", Rule::Value, format!("the server has no label {label:?}")));
    };
    Ok(Some(ParallelLimit { label: label.to_owned(), value: value.clone(), count }))
}

/// Why the host could never be restarted: nothing would be installed, and what was stored would be used at any later restart.
fn window_problem(window: RestartWindow, deadline: Option<Time>, now: Time) -> Option<Detail> {
    if window.until.is_some_and(|until| until <= now) {
        let message = "the maintenance window has passed";
        return Some(Detail::new("/parameters/restart_until", Rule::Range, message));
    }
    let (from, deadline) = (window.from?, deadline?);
    let message = "the deadline is before the maintenance window begins";
    (deadline <= from).then(|| Detail::new("/deadline", Rule::Range, message))
}

/// The parameters with the set that the request names beside them.
fn with_set(mut parameters: Value, set: Option<String>) -> Result<Value, ApiError> {
    let Some(set) = set else { return Ok(parameters) };
    if parameters.is_null() {
        parameters = json!({});
    }
    match parameters.as_object_mut() {
        Some(members) if !members.contains_key("firmware_set") => {
            members.insert("firmware_set".to_owned(), json!(set));
            Ok(parameters)
        }
        _ => {
            let message = "name the set once: firmware-set-id, or firmware_set in the parameters";
            Err(ApiError::invalid(vec![Detail::new("/firmware-set-id", Rule::Shape, message)]))
        }
    }
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
pub(super) fn expect_revision(
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
