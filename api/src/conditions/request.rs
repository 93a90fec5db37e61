//! From the body of a request for a condition to its order, or its refusal.
//!
//! ```text
//! NewCondition --form--> Asked --time, server, firmware sets--> Request --the store--> the condition
//!                          | its idempotency key is known: the condition of the first request
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::unknown_server;
use super::super::openapi::types;
use super::{firmware, kind_of};
use model::{Idempotency, Serial, Server, Time};
use store::{Created, ServerFilter};
use upkeep::{ConditionKind, ParallelLimit, RestartWindow, UpkeepAction, UpkeepOrder};

/// The greatest `max_parallel`.
const MAX_PARALLEL: u32 = 1000;
/// The allowed priorities.
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

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
    /// end of the maintenance window on, or from a week later if an operator restarts the host. With `max_parallel` it is that time for each
    /// round of the servers with the label.
    #[schemars(with = "Option<types::Timestamp>")]
    deadline: Option<Time>,
    /// The revision of the newest condition of this kind when it was read; 0 for none. Same as `If-Match`.
    #[schemars(range(min = 0))]
    pub(super) revision: Option<i64>,
}

/// A request whose form is right: what depends neither on the time nor on what is stored.
pub(super) struct Asked {
    pub(super) kind: ConditionKind,
    pub(super) idempotency: Option<Idempotency>,
    action: UpkeepAction,
    queue: bool,
    priority: i32,
    deadline: Option<Time>,
    parallel: Option<(u32, String)>,
}

impl NewCondition {
    /// Checks the form of the request.
    pub(super) fn checked(self, key: Option<String>) -> Result<Asked, ApiError> {
        let kind = kind_of("/kind", &self.kind)?;
        let parameters = with_set(self.parameters.unwrap_or(Value::Null), self.firmware_set_id)?;
        let action = UpkeepAction::of(kind, parameters).map_err(|why| {
            ApiError::invalid(vec![Detail::new("/parameters", Rule::Shape, why.to_string())])
        })?;
        let priority = self.priority.unwrap_or(0);
        let mut problems = Vec::new();
        if !PRIORITIES.contains(&priority) {
            problems.push(Detail::new("/priority", Rule::Range, "priority is a number from -100 to 100"));
        }
        if self.max_parallel.is_some_and(|count| !(1..=MAX_PARALLEL).contains(&count)) {
            let message = format!("max_parallel is a number from 1 to {MAX_PARALLEL}");
            problems.push(Detail::new("/max_parallel", Rule::Range, message));
        }
        if self.max_parallel.is_some() != self.per.is_some() {
            let message = "max_parallel and per belong together";
            problems.push(Detail::new("/max_parallel", Rule::Shape, message));
        }
        if !problems.is_empty() {
            return Err(ApiError::invalid(problems));
        }
        let canonical = json!({
            "kind": kind, "parameters": action.parameters(), "queue": self.queue, "priority": priority,
            "deadline": self.deadline, "max_parallel": self.max_parallel, "per": self.per,
        });
        let idempotency = key.map(|key| Idempotency {
            key,
            request_sha256: hex::encode(Sha256::digest(format!("condition {canonical}"))),
        });
        let (queue, deadline, parallel) = (self.queue, self.deadline, self.max_parallel.zip(self.per));
        Ok(Asked { kind, idempotency, action, queue, priority, deadline, parallel })
    }
}

impl Asked {
    /// The order, checked against the time, the record of the server and the sets of firmware. A repeated request whose first was
    /// accepted is not checked again: its window may have passed since.
    pub(super) async fn order(self, api: &Api, record: &Server) -> Result<Request, ApiError> {
        let Self { kind, idempotency, action, queue, priority, deadline, parallel } = self;
        let (server, now) = (record.serial.clone(), api.now());
        let mut problems = Vec::new();
        if deadline.is_some_and(|deadline| deadline <= now) {
            problems.push(Detail::new("/deadline", Rule::Range, "the deadline has passed"));
        }
        let parallel = match parallel {
            Some((count, label)) => match record.labels.get(&label) {
                Some(value) => Some(limit(api, label, value.clone(), count).await?),
                None => {
                    let message = format!("the server has no label {label:?}");
                    problems.push(Detail::new("/per", Rule::Value, message));
                    None
                }
            },
            None => None,
        };
        problems.extend(window_problem(action.restart_window(), deadline, now));
        if !problems.is_empty() {
            return Err(ApiError::invalid(problems));
        }
        let action = firmware::fill(api, &server, action).await?;
        let resources = api.store().resources_of(vec![server.clone()]).await?;
        let shared_bmc = resources.get(&server).and_then(|resources| resources.shared_bmc.clone());
        let order = UpkeepOrder {
            queue,
            priority,
            deadline,
            shared_bmc,
            idempotency,
            ..UpkeepOrder::new(server.clone(), action).limited(parallel).in_facility_of(&record.labels)
        };
        Ok(Request { server, kind, order })
    }
}

/// A limit, with the number of servers that may be under it.
async fn limit(api: &Api, label: String, value: String, count: u32) -> Result<ParallelLimit, ApiError> {
    let labels = BTreeMap::from([(label.clone(), value.clone())]);
    let filter = ServerFilter { labels, limit: 0, ..ServerFilter::default() };
    let (_, servers) = api.store().server_serials(filter).await?;
    Ok(ParallelLimit { label, value, count, servers: u32::try_from(servers).unwrap_or(u32::MAX) })
}

/// A checked request.
pub(super) struct Request {
    pub(super) server: Serial,
    pub(super) kind: ConditionKind,
    pub(super) order: UpkeepOrder,
}

/// The refusal of a condition that was not created.
pub(super) fn refused(server: &Serial, kind: ConditionKind, created: &Created) -> ApiError {
    match created {
        Created::Conflict { holder } => ApiError::new(
            ErrorCode::ConflictCondition,
            format!(
                "server {server} has the open condition {holder}, so {kind} was not created: wait for its end, cancel it \
                 (shoal job cancel {holder}), or request a condition of another kind with `queue` to wait behind it"
            ),
        )
        .detail(Detail::new("/kind", Rule::ActiveJob, holder.to_string())),
        Created::KeyReused(id) => ApiError::new(
            ErrorCode::IdempotencyKeyReused,
            format!("this idempotency key belongs to another request, job {id}; use a new key for a new condition"),
        ),
        Created::UnknownServer | Created::New(_) | Created::Replay(_) => unknown_server(server.as_str()),
    }
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
