//! `POST /api/v1/jobs`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::extract::{Body, Writer, unknown_server};
use crate::auth::Principal;
use crate::engine::{Created, Creation};
use crate::model::{JobStatus, RunId, Serial, Time};
use crate::provision::{JobOrder, OrderError};

/// The longest idempotency key.
const MAX_KEY: usize = 128;
/// The most labels, and the longest of their texts.
const MAX_LABELS: usize = 32;
const MAX_LABEL: usize = 128;
/// Priorities an operator can give.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    server_serial: Option<String>,
    recipe: Option<Box<RawValue>>,
    maintenance_iso_url: Option<String>,
    #[serde(default)]
    labels: serde_json::Map<String, Value>,
    priority: Option<i32>,
}

/// Accepts a job: durable when this answers 202.
pub(in crate::api) async fn create(
    State(api): State<Api>,
    Writer(principal): Writer,
    headers: HeaderMap,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    if let Some(query) = uri.query().filter(|query| !query.is_empty()) {
        // A parameter that is not understood may have meant "do not really do it".
        let name = query.split(['=', '&']).next().unwrap_or_default();
        return Err(ApiError::invalid(vec![Detail::new(
            name,
            "unknown",
            "this route takes no query parameters",
        )]));
    }
    let key = idempotency_key(&headers)?;
    let request: Request = body.read()?;
    submit(&api, &principal, order(request, key)?).await.map(|(_new, response)| response)
}

/// Hands an order in; answers the id of the job when it is a new one, and what to say.
pub(super) async fn submit(
    api: &Api,
    principal: &Principal,
    order: JobOrder,
) -> Result<(Option<RunId>, Response), ApiError> {
    let serial = order.server_serial.clone();
    let now = api.now();
    let ready = api.site.accept(order, RunId::new(), &principal.name, now).map_err(refused)?;
    let id = ready.run.id;
    match api.engine.create(Creation { run: ready.run }).await? {
        Created::New(_) => {
            let warnings: Vec<Value> = ready
                .lints
                .iter()
                .map(|lint| json!({ "path": lint.path, "message": lint.message }))
                .collect();
            let mut body = accepted(id, JobStatus::Queued, &serial, now);
            body["warnings"] = json!(warnings);
            Ok((Some(id), (StatusCode::ACCEPTED, axum::Json(body)).into_response()))
        }
        Created::Replay(id) => {
            let job = api.store().job(id).await?.ok_or_else(super::super::extract::unknown_job)?;
            let mut body = accepted(id, job.status, &serial, job.run.created_at);
            body["warnings"] = json!([]);
            Ok((None, (StatusCode::OK, axum::Json(body)).into_response()))
        }
        Created::KeyReused(id) => Err(ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            format!(
                "this idempotency key belongs to another request, job {id}; take a new key for a new job"
            ),
        )),
        Created::Conflict { holder } => Err(ApiError::conflict(
            "conflict.active_job",
            format!("server {serial} is being worked on by job {holder}; wait for its end or cancel it"),
        )
        .detail(Detail::new("/server_serial", "active_job", holder.to_string()))),
        Created::UnknownServer => Err(unknown_server(serial.as_str())),
    }
}

fn accepted(id: RunId, status: JobStatus, serial: &Serial, created_at: Time) -> Value {
    json!({ "job_id": id, "status": status, "server_serial": serial, "created_at": created_at })
}

pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key").or_else(|| headers.get("idempotency_key")) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(ApiError::invalid(vec![Detail::new(
            "Idempotency-Key",
            "length",
            format!("an idempotency key has 1 to {MAX_KEY} printable ASCII characters"),
        )])),
    }
}

fn order(request: Request, idempotency_key: Option<String>) -> Result<JobOrder, ApiError> {
    let mut wrong = Vec::new();
    let serial = match request.server_serial.as_deref().map(str::parse::<Serial>) {
        Some(Ok(serial)) => Some(serial),
        Some(Err(why)) => {
            wrong.push(Detail::new("/server_serial", "pattern", why.to_string()));
            None
        }
        None => {
            wrong.push(Detail::new("/server_serial", "required", "server_serial is required"));
            None
        }
    };
    if request.recipe.is_none() {
        wrong.push(Detail::new("/recipe", "required", "recipe is required"));
    }
    let priority = request.priority.unwrap_or(0);
    if !PRIORITIES.contains(&priority) {
        wrong.push(Detail::new("/priority", "range", "priority is a number from -100 to 100"));
    }
    let labels_hold = request.labels.len() <= MAX_LABELS
        && request.labels.iter().all(|(key, value)| {
            key.len() <= MAX_LABEL && value.as_str().is_some_and(|value| value.len() <= MAX_LABEL)
        });
    if !labels_hold {
        let message = format!("labels are at most {MAX_LABELS} texts of at most {MAX_LABEL} bytes");
        wrong.push(Detail::new("/labels", "labels", message));
    }
    match (serial, request.recipe) {
        (Some(server_serial), Some(recipe)) if wrong.is_empty() => {
            let labels = Value::Object(request.labels);
            let request_sha256 =
                digest(&server_serial, &recipe, &request.maintenance_iso_url, &labels, priority);
            Ok(JobOrder {
                server_serial,
                recipe: recipe.get().to_owned(),
                maintenance_iso_url: request.maintenance_iso_url,
                labels,
                priority,
                idempotency_key,
                request_sha256,
                retry_of: None,
            })
        }
        _ => Err(ApiError::invalid(wrong)),
    }
}

/// Tells one request from another under the same key, by what it says and not by its white space or the order of its
/// keys: clients repeat a request in a form of their own. Parts are separated by their lengths.
fn digest(
    serial: &Serial,
    recipe: &RawValue,
    maintenance: &Option<String>,
    labels: &Value,
    priority: i32,
) -> String {
    let labels = labels.to_string();
    let priority = priority.to_string();
    // A recipe that cannot be read at all is refused a moment later; until then its text stands for it.
    let recipe = serde_json::from_str::<Value>(recipe.get())
        .map_or_else(|_| recipe.get().to_owned(), |recipe| recipe.to_string());
    let parts =
        [serial.as_str(), recipe.as_str(), maintenance.as_deref().unwrap_or_default(), &labels, &priority];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

fn refused(error: OrderError) -> ApiError {
    match error {
        OrderError::Recipe(errors) => ApiError::invalid(
            errors
                .into_iter()
                .map(|error| {
                    let mut detail = Detail::from(error);
                    detail.path = format!("/recipe{}", detail.path);
                    if detail.field.is_empty() {
                        "recipe".clone_into(&mut detail.field);
                    }
                    detail
                })
                .collect(),
        ),
        OrderError::MaintenanceIso(why) => {
            ApiError::invalid(vec![Detail::new("/maintenance_iso_url", "format", why)])
        }
        OrderError::NoMaintenanceIso => {
            ApiError::new(StatusCode::BAD_REQUEST, "config.no_maintenance_iso", error.to_string())
        }
    }
}
