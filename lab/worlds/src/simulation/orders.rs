//! The orders of operators of a world that may restart a host: installations of firmware, changes of BIOS settings.
//!
//! Random decisions are drawn in one order, so that a recorded seed keeps its world.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::network::ApiResponse;
use super::operator::request_until_response;
use super::rng::WorldRng;
use super::world::World;
use model::{Clock, Idempotency, RunId, Serial, Time};

/// The interval in which an operator reads a job.
pub(super) const LOOK: Duration = Duration::from_secs(30);
/// The number of a restart that an operator makes by hand, which no installer uses.
pub(super) const BY_OPERATOR: u32 = 2;

/// The permission of an order to restart the host.
pub(super) enum Restart {
    AtOnce,
    Forbidden,
    From(Time),
    Between(Time, Time),
}

impl Restart {
    pub(super) fn draw(rng: &WorldRng, now: Time) -> Self {
        let (from, until) = (rng.seconds(1, 5400), rng.seconds(60, 7200));
        match rng.below(6) {
            0 => Self::Forbidden,
            1 => Self::From(now.plus(from)),
            2 => Self::Between(now.plus(from), now.plus(from + until)),
            _ => Self::AtOnce,
        }
    }

    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Forbidden)
    }

    /// Adds the permission to the parameters of an order.
    pub(super) fn add_to(&self, parameters: &mut Value) {
        match self {
            Self::AtOnce => {}
            Self::Forbidden => parameters["restart"] = json!("forbidden"),
            Self::From(from) => parameters["restart_from"] = json!(from),
            Self::Between(from, until) => {
                parameters["restart_from"] = json!(from);
                parameters["restart_until"] = json!(until);
            }
        }
    }
}

/// Orders a condition, and notes its acknowledgement. `None` when the controller refused the order for an expected reason: the
/// status codes of `refusals`, or a time that has passed.
pub(super) async fn order(
    world: &Arc<World>,
    rng: &WorldRng,
    (serial, kind, key): (&Serial, &str, String),
    parameters: &Value,
    refusals: &[u16],
) -> Option<RunId> {
    let now = world.wall_clock().now();
    let body = json!({
        "kind": kind, "parameters": parameters, "queue": rng.below(4) > 0, "priority": rng.below(20),
        "deadline": now.plus(rng.seconds(3600, 5 * 3600)),
    });
    let path = format!("/api/v1/servers/{serial}/condition");
    match request_until_response(world, &Method::POST, &path, Some(&key), &body).await {
        Some(ApiResponse { status: 200, body }) => {
            let id = body["id"].as_str()?.parse().ok()?;
            world.note(&format!("{kind} {id} for {serial}: {parameters}"));
            world.checker.acknowledged(&key, id);
            Some(id)
        }
        Some(ApiResponse { status, .. }) if refusals.contains(&status) => None,
        // The wall clock was set, or no controller responded until deadline or window had passed. A request that was accepted
        // before, without a response that arrived, is never refused for its time.
        Some(ApiResponse { status: 400, body }) if has_passed(&body) => {
            let request = Idempotency { key, request_sha256: String::new() };
            let accepted = world.observer().earlier(serial, Some(&request)).await;
            if !matches!(accepted, Ok(None)) {
                let what = format!("{kind} for {serial} was accepted, and its repetition refused: {body}");
                world.checker.violation(what);
            }
            None
        }
        response => {
            world.checker.violation(format!("{kind} for {serial} was not accepted: {response:?}"));
            None
        }
    }
}

/// Whether the only reason of a refusal is a time that has passed.
fn has_passed(refusal: &Value) -> bool {
    let details = refusal["details"].as_array();
    details.is_some_and(|details| {
        details.iter().all(|detail| {
            detail["path"] == "/deadline"
                || (detail["path"] == "/parameters/restart_until" && detail["code"] == "range")
        })
    })
}

/// Whether a run waits for this reason.
pub(super) async fn waits_for(world: &World, id: RunId, reason: &str) -> bool {
    let job = world.observer().job(id).await.ok().flatten();
    job.and_then(|job| job.run.wait).is_some_and(|wait| wait.reason.as_str() == reason)
}

/// Cancels a run.
pub(super) async fn cancel_run(world: &Arc<World>, id: RunId) {
    let (path, reason) = (format!("/api/v1/jobs/{id}/cancel"), json!({ "reason": "selftest" }));
    let response = request_until_response(world, &Method::POST, &path, None, &reason).await;
    let status = response.map(|response| response.status);
    world.note(&format!("{path}: {status:?}"));
    if status == Some(202) {
        world.checker.cancel_acknowledged(id);
    }
}
