//! `POST /worker/v1/hello`: a worker says what it is. A worker of another version is refused with words.

use axum::Json;
use axum::extract::State;

use super::super::Api;
use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use super::Message;
use super::caller::Caller;
use engine::{PROTOCOL, WorkflowRegistry};
use model::{NewEvent, WORKER_ACTOR};
use upkeep::Upkeep;
use worker::messages::{Hello, RedfishSettings, Welcome};

/// Compares a worker with this controller, and lists it.
pub(super) async fn hello(
    State(api): State<Api>,
    caller: Caller,
    Message(hello): Message<Hello>,
) -> Result<Json<Welcome>, ApiError> {
    if let Some(why) = other_version(&hello, api.engine.workflows()) {
        return Err(ApiError::new(ErrorCode::ConflictWorkerVersion, why));
    }
    let Caller { token, process } = caller;
    if let Some(other) = hello.queues.difference(&token.queues).next() {
        let own: Vec<&str> = token.queues.iter().map(String::as_str).collect();
        let message =
            format!("the token {} is not for the queue {other:?}; it is for: {}", token.name, own.join(", "));
        return Err(ApiError::new(ErrorCode::Forbidden, message));
    }
    let queues = if hello.queues.is_empty() { token.queues.clone() } else { hello.queues };
    // A queue of the controller is refused here, before the worker asks for calls.
    let lease = api.engine.remote_queues(&token.name, &queues)?.lease();
    tracing::info!(
        worker = token.name,
        process,
        version = shown(&hello.version),
        ?queues,
        "a worker elsewhere said hello"
    );
    let served: Vec<&str> = queues.iter().map(String::as_str).collect();
    let (name, served) = (token.name.as_str(), served.join(", "));
    let message = format!("the worker {name}/{process} is connected; it serves: {served}");
    let data = serde_json::json!({ "worker": name, "process": process, "queues": &queues });
    let entry = api.workers.list((&token.id, name), &process, queues, shown(&hello.version))?;
    let event = NewEvent::info("worker.connected", message).with(data).by(&format!("{WORKER_ACTOR}{name}"));
    entry.announce(api.store().record_event(event, api.now())).await?;
    let read = api.workers.authorities();
    let authorities = tokio::task::spawn_blocking(move || read()).await.unwrap_or_default();
    Ok(Json(Welcome {
        name: token.name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX),
        now: api.now(),
        redfish: RedfishSettings { authorities, ..api.workers.redfish.clone() },
    }))
}

/// Why a worker of this version must not work for this controller.
fn other_version(hello: &Hello, workflows: &WorkflowRegistry) -> Option<String> {
    let ours = env!("CARGO_PKG_VERSION");
    let upgrade =
        format!("run version {ours} of the program at the worker: it has {}", shown(&hello.version));
    if hello.protocol != PROTOCOL {
        return Some(format!(
            "the worker speaks version {} of the messages and this controller version {PROTOCOL}: {upgrade}",
            hello.protocol
        ));
    }
    let missing = Upkeep::versions().into_keys().find(|name| !hello.workflows.contains_key(name));
    if let Some(name) = missing {
        return Some(format!("the worker does not have the workflow {name}: {upgrade}"));
    }
    hello.workflows.iter().find_map(|(name, version)| {
        let known = workflows.get(name).map(|workflow| workflow.version());
        (known != Some(*version)).then(|| {
            let known = known.map_or("does not have it".to_owned(), |known| format!("has version {known}"));
            format!(
                "the worker has version {version} of the workflow {} and this controller {known}: {upgrade}",
                shown(name)
            )
        })
    })
}

fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}
