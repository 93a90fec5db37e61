//! Time behind a trait: retries and pauses are tested with virtual time.

use std::{
    io,
    time::{Duration, Instant},
};

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

/// How far the clock may be ahead of the creation of the job: a job can wait for its machine.
const LONGEST_WAIT: i64 = 30 * 24 * 3600;
/// How far the time of the controller may be behind the creation of the job and still be taken.
const DAY: i64 = 24 * 3600;
/// A smaller difference to the controller's clock is left alone, in seconds.
const TOLERANCE: u64 = 5;

/// Returns the time that the clock should be set to; `None` when it is plausible. `controller` is the time that the controller
/// said in a response. A machine with an empty battery starts in 1970 or far in the future, where no certificate is valid.
#[must_use]
pub fn correction(
    machine: Timestamp,
    created_at: Timestamp,
    controller: Option<Timestamp>,
) -> Option<Timestamp> {
    let ahead = |time: Timestamp| time.as_second().saturating_sub(created_at.as_second());
    if let Some(controller) = controller.filter(|time| ahead(*time) >= -DAY) {
        let differs = machine.as_second().abs_diff(controller.as_second()) > TOLERANCE;
        return differs.then_some(controller);
    }
    (!(0..=LONGEST_WAIT).contains(&ahead(machine))).then_some(created_at)
}

/// Sets the clock of the operating system.
///
/// # Errors
/// Returns the error of the operating system.
pub fn set_system(time: Timestamp) -> io::Result<()> {
    let time = rustix::time::Timespec { tv_sec: time.as_second(), tv_nsec: 0 };
    rustix::time::clock_settime(rustix::time::ClockId::Realtime, time).map_err(Into::into)
}

/// Corrects the clock by `set` when it is not plausible.
pub fn set_clock(
    now: Timestamp,
    (created_at, controller): (Timestamp, Option<Timestamp>),
    set: &mut dyn FnMut(Timestamp) -> io::Result<()>,
    unit: &str,
    log: &Log,
) {
    let Some(time) = correction(now, created_at, controller) else { return };
    match set(time) {
        Ok(()) => log.line(unit, format!("the clock said {now}; it is set to {time}")),
        Err(source) => log.line(unit, format!("the clock says {now} and cannot be set: {source}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_clock_in_1970_or_far_in_the_future_is_set_to_the_creation_of_the_job_and_a_good_clock_stays() {
        let job = time("2026-01-02T03:04:05Z");
        for wrong in
            ["1970-01-01T00:00:00Z", "2026-01-02T03:00:00Z", "2026-03-02T03:04:05Z", "2099-01-01T00:00:00Z"]
        {
            assert_eq!(correction(time(wrong), job, None), Some(job), "{wrong}");
        }
        for good in ["2026-01-02T03:04:05Z", "2026-01-31T00:00:00Z"] {
            assert_eq!(correction(time(good), job, None), None, "{good}");
        }
    }

    #[test]
    fn the_time_of_the_controller_is_preferred_unless_it_is_before_the_job() {
        let (job, controller) = (time("2026-01-02T03:04:05Z"), time("2026-06-02T00:00:00Z"));
        assert_eq!(correction(time("2026-01-03T00:00:00Z"), job, Some(controller)), Some(controller));
        assert_eq!(correction(time("2026-06-02T00:00:03Z"), job, Some(controller)), None);
        assert_eq!(correction(time("2026-01-03T00:00:00Z"), job, Some(Timestamp::UNIX_EPOCH)), None);
    }

    #[test]
    fn the_clock_is_set_once_and_a_refusal_is_in_the_log() {
        let (job, log) = (time("2026-01-02T03:04:05Z"), Log::new(Vec::new()));
        let mut set = Vec::new();
        set_clock(
            time("2099-01-01T00:00:00Z"),
            (job, None),
            &mut |at| {
                set.push(at);
                Ok(())
            },
            "u",
            &log,
        );
        set_clock(
            job,
            (job, None),
            &mut |at| {
                set.push(at);
                Ok(())
            },
            "u",
            &log,
        );
        assert_eq!(set, [job]);
        set_clock(
            Timestamp::UNIX_EPOCH,
            (job, None),
            &mut |_| Err(io::ErrorKind::PermissionDenied.into()),
            "u",
            &log,
        );
        assert!(log.tail(4096).contains("cannot be set"));
    }
}
