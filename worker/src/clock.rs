//! The clock of a worker elsewhere: its wall time is that of the controller, its leases are measured on its own machine.

use std::time::Duration;

use parking_lot::Mutex;

use model::{Clock, SystemClock, Time};

/// Shows the time that the controller said last, plus what has passed since. The wall clock of this machine counts for nothing.
pub(super) struct FollowingClock {
    source: SystemClock,
    said: Mutex<(Time, Duration)>,
}

impl FollowingClock {
    pub(super) fn new() -> Self {
        let source = SystemClock;
        Self { source, said: Mutex::new((source.now(), source.elapsed())) }
    }

    /// Follows the time in a response of the controller.
    pub(super) fn follow(&self, now: Time) {
        *self.said.lock() = (now, self.source.elapsed());
    }
}

impl Clock for FollowingClock {
    fn now(&self) -> Time {
        let (time, since) = *self.said.lock();
        time.plus(self.source.elapsed().saturating_sub(since))
    }

    fn elapsed(&self) -> Duration {
        self.source.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_time_is_that_of_the_controller() {
        let clock = FollowingClock::new();
        let said: Time = "2031-01-01T00:00:00Z".parse().unwrap();
        clock.follow(said);
        assert!(clock.now() >= said && clock.now().since(said) < Duration::from_secs(60));
    }
}
