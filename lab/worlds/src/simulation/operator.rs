//! The people of a world: they order jobs, change their minds, and ask again when nobody answers.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::network::{ApiResponse, ApiRequest};
use super::world::World;
use engine::model::{RunId, Serial};

/// The recipe of every job.
const RECIPE: &str = include_str!("../../../../schemas/recipe-linux.example.json");

/// Asks until somebody answers for good; `None` when the world is over before.
pub(super) async fn request_until_answered(
    world: &Arc<World>,
    method: &Method,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Option<ApiResponse> {
    let mut pause = Duration::from_secs(1);
    for _ in 0..400 {
        let header = key.map(|key| ("idempotency-key", key.to_owned()));
        let asked = ApiRequest { method: method.clone(), path, header, body: Some(body.clone()) };
        match world.call(asked).await {
            Some(answer) if answer.status < 500 && answer.status != 429 => return Some(answer),
            _ => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(60));
    }
    None
}

/// Registers a server.
pub(super) async fn register(world: &Arc<World>, serial: &Serial, address: &str) {
    let body = json!({
        "serial": serial, "bmc_address": address, "bmc_username": super::world::BMC_USER,
        "bmc_password": super::world::BMC_PASSWORD, "tls": "insecure",
    });
    let answer = request_until_answered(world, &Method::POST, "/api/v1/servers", None, &body).await;
    if !answer.as_ref().is_some_and(|answer| matches!(answer.status, 200 | 201)) {
        world.checker.violation(format!("{serial} cannot be registered: {answer:?}"));
    }
}

/// Wants to be told of all events.
pub(super) async fn subscribe(world: &Arc<World>) {
    let body = json!({ "url": super::receiver::URL, "secret": super::receiver::SECRET });
    let answer = request_until_answered(world, &Method::POST, "/api/v1/webhooks", None, &body).await;
    if answer.as_ref().is_none_or(|answer| answer.status != 201) {
        world.checker.violation(format!("a webhook was not made: {answer:?}"));
    }
}

/// Orders the jobs of one server, one after another.
pub(super) async fn create_jobs(world: Arc<World>, serial: Serial, jobs: u32) {
    let mut changes = Vec::new();
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
        let answer = request_until_answered(&world, &Method::POST, "/api/v1/jobs", Some(&key), &body).await;
        let job = match answer {
            Some(ApiResponse { status: 200 | 202, body }) => {
                body["job_id"].as_str().and_then(|id| id.parse().ok())
            }
            // Another job works on the server; an operator comes again another day.
            Some(ApiResponse { status: 409, .. }) => None,
            answer => {
                world.checker.violation(format!("an order for {serial} was not taken: {answer:?}"));
                None
            }
        };
        let Some(job) = job else { continue };
        world.checker.acknowledged(&key, job);
        world.note(&format!("job {job} for {serial}"));
        if world.fault_occurs(world.plan.operator_actions) {
            changes.push(tokio::spawn(act_on_job(Arc::clone(&world), job)));
        }
    }
    // Who still wants something is not done: a retry is an order, too.
    for change in changes {
        let _over = change.await;
    }
}

/// Changes its mind about a job.
async fn act_on_job(world: Arc<World>, job: RunId) {
    tokio::time::sleep(world.rng.time(Duration::ZERO, Duration::from_secs(1500))).await;
    if world.plan.actions_during_bmc_change > 0 && world.rng.chance_per_mille(world.plan.actions_during_bmc_change)
    {
        let _nobody = tokio::time::timeout(Duration::from_secs(1800), world.bmc_changes.notified()).await;
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
        let answer = request_until_answered(&world, &Method::POST, &path("retry"), Some(&key), &body).await;
        let made = answer.filter(|answer| matches!(answer.status, 200 | 202));
        if let Some(id) = made.and_then(|made| made.body["job_id"].as_str().and_then(|id| id.parse().ok())) {
            world.note(&format!("job {id} retries {job}"));
            world.checker.acknowledged(&key, id);
        }
    }
}

async fn verb(world: &Arc<World>, path: &str, body: &Value) -> Option<u16> {
    let answer = request_until_answered(world, &Method::POST, path, None, body).await?;
    world.note(&format!("{path}: {}", answer.status));
    Some(answer.status)
}

async fn cancel(world: &Arc<World>, job: RunId, body: &Value) {
    if verb(world, &format!("/api/v1/jobs/{job}/cancel"), body).await == Some(202) {
        world.checker.cancel_acknowledged(job);
    }
}

/// Lets everything go on that is held.
pub(super) async fn resume_all(world: &Arc<World>, held: &[RunId]) {
    for job in held {
        verb(world, &format!("/api/v1/jobs/{job}/resume"), &json!({ "reason": "all is well" })).await;
    }
}
