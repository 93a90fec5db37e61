//! Pressure: while the controller is short of disk space or storage, no run starts. Runs that have started continue, because
//! ending them frees the resource.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use model::{Clock, NewEvent, Pressure};
use store::Store;

/// How long a reading is valid.
const EVERY: Duration = Duration::from_secs(5);

/// Reads whether the controller is short of a resource.
#[async_trait]
pub trait PressureGauge: Send + Sync {
    /// Returns the shortage of the controller; `None` when it is short of nothing.
    async fn read(&self) -> Option<Pressure>;
}

/// The gauge with its last reading.
#[derive(Default)]
pub(super) struct PressureCache {
    gauge: OnceLock<Arc<dyn PressureGauge>>,
    last: Mutex<(Option<Duration>, Option<Pressure>)>,
}

impl PressureCache {
    pub(super) fn set(&self, gauge: Arc<dyn PressureGauge>) {
        // An engine has one gauge: the first one stays.
        let _first = self.gauge.set(gauge);
    }

    pub(super) fn now(&self) -> Option<Pressure> {
        self.last.lock().1.clone()
    }

    /// Reads the gauge when the last reading is no longer valid, and logs a change as an event.
    pub(super) async fn read(&self, store: &Store, clock: &dyn Clock) -> Option<Pressure> {
        let gauge = self.gauge.get()?;
        let elapsed = clock.elapsed();
        let (read_at, before) = self.last.lock().clone();
        if read_at.is_some_and(|read_at| elapsed.saturating_sub(read_at) < EVERY) {
            return before;
        }
        let seen = gauge.read().await;
        let seen = match (seen, &before) {
            (Some(seen), Some(before)) if seen.name == before.name => {
                Some(Pressure { since: before.since, ..seen })
            }
            (seen, _) => seen,
        };
        *self.last.lock() = (Some(elapsed), seen.clone());
        let event = match (&before, &seen) {
            (before, Some(seen)) if before.as_ref().is_none_or(|before| before.name != seen.name) => {
                let message = format!("no job starts until the shortage ends: {}", seen.detail);
                NewEvent::warn("controller.pressure", message).with(serde_json::json!(seen))
            }
            (Some(before), None) => NewEvent::info(
                "controller.pressure-ended",
                format!("{} is no longer short: jobs start again", before.name),
            ),
            _ => return seen,
        };
        if let Err(error) = store.append(None, None, vec![event], clock.now()).await {
            // The shortage can be a full disk, on which no event can be written. The gate closes without it.
            tracing::warn!(error = %model::error_chain(&error), "the controller is under pressure and could not store the event");
        }
        seen
    }
}
