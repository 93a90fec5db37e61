//! The operators of a world: they create jobs, hold, cancel and retry them, and repeat requests without a response.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::network::{ApiRequest, ApiResponse};
use super::world::World;
use model::{RunId, Serial};

/// The user name on every BMC.
pub(super) const BMC_USER: &str = "selftest";
/// The password on every BMC.
pub(super) const BMC_PASSWORD: &str = "selftest-password";
/// The recipe of every job.
const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");

/// Repeats a request until the controller sends a final response. Returns `None` if no attempts are left.
pub(super) async fn request_until_response(
    world: &Arc<World>,
    method: &Method,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Option<ApiResponse> {
    let mut delay = Duration::from_secs(1);
    for _ in 0..400 {
        let header = key.map(|key| ("idempotency-key", key.to_owned()));
        let request = ApiRequest { method: method.clone(), path, header, body: Some(body.clone()) };
        match world.call(request).await {
            Some(response) if response.status < 500 && response.status != 429 => return Some(response),
            _ => tokio::time::sleep(delay).await,
        }
        delay = (delay * 2).min(Duration::from_secs(60));
    }
    None
}

/// Registers a server.
pub(super) async fn register(world: &Arc<World>, serial: &Serial, address: &str) {
    let body = json!({
        "serial": serial, "bmc_address": address, "bmc_username": BMC_USER,
        "bmc_password": BMC_PASSWORD, "tls": "insecure",
    });
    let response = request_until_response(world, &Method::POST, "/api/v1/servers", None, &body).await;
    if !response.as_ref().is_some_and(|response| matches!(response.status, 200 | 201)) {
        world.checker.violation(format!("{serial} cannot be registered: {response:?}"));
    }
}

/// Creates a webhook for all events.
pub(super) async fn subscribe(world: &Arc<World>) {
    let body = json!({ "url": super::receiver::URL, "secret": super::receiver::SECRET });
    let response = request_until_response(world, &Method::POST, "/api/v1/webhooks", None, &body).await;
    if response.as_ref().is_none_or(|response| response.status != 201) {
        world.checker.violation(format!("the webhook was not created: {response:?}"));
    }
}

/// Creates the jobs of one server, one after another.
pub(super) async fn create_jobs(world: Arc<World>, serial: Serial, jobs: u32) {
    let mut actions = Vec::new();
    let recipe: Value = serde_json::from_str(RECIPE).unwrap_or(Value::Null);
    for number in 0..jobs {
        let share = world.plan.fault_time / jobs.max(1);
        tokio::time::sleep(world.rng.time(Duration::from_secs(1), share)).await;
        let key = format!("{serial}-{number}");
        let recipe = match world.rng.chance_per_mille(world.plan.esxi) {
            true => json!({ "task_target": "install-esxi.target", "ks_cfg": "vmaccepteula\nreboot\n" }),
            false => recipe.clone(),
        };
        let body = json!({ "server_serial": serial, "recipe": recipe, "priority": world.rng.below(3) });
        let response = request_until_response(&world, &Method::POST, "/api/v1/jobs", Some(&key), &body).await;
        let job = match response {
            Some(ApiResponse { status: 200 | 202, body }) => {
                body["job_id"].as_str().and_then(|id| id.parse().ok())
            }
            // Another job of the server is active. The operator does not insist.
            Some(ApiResponse { status: 409, .. }) => None,
            response => {
                world.checker.violation(format!("a job for {serial} was not accepted: {response:?}"));
                None
            }
        };
        let Some(job) = job else { continue };
        world.checker.acknowledged(&key, job);
        world.note(&format!("job {job} for {serial}"));
        if world.fault_occurs(world.plan.operator_actions) {
            actions.push(tokio::spawn(act_on_job(Arc::clone(&world), job)));
        }
    }
    // Wait for all actions: a retry creates a job, too.
    for action in actions {
        let _ended = action.await;
    }
}

/// Holds, cancels or retries a job.
async fn act_on_job(world: Arc<World>, job: RunId) {
    tokio::time::sleep(world.rng.time(Duration::ZERO, Duration::from_secs(1500))).await;
    if world.plan.actions_during_bmc_change > 0
        && world.rng.chance_per_mille(world.plan.actions_during_bmc_change)
    {
        let _timed_out = tokio::time::timeout(Duration::from_secs(1800), world.bmc_changes.notified()).await;
    }
    let path = |verb: &str| format!("/api/v1/jobs/{job}/{verb}");
    let body = json!({ "reason": "selftest" });
    match world.rng.below(4) {
        0 => {
            verb(&world, &path("hold"), &body).await;
            tokio::time::sleep(world.rng.seconds(10, 5400)).await;
            verb(&world, &path("resume"), &body).await;
        }
        1 => {
            verb(&world, &path("hold"), &body).await;
            tokio::time::sleep(world.rng.seconds(10, 600)).await;
            cancel(&world, job, &body).await;
        }
        _ => cancel(&world, job, &body).await,
    }
    if world.rng.below(3) == 0 {
        tokio::time::sleep(world.rng.seconds(60, 1800)).await;
        let key = format!("retry-{job}");
        let response = request_until_response(&world, &Method::POST, &path("retry"), Some(&key), &body).await;
        let created = response.filter(|response| matches!(response.status, 200 | 202));
        if let Some(id) =
            created.and_then(|created| created.body["job_id"].as_str().and_then(|id| id.parse().ok()))
        {
            world.note(&format!("job {id} retries {job}"));
            world.checker.acknowledged(&key, id);
        }
    }
}

async fn verb(world: &Arc<World>, path: &str, body: &Value) -> Option<u16> {
    let response = request_until_response(world, &Method::POST, path, None, body).await?;
    world.note(&format!("{path}: {}", response.status));
    Some(response.status)
}

async fn cancel(world: &Arc<World>, job: RunId, body: &Value) {
    if verb(world, &format!("/api/v1/jobs/{job}/cancel"), body).await == Some(202) {
        world.checker.cancel_acknowledged(job);
    }
}

/// Resumes all held jobs.
pub(super) async fn resume_all(world: &Arc<World>, held: &[RunId]) {
    for job in held {
        verb(world, &format!("/api/v1/jobs/{job}/resume"), &json!({ "reason": "end of the selftest" })).await;
    }
}
