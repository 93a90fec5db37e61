//! From the body of a request to an order, and from an order to its job or its refusal: what creating a job, a row of a batch, a
//! retry and a dry run share.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::unknown_server;
use super::super::openapi::types;
use model::{Idempotency, RunId, Serial, Time};
use provision::{JobOrder, OrderError, step_names};
use recipe::FieldError;
use store::{Created, ServerResources};

/// The longest idempotency key.
const MAX_KEY: usize = 128;
/// What the key of the last row of the largest batch has behind the key of the batch.
pub(crate) const LAST_ROW: &str = "#9999";
/// The maximum of labels.
pub(crate) const MAX_LABELS: usize = 32;
/// The longest key or value of a label, in bytes.
const MAX_LABEL: usize = 128;
/// The allowed priorities.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;
/// The allowed timeouts of a step, in seconds.
const TIMEOUTS: std::ops::RangeInclusive<u64> = 1..=30 * 86_400;

/// The body of a job request; also a row of a batch.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    /// The serial number of a registered server.
    #[schemars(with = "types::SerialNumber")]
    pub(crate) server_serial: Option<String>,
    /// What to install. Required, except in a row of a batch that has a recipe.
    #[schemars(with = "Option<types::Recipe>")]
    recipe: Option<Box<RawValue>>,
    /// The image to boot: a path of the controller, or a `file`, `http` or `https` URL without credentials.
    maintenance_iso_url: Option<String>,
    /// Labels of the job.
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("maxProperties" = MAX_LABELS))]
    labels: Option<serde_json::Map<String, Value>>,
    /// The priority; a greater one begins first.
    #[schemars(range(min = -100, max = 100))]
    priority: Option<i32>,
    /// A job that has not ended by then fails, also while its machine installs.
    #[schemars(with = "Option<types::Timestamp>")]
    deadline: Option<Time>,
    /// Time limits of steps in seconds, by the name of the step.
    #[schemars(extend("additionalProperties" = { "type": "integer", "minimum": 1, "maximum": TIMEOUTS.end() }))]
    timeouts: Option<BTreeMap<String, u64>>,
}

/// The schema of a job request. Unlike a row of a batch it needs a recipe.
pub(crate) struct NewJob;

impl JsonSchema for NewJob {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewJob".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = JobRequest::json_schema(generator);
        schema.insert("description".to_owned(), "A job to create.".into());
        schema.insert("required".to_owned(), ["server_serial", "recipe"].into_iter().collect());
        schema
    }
}

/// Finds the job of an earlier order with this idempotency key. It is found before the order is validated again, so a deadline
/// that has passed since does not turn the replay of an accepted order into a refusal.
pub(crate) async fn find_replay(api: &Api, order: &JobOrder) -> Result<Option<Created>, ApiError> {
    Ok(api.store().earlier(&order.server_serial, order.idempotency.as_ref()).await?)
}

/// Adds site, shared BMC and network of the server to the order.
pub(crate) fn with_server_resources(order: JobOrder, resources: Option<&ServerResources>) -> JobOrder {
    let ServerResources { site, shared_bmc, network } = resources.cloned().unwrap_or_default();
    JobOrder { site, shared_bmc, network, ..order }
}

/// The id of the created or found job and whether it is new, or the refusal.
pub(crate) fn created_job(
    new_id: RunId,
    serial: &Serial,
    created: &Created,
) -> Result<(RunId, bool), ApiError> {
    match created {
        Created::New(_) => Ok((new_id, true)),
        Created::Replay(id) => Ok((*id, false)),
        Created::KeyReused(id) => Err(ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            format!("this idempotency key belongs to another request, job {id}; use a new key for a new job"),
        )),
        Created::Conflict { holder } => Err(ApiError::new(
            ErrorCode::ConflictActiveJob,
            format!("job {holder} is active on server {serial}; wait for its end or cancel it"),
        )
        .detail(Detail::new("/server_serial", Rule::ActiveJob, holder.to_string()))),
        Created::UnknownServer => Err(unknown_server(serial.as_str())),
    }
}

/// The `Idempotency-Key` header of a request, or its alias `idempotency_key`.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    key_of(headers, MAX_KEY)
}

/// The key of a dry run, which may be the one of a row of a batch: the key of the batch, `#` and the index of the row.
pub(super) fn preview_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    key_of(headers, MAX_KEY + LAST_ROW.len())
}

fn key_of(headers: &HeaderMap, max: usize) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get("idempotency-key").or_else(|| headers.get("idempotency_key")) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=max).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(ApiError::invalid(vec![Detail::new(
            "Idempotency-Key",
            Rule::Length,
            format!("an idempotency key has 1 to {max} printable ASCII characters"),
        )])),
    }
}

impl JobRequest {
    /// Fills absent fields from the defaults of the batch.
    pub(crate) fn or(
        self,
        recipe: &Option<Box<RawValue>>,
        maintenance_iso_url: &Option<String>,
        labels: &Option<serde_json::Map<String, Value>>,
        priority: Option<i32>,
        deadline: Option<Time>,
    ) -> Self {
        Self {
            server_serial: self.server_serial,
            recipe: self.recipe.or_else(|| recipe.clone()),
            maintenance_iso_url: self.maintenance_iso_url.or_else(|| maintenance_iso_url.clone()),
            labels: self.labels.or_else(|| labels.clone()),
            priority: self.priority.or(priority),
            deadline: self.deadline.or(deadline),
            timeouts: self.timeouts,
        }
    }

