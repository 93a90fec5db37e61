//! Who keeps jobs from beginning for a while: everywhere, for work on the controller, or on one server.
//!
//! ```text
//!   drain ... undrain        maintenance of a server ... its end        (never left behind when the trouble is over)
//! ```

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;

use super::operator::request_until_answered;
use super::rng::WorldRng;
use super::world::World;

/// Closes and opens until the trouble is over.
pub(super) async fn drain_and_undrain(world: Arc<World>) {
    let Some(pause) = world.plan.fault_interval else { return };
    let rng = WorldRng::keyed(world.plan.seed, STREAM);
    loop {
        let left = world.plan.fault_time.saturating_sub(world.clock.passed());
        let pause = rng.time(Duration::from_secs(60), pause * 12);
        tokio::time::sleep(pause.min(left)).await;
        if pause >= left {
            return;
        }
        let path = match world.any_bmc(&rng) {
            Some((serial, _)) if rng.below(2) == 0 => format!("/api/v1/servers/{serial}/maintenance"),
            _ => "/api/v1/drain".to_owned(),
        };
        let body = json!({ "reason": "selftest" });
        let closed = request_until_answered(&world, &Method::POST, &path, None, &body).await;
        world.note(&format!("{path} begins: {:?}", closed.map(|answer| answer.status)));
        tokio::time::sleep(rng.seconds(10, 2400)).await;
        let opened = request_until_answered(&world, &Method::DELETE, &path, None, &body)
            .await
            .map(|answer| answer.status);
        world.note(&format!("{path} ends: {opened:?}"));
        if opened != Some(200) && opened != Some(202) {
            world.checker.violation(format!("{path} was not ended: {opened:?}"));
        }
    }
}
