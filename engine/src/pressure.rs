//! Back-pressure: while the controller itself is short of something, nothing new begins. What has begun goes on: ending jobs
//! is what makes room.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use super::dispatcher::Engine;
use crate::model::{NewEvent, Pressure};

/// How long a look counts.
const EVERY: Duration = Duration::from_secs(5);

/// Sees whether the controller itself is short of something.
#[async_trait]
pub trait PressureGauge: Send + Sync {
    /// What it is short of right now.
    async fn read(&self) -> Option<Pressure>;
}

/// The last look.
#[derive(Default)]
pub(super) struct PressureCache {
    gauge: OnceLock<Arc<dyn PressureGauge>>,
    last: Mutex<(Option<Duration>, Option<Pressure>)>,
}

impl PressureCache {
    pub(super) fn set(&self, gauge: Arc<dyn PressureGauge>) {
        // The first one stays: an engine has one.
        let _first = self.gauge.set(gauge);
    }

    pub(super) fn now(&self) -> Option<Pressure> {
        self.last().1.clone()
    }

    fn last(&self) -> std::sync::MutexGuard<'_, (Option<Duration>, Option<Pressure>)> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Engine {
    /// Keeps anything new from beginning while a gauge shows pressure.
    pub fn gauge(&self, gauge: Arc<dyn PressureGauge>) {
        self.pressed().set(gauge);
    }

    /// What the controller is short of, as last seen.
    pub fn pressure(&self) -> Option<Pressure> {
        self.pressed().now()
    }

    /// Looks again if the last look was a while ago; a change is an event.
    pub(super) async fn read_gauge(&self) -> Option<Pressure> {
        let pressed = self.pressed();
        let gauge = pressed.gauge.get()?;
        let elapsed = self.clock().elapsed();
        let (looked, before) = pressed.last().clone();
        if looked.is_some_and(|looked| elapsed.saturating_sub(looked) < EVERY) {
            return before;
        }
        let seen = gauge.read().await;
        let seen = match (seen, &before) {
            (Some(seen), Some(before)) if seen.name == before.name => {
                Some(Pressure { since: before.since, ..seen })
            }
            (seen, _) => seen,
        };
        *pressed.last() = (Some(elapsed), seen.clone());
        let event = match (&before, &seen) {
            (before, Some(seen)) if before.as_ref().is_none_or(|before| before.name != seen.name) => {
                let message = format!("no job begins for now: {}", seen.detail);
                NewEvent::warn("controller.pressure", message).with(serde_json::json!(seen))
            }
            (Some(before), None) => NewEvent::info(
                "controller.pressure-ended",
                format!("{} is no longer short: jobs begin again", before.name),
            ),
            _ => return seen,
        };
        if let Err(error) = self.store().append(None, None, vec![event], self.clock().now()).await {
            // A full disk is what this is about: the gate stands without its event.
            tracing::warn!(error = %crate::model::error_chain(&error), "the controller is under pressure and could not write it down");
        }
        seen
    }
}
