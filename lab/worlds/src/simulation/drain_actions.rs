//! Operators who stop new jobs for a while: on the whole controller (drain) or on one server (maintenance).
//!
//! ```text
//!   drain ... undrain        server maintenance ... end of maintenance        (all are ended when the fault time is over)
//! ```

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;

use super::operator::request_until_response;
use super::rng::WorldRng;
use super::world::World;

/// The random stream of this module. It never changes: recorded seeds replay their worlds with it.
const STREAM: u64 = 0x246b_f879_30b4_47e0;

/// Starts and ends drains and maintenance until the fault time is over.
pub(super) async fn drain_and_undrain(world: Arc<World>) {
    let Some(interval) = world.plan.fault_interval else { return };
    let rng = WorldRng::keyed(world.plan.seed, STREAM);
    loop {
        let left = world.plan.fault_time.saturating_sub(world.clock.passed());
        let delay = rng.time(Duration::from_secs(60), interval * 12);
        tokio::time::sleep(delay.min(left)).await;
        if delay >= left {
            return;
        }
        let path = match world.any_bmc(&rng) {
            Some((serial, _)) if rng.below(2) == 0 => format!("/api/v1/servers/{serial}/maintenance"),
            _ => "/api/v1/drain".to_owned(),
        };
        let body = json!({ "reason": "selftest" });
        let started = request_until_response(&world, &Method::POST, &path, None, &body).await;
        world.note(&format!("{path} starts: {:?}", started.map(|response| response.status)));
        tokio::time::sleep(rng.seconds(10, 2400)).await;
        let ended = request_until_response(&world, &Method::DELETE, &path, None, &body)
            .await
            .map(|response| response.status);
        world.note(&format!("{path} ends: {ended:?}"));
        if ended != Some(200) && ended != Some(202) {
            world.checker.violation(format!("{path} was not ended: {ended:?}"));
        }
    }
}
