//! The clock of a world: virtual time, and somebody who sets the wall clock.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use engine::model::{Clock, Time};

/// Virtual time with an offset that can be changed.
#[derive(Debug)]
pub(super) struct WorldClock {
    began: Instant,
    start: Time,
    set_by: Mutex<SignedDuration>,
}

impl WorldClock {
    pub(super) fn new(start: Time) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), start, set_by: Mutex::new(SignedDuration::ZERO) })
    }

    /// Somebody sets the wall clock.
    pub(super) fn set(&self, by: SignedDuration) {
        let mut set_by = self.set_by.lock().unwrap_or_else(PoisonError::into_inner);
        *set_by = set_by.saturating_add(by);
    }

    /// Since the world began.
    pub(super) fn passed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// A handle of the clock.
#[derive(Clone, Debug)]
pub(super) struct WorldWallClock(pub(super) Arc<WorldClock>);

impl Clock for WorldWallClock {
    fn now(&self) -> Time {
        let set_by = *self.0.set_by.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.start.plus(self.0.passed());
        let by = set_by.unsigned_abs();
        if set_by.is_negative() { now.minus(by) } else { now.plus(by) }
    }

    fn elapsed(&self) -> Duration {
        self.0.passed()
    }
}
