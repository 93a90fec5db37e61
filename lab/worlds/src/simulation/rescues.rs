//! The operators of a world who use the rescue system of a server.
//!
//! ```text
//!   job with `rescue.target` ── 409: another job is active ──> later again
//!        │ the machine is reachable ──> finish | cancel | the minutes of the session pass
//!        └── the machine reports its end itself, fails, or hangs before (`machine`)
//! ```

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;

use super::network::ApiResponse;
use super::operator::request_until_response;
use super::rng::WorldRng;
use super::world::World;
use model::{RunId, Serial};

/// The random stream of this module.
const STREAM: u64 = 0x39b6_c8e1_d07f_5a24;
/// The interval of reads that search the session.
const LOOK: Duration = Duration::from_secs(30);
/// The step of a rescue session.
const SESSION: &str = "rescue.wait";

/// Rescues one server, once after another.
pub(super) async fn rescue(world: Arc<World>, number: u64, serial: Serial) {
    let rng = WorldRng::keyed(world.plan.seed ^ number.rotate_left(32), STREAM);
    for count in 0..world.plan.rescues {
        let share = world.plan.fault_time / u32::try_from(world.plan.rescues.max(1)).unwrap_or(u32::MAX);
        tokio::time::sleep(rng.time(Duration::from_secs(1), share)).await;
        let off = rng.below(2) == 0;
        let mut recipe = json!({ "task_target": "rescue.target", "session_minutes": 5 + rng.below(60) });
        if off {
            recipe["after"] = json!("off");
        }
        let body = json!({ "server_serial": serial, "recipe": recipe, "priority": rng.below(3) });
        let key = format!("{serial}-rescue-{count}");
        let response = request_until_response(&world, &Method::POST, "/api/v1/jobs", Some(&key), &body).await;
        let id: RunId = match response {
            Some(ApiResponse { status: 200 | 202, body }) => {
                let Some(id) = body["job_id"].as_str().and_then(|id| id.parse().ok()) else { continue };
                id
            }
            Some(ApiResponse { status: 409, .. }) => continue,
            response => {
                world.checker.violation(format!("a rescue of {serial} was not accepted: {response:?}"));
                continue;
            }
        };
        world.note(&format!("rescue {id} for {serial}"));
        world.checker.acknowledged(&key, id);
        world.watch_rescue(id, &serial, off);
        use_session(&world, &rng, id).await;
    }
}

/// Waits for the session and ends it, or lets its time pass.
async fn use_session(world: &Arc<World>, rng: &WorldRng, id: RunId) {
    let verb = match rng.below(4) {
        0 => return wait_for(world, id, None).await,
        1 => "cancel",
        _ => "finish",
    };
    wait_for(world, id, Some(SESSION)).await;
    tokio::time::sleep(rng.seconds(5, 2400)).await;
    let path = format!("/api/v1/jobs/{id}/{verb}");
    let body = json!({ "reason": "selftest" });
    let response = request_until_response(world, &Method::POST, &path, None, &body).await;
    let status = response.map(|response| response.status);
    world.note(&format!("{path}: {status:?}"));
    match (verb, status) {
        ("finish", Some(202)) => world.checker.finish_acknowledged(id),
        ("cancel", Some(202)) => world.checker.cancel_acknowledged(id),
        _ => {}
    }
    wait_for(world, id, None).await;
}

/// Waits until a run is in a step, or has ended.
async fn wait_for(world: &World, id: RunId, step: Option<&str>) {
    while !world.observer().peek_ended(id) {
        if step.is_some() {
            let job = world.observer().job(id).await.ok().flatten();
            let now = job.and_then(|job| job.run.step);
            if now.as_deref() == step {
                return;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
