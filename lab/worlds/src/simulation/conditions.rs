//! The operators of a world who request conditions of servers: power cycles, restarts of the BMC, out-of-band inventories.
//!
//! ```text
//!   request (some behind others, with a priority) ── 409: an open condition ──> later again
//!        │ acknowledged ──> must end; a power cycle that succeeded leaves its host on
//!        └── some are cancelled
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

/// The random stream of this module. It never changes: recorded seeds replay their worlds with it.
const STREAM: u64 = 0x1c0d_a7e5_90be_3f21;
/// The kinds with the share of each.
const KINDS: [&str; 5] = ["powerCycleHard", "powerCycleSoft", "PowerCycleSoft", "bmcReset", "inventoryOOB"];

/// Requests the conditions of one server.
pub(super) async fn request_conditions(world: Arc<World>, number: u64, serial: Serial) {
    let rng = WorldRng::keyed(world.plan.seed ^ number.rotate_left(32), STREAM);
    for count in 0..world.plan.conditions {
        let share = world.plan.fault_time / u32::try_from(world.plan.conditions.max(1)).unwrap_or(u32::MAX);
        tokio::time::sleep(rng.time(Duration::from_secs(1), share)).await;
        let kind = rng.choose(&KINDS).copied().unwrap_or("powerCycleHard");
        let is_cycle = kind.to_ascii_lowercase().starts_with("powercycle");
        let parameters = match kind {
            "powerCycleHard" => json!({ "power_on": true }),
            _ if is_cycle => json!({ "power_on": true, "force": true, "grace_seconds": 1 + rng.below(120) }),
            _ => json!({}),
        };
        let body = json!({
            "kind": kind, "parameters": parameters, "queue": rng.below(2) == 0, "priority": rng.below(20),
        });
        let (key, path) =
            (format!("{serial}-condition-{count}"), format!("/api/v1/servers/{serial}/condition"));
        let response = request_until_response(&world, &Method::POST, &path, Some(&key), &body).await;
        let id: RunId = match response {
            Some(ApiResponse { status: 200, body }) => {
                let Some(id) = body["id"].as_str().and_then(|id| id.parse().ok()) else { continue };
                id
            }
            // Another condition of the server is open. The operator does not insist.
            Some(ApiResponse { status: 409, .. }) => continue,
            response => {
                world.checker.violation(format!("{kind} of {serial} was not accepted: {response:?}"));
                continue;
            }
        };
        world.note(&format!("{kind} {id} for {serial}"));
        world.checker.condition_acknowledged(&key, id, is_cycle);
        if rng.below(6) == 0 {
            tokio::time::sleep(rng.seconds(1, 300)).await;
            let path = format!("/api/v1/jobs/{id}/cancel");
            let reason = json!({ "reason": "selftest" });
            let cancelled = request_until_response(&world, &Method::POST, &path, None, &reason).await;
            if cancelled.is_some_and(|response| response.status == 202) {
                world.checker.cancel_acknowledged(id);
            }
        }
    }
}
