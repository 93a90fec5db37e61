//! The system clock with an offset: time passes and can also be skipped.

use std::sync::Mutex;
use std::time::Duration;

use model::{Clock, SystemClock, Time};

/// A clock that can be put forward.
#[derive(Debug, Default)]
pub(crate) struct SkippingClock {
    skipped: Mutex<Duration>,
}

impl SkippingClock {
    /// Puts the clock forward.
    pub(crate) fn skip(&self, by: Duration) {
        *self.skipped.lock().unwrap() += by;
    }

    fn skipped(&self) -> Duration {
        *self.skipped.lock().unwrap()
    }
}

impl Clock for SkippingClock {
    fn now(&self) -> Time {
        SystemClock.now().plus(self.skipped())
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed() + self.skipped()
    }
}
