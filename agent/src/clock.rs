//! Time behind a trait: retries and pauses are tested with virtual time.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::log::Log;

/// The clock of the machine.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> Timestamp;
    /// Returns the time since an arbitrary moment; it never runs backwards.
    fn elapsed(&self) -> Duration;
    /// Waits.
    fn sleep(&self, pause: Duration);
}

/// The clock of the operating system.
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// Returns the time of day to use: the latest of what the machine says and of times that certainly have passed. A
/// machine with an empty battery starts in 1970, where no certificate is valid.
#[must_use]
pub fn plausible_now(machine: Timestamp, passed: &[Timestamp]) -> Timestamp {
    passed.iter().copied().fold(machine, Timestamp::max)
}

/// Moves a clock that is behind the creation of the job: no certificate is valid in 1970.
pub fn set_clock(clock: &dyn Clock, created_at: Timestamp, unit: &str, log: &Log) {
    let now = clock.now();
    let plausible = plausible_now(now, &[created_at]);
    if plausible == now {
        return;
    }
    let time = rustix::time::Timespec { tv_sec: plausible.as_second(), tv_nsec: 0 };
    match rustix::time::clock_settime(rustix::time::ClockId::Realtime, time) {
        Ok(()) => log.line(unit, format!("the clock said {now}; it is set to {plausible}")),
        Err(source) => log.line(unit, format!("the clock says {now} and cannot be set: {source}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_1970_is_moved_to_the_creation_of_the_job_and_a_good_clock_stays() {
        let job: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let built: Timestamp = "2025-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(plausible_now(Timestamp::UNIX_EPOCH, &[built, job]), job);
        let later: Timestamp = "2026-05-02T03:04:05Z".parse().unwrap();
        assert_eq!(plausible_now(later, &[built, job]), later);
    }
}
