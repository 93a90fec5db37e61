//! Time behind a trait: retries and pauses are tested with virtual time.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::log::Log;

/// The clock of the machine.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> Timestamp;
    /// Returns the time since an arbitrary moment; it never runs backwards.
    fn elapsed(&self) -> Duration;
    /// Waits for this time.
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

/// How far ahead of the creation of a job a clock can be right: ten years. The medium of a job with `delivery: media` can lie on a shelf
/// for long, and a job can wait in its queue for months; of either the clock of a machine is right more often than the creation.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(3653 * 24);
/// A clock that is farther ahead of the creation of a job is worth a line in the log.
const LONG_WAIT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How far the time of the controller may be behind the creation of the job and still be taken.
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// A smaller difference to the clock of the controller is left alone.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(60);

/// Returns the time to set a clock to that cannot be right. `controller` is the time in a response of the controller: a clock that
/// differs from it is set to it. Without one, a clock behind the creation of the job, or ten years ahead of it, is set to that creation. A
/// machine with an empty battery starts in 1970, another one in 2099; in both no certificate is valid. A right clock is never set back:
/// a certificate that the controller got since the creation would not be valid yet.
#[must_use]
pub fn correction(now: Timestamp, created_at: Timestamp, controller: Option<Timestamp>) -> Option<Timestamp> {
    // A controller before its own job has a clock that is worth less than the one of the machine.
    if let Some(controller) = controller.filter(|time| time.duration_since(created_at) >= -DAY) {
        return (now.duration_since(controller).abs() > TOLERANCE).then_some(controller);
    }
    let age = now.duration_since(created_at);
    (age.is_negative() || age > LONGEST_WAIT).then_some(created_at)
}

/// Sets a clock that cannot be right by [`correction`].
pub fn set_clock(
    clock: &dyn Clock,
    created_at: Timestamp,
    controller: Option<Timestamp>,
    unit: &str,
    log: &Log,
) {
    let now = clock.now();
    let Some(time) = correction(now, created_at, controller) else {
        let age = now.duration_since(created_at);
        if controller.is_none() && age > LONG_WAIT {
            let days = age.as_hours() / 24;
            log.line(
                unit,
                format!("the clock says {now}, {days} days after the job was created; it is left alone"),
            );
        }
        return;
    };
    let seconds = rustix::time::Timespec { tv_sec: time.as_second(), tv_nsec: 0 };
    match rustix::time::clock_settime(rustix::time::ClockId::Realtime, seconds) {
        Ok(()) => log.line(unit, format!("the clock said {now}; it is set to {time}")),
        Err(source) => log.line(unit, format!("the clock says {now} and cannot be set: {source}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::VirtualClock;

    #[test]
    fn a_clock_before_the_job_or_a_decade_ahead_is_set_to_the_creation_of_the_job() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let job = at("2026-01-02T03:04:05Z");
        for wrong in
            ["1970-01-01T00:00:00Z", "2026-01-02T03:04:04Z", "2036-02-02T03:04:05Z", "2099-01-01T00:00:00Z"]
        {
            assert_eq!(correction(at(wrong), job, None), Some(job), "{wrong}");
        }
    }

    #[test]
    fn a_right_clock_stays_although_the_medium_was_made_long_ago() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let job = at("2026-01-02T03:04:05Z");
        for right in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T09:00:00Z",
            "2026-02-02T03:04:05Z",
            "2027-01-01T00:00:00Z",
            "2035-12-31T00:00:00Z",
        ] {
            assert_eq!(correction(at(right), job, None), None, "{right}");
        }
    }

    #[test]
    fn a_clock_that_is_far_ahead_of_its_job_is_left_alone_with_a_word() {
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        set_clock(&clock, "2026-05-31T00:00:00Z".parse().unwrap(), None, "u", &log);
        assert_eq!(log.tail(100), "");
        set_clock(&clock, "2025-06-01T00:00:00Z".parse().unwrap(), None, "u", &log);
        assert!(log.tail(200).contains("365 days after the job was created"), "{}", log.tail(200));
    }

    #[test]
    fn the_time_of_the_controller_is_preferred_unless_it_is_before_the_job() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (job, controller) = (at("2026-01-02T03:04:05Z"), at("2026-06-02T00:00:00Z"));
        assert_eq!(correction(at("2026-01-03T00:00:00Z"), job, Some(controller)), Some(controller));
        assert_eq!(correction(at("2026-06-02T00:00:30Z"), job, Some(controller)), None);
        assert_eq!(correction(at("2026-01-03T00:00:00Z"), job, Some(Timestamp::UNIX_EPOCH)), None);
        assert_eq!(correction(at("1970-01-01T00:00:00Z"), job, Some(Timestamp::UNIX_EPOCH)), Some(job));
    }
}