    /// Validates the form of the request and returns the order.
    pub(crate) fn order(self, idempotency_key: Option<String>) -> Result<JobOrder, ApiError> {
        let request = self;
        let mut problems = Vec::new();
        let serial = match request.server_serial.as_deref().map(str::parse::<Serial>) {
            Some(Ok(serial)) => Some(serial),
            Some(Err(why)) => {
                problems.push(Detail::new("/server_serial", Rule::Pattern, why.to_string()));
                None
            }
            None => {
                problems.push(Detail::new("/server_serial", Rule::Required, "server_serial is required"));
                None
            }
        };
        if request.recipe.is_none() {
            problems.push(Detail::new("/recipe", Rule::Required, "recipe is required"));
        }
        let priority = request.priority.unwrap_or(0);
        if !PRIORITIES.contains(&priority) {
            problems.push(Detail::new("/priority", Rule::Range, "priority is a number from -100 to 100"));
        }
        let labels = request.labels.unwrap_or_default();
        let labels_valid = labels.len() <= MAX_LABELS
            && labels.iter().all(|(key, value)| {
                key.len() <= MAX_LABEL && value.as_str().is_some_and(|value| value.len() <= MAX_LABEL)
            });
        if !labels_valid {
            let message = format!(
                "at most {MAX_LABELS} labels; keys and values are texts of at most {MAX_LABEL} bytes"
            );
            problems.push(Detail::new("/labels", Rule::Labels, message));
        }
        let timeouts = request.timeouts.unwrap_or_default();
        for (step, seconds) in &timeouts {
            let path = format!("/timeouts/{step}");
            if !step_names().any(|known| known == step) {
                let known = step_names().collect::<Vec<_>>().join(", ");
                problems.push(Detail::new(
                    &path,
                    Rule::Unknown,
                    format!("this step does not exist; the steps are {known}"),
                ));
            } else if !TIMEOUTS.contains(seconds) {
                let message = format!("a timeout is {} to {} seconds", TIMEOUTS.start(), TIMEOUTS.end());
                problems.push(Detail::new(&path, Rule::Range, message));
            }
        }
        match (serial, request.recipe) {
            (Some(server_serial), Some(recipe)) if problems.is_empty() => {
                let (recipe_text, labels_text) = (canonical(&recipe), serde_json::json!(labels).to_string());
                let (priority_text, timeouts_text) =
                    (priority.to_string(), serde_json::json!(timeouts).to_string());
                let deadline_text = request.deadline.map(|deadline| deadline.to_string()).unwrap_or_default();
                let mut parts = vec![
                    server_serial.as_str(),
                    &recipe_text,
                    request.maintenance_iso_url.as_deref().unwrap_or_default(),
                    &labels_text,
                    &priority_text,
                    &deadline_text,
                ];
                if !timeouts.is_empty() {
                    parts.push(&timeouts_text);
                }
                let request_sha256 = digest(&parts);
                let idempotency = idempotency_key.map(|key| Idempotency { key, request_sha256 });
                Ok(JobOrder {
                    server_serial,
                    recipe: recipe.get().to_owned(),
                    maintenance_iso_url: request.maintenance_iso_url,
                    labels: texts(labels),
                    priority,
                    idempotency,
                    retry_of: None,
                    disk_before: None,
                    batch: None,
                    canary: false,
                    deadline: request.deadline,
                    rounds: 1,
                    timeouts,
                    site: None,
                    shared_bmc: None,
                    network: None,
                })
            }
            _ => Err(ApiError::invalid(problems)),
        }
    }
}

/// Labels as texts; their values are checked to be texts.
fn texts(labels: serde_json::Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
    labels.into_iter().map(|(key, value)| (key, text(value))).collect()
}

/// The digest that distinguishes two requests with one idempotency key. Lengths separate the parts.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(hash.finalize())
}

/// The recipe without insignificant white space and with sorted keys, because a client may repeat a request in another form.
/// An unreadable recipe stays as it is; validation refuses it later.
fn canonical(recipe: &RawValue) -> String {
    serde_json::from_str::<Value>(recipe.get())
        .map_or_else(|_| recipe.get().to_owned(), |recipe| recipe.to_string())
}

/// The error response of a refused order.
pub(crate) fn refused(error: OrderError) -> ApiError {
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
            ApiError::invalid(vec![Detail::new("/maintenance_iso_url", Rule::Format, why)])
        }
        OrderError::OsImage(why) => {
            let detail = Detail::from(FieldError::new("/oci_url", "os_image", why));
            ApiError::invalid(vec![Detail { path: "/recipe/oci_url".to_owned(), ..detail }])
        }
        OrderError::DeadlinePassed => {
            ApiError::invalid(vec![Detail::new("/deadline", Rule::Range, error.to_string())])
        }
        OrderError::ServerNetwork(_) => ApiError::new(ErrorCode::ConflictInput, error.to_string()),
        OrderError::NoMaintenanceIso | OrderError::NoInstaller => {
            ApiError::new(ErrorCode::NoMaintenanceIso, error.to_string())
        }
    }
}
