//! A wall clock without jumps.
//!
//! ```text
//!   wall    ----------+                     the system clock is set an hour forward
//!                     +------------------
//!   steady  -----------.-'--'--'--'--'-     follows by a tenth of the time that passes, until both agree
//! ```
//!
//! Leases, waits and deadlines are stored as wall times. When the clock is set an hour forward, a controller without this clock
//! would find every lease expired and every report overdue; when the clock is set backward, it would sleep for an hour. With
//! this clock time only passes a tenth faster or slower for a while. Every lease allows for that: its holder measures with
//! [`Clock::elapsed`], and the grace before a takeover is longer than a tenth of the lease. What other systems sign or check (tokens,
//! certificates, deliveries) uses [`Clock::wall`], which is set with the system clock.
//!
//! A restart of the program changes nothing of it: the time goes on where the records of the former run say. If the machine was
//! started again too, it is known only that it is not earlier than the last sign of life.
//!
//! Invariants: the clock never runs backward, also over a restart. As long as the system clock is not set, both agree to the
//! millisecond. After a restart with a difference of more than `RESUMED_WITHIN` both agree at once: a clock that was so wrong is
//! not followed for days.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::time::{Clock, FormerRun, MachineRun, Time};

/// The part of passing time by which the wall clock is followed: 1/10.
const FOLLOW: i32 = 10;
/// The difference above which the system clock counts as set, and a warning is logged.
const SET: SignedDuration = SignedDuration::from_secs(5);
/// The largest difference with which a restarted program goes on.
const RESUMED_WITHIN: SignedDuration = SignedDuration::from_hours(2);

/// A clock that follows another clock without its jumps.
#[derive(Debug)]
pub struct SteadyClock<C> {
    source: C,
    last: Mutex<Reading>,
}

#[derive(Debug)]
struct Reading {
    steady: Timestamp,
    elapsed: Duration,
    behind: bool,
}

impl<C: Clock> SteadyClock<C> {
    /// A clock that starts at the current wall time.
    pub fn new(source: C) -> Self {
        let last = Reading { steady: source.now().timestamp(), elapsed: source.elapsed(), behind: false };
        Self { source, last: Mutex::new(last) }
    }
}

impl<C: Clock> Clock for SteadyClock<C> {
    fn now(&self) -> Time {
        let mut last = self.last.lock();
        // Both are read under the lock, so that readings are taken in order.
        let (wall, elapsed) = (self.source.now().timestamp(), self.source.elapsed());
        let passed = elapsed.saturating_sub(last.elapsed);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let expected = last.steady.saturating_add(passed).unwrap_or(Timestamp::MAX);
        let off = wall.duration_since(expected);
        let most = passed / FOLLOW;
        let steady = expected.saturating_add(off.clamp(-most, most)).unwrap_or(Timestamp::MAX);
        let behind = off.abs() > SET;
        if behind != last.behind {
            log_change(off, behind);
        }
        *last = Reading { steady, elapsed, behind };
        Time::from_timestamp(steady)
    }

    fn wall(&self) -> Time {
        self.source.wall()
    }

    fn machine_run(&self) -> Option<MachineRun> {
        self.source.machine_run()
    }

    fn resume(&self, former: FormerRun) {
        let mut last = self.last.lock();
        let (wall, elapsed) = (self.source.now().timestamp(), self.source.elapsed());
        let off = |at: &Timestamp| wall.duration_since(*at);
        // A record is written some time after its clock was read: a small difference says nothing.
        let known = former.now.map(Time::timestamp).filter(|at| off(at).abs() > SET);
        let steady = known.unwrap_or(wall).max(former.last_seen.timestamp());
        let off = off(&steady);
        if off.abs() <= RESUMED_WITHIN {
            let behind = off.abs() > SET;
            if behind {
                log_change(off, behind);
            }
            *last = Reading { steady, elapsed, behind };
        }
    }

    fn elapsed(&self) -> Duration {
        self.source.elapsed()
    }
}

fn log_change(off: SignedDuration, behind: bool) {
    if behind {
        let seconds = off.as_secs();
        tracing::warn!(
            seconds,
            "the system clock was set; leases and deadlines follow it slowly, ten seconds for each second of difference"
        );
    } else {
        tracing::info!("leases and deadlines follow the system clock to the second again");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A wall clock that can be set, with elapsed time that only grows.
    #[derive(Debug)]
    struct Settable(Mutex<(Timestamp, Duration)>);

    impl Settable {
        fn new() -> Self {
            Self(Mutex::new(("2026-01-01T00:00:00Z".parse().unwrap(), Duration::ZERO)))
        }

        fn pass(&self, by: Duration) {
            let mut now = self.0.lock();
            now.0 += by;
            now.1 += by;
        }

        fn set(&self, by: SignedDuration) {
            self.0.lock().0 += by;
        }
    }

    impl Clock for &'static Settable {
        fn now(&self) -> Time {
            Time::from_timestamp(self.0.lock().0)
        }

        fn elapsed(&self) -> Duration {
            self.0.lock().1
        }
    }

    fn both() -> (&'static Settable, SteadyClock<&'static Settable>) {
        let wall: &'static Settable = Box::leak(Box::new(Settable::new()));
        (wall, SteadyClock::new(wall))
    }

    #[test]
    fn a_clock_that_is_not_set_is_followed_to_the_millisecond() {
        let (wall, steady) = both();
        for step in 1..2_000_u64 {
            wall.pass(Duration::from_micros(step * 37));
            let off = wall.now().timestamp().duration_since(steady.now().timestamp()).abs();
            assert!(off <= SignedDuration::from_millis(1), "{off:?} after step {step}");
        }
    }

    #[test]
    fn a_jump_of_an_hour_is_followed_by_a_tenth_of_the_time_and_then_reached() {
        for sign in [1, -1] {
            let (wall, steady) = both();
            let before = steady.now();
            wall.set(SignedDuration::from_hours(sign));
            assert_eq!(steady.now(), before, "a jump changes nothing at once");
            assert_eq!(steady.wall(), wall.now(), "what other systems check has the new time at once");
            wall.pass(Duration::from_secs(60));
            let passed = steady.now().timestamp().duration_since(before.timestamp());
            assert_eq!(passed, SignedDuration::from_secs(60 + 6 * sign));
            for _minute in 0..11 * 60 {
                wall.pass(Duration::from_secs(60));
                steady.now();
            }
            assert_eq!(steady.now(), wall.now(), "both agree again");
        }
    }

    #[test]
    fn a_restart_goes_on_where_the_records_of_the_former_run_say_unless_its_clock_was_hours_away() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let (wall, _) = both();
        let now = wall.now();
        let resumed = |last_seen: Time, known: Option<Time>| {
            let steady = SteadyClock::new(wall);
            steady.resume(FormerRun { last_seen, now: known });
            steady.now()
        };
        // The machine runs on, and its clock was set by an hour, forward or back.
        assert_eq!(resumed(now.minus(hour + minute), Some(now.minus(hour))), now.minus(hour));
        assert_eq!(resumed(now.plus(hour - minute), Some(now.plus(hour))), now.plus(hour));
        // The machine was started again: it is not earlier than the last record, and may be later.
        assert_eq!(resumed(now.plus(hour), None), now.plus(hour));
        assert_eq!(resumed(now.minus(hour), None), now);
        // What was written late, and what was hours away.
        assert_eq!(resumed(now.minus(minute), Some(now.minus(Duration::from_secs(2)))), now);
        assert_eq!(resumed(now.plus(hour * 3), Some(now.plus(hour * 3))), now);
        assert_eq!(resumed(now.minus(hour * 24), Some(now.minus(hour * 3))), now);
    }

    proptest! {
        #[test]
        fn time_passes_within_a_tenth_of_its_rate_whatever_the_wall_clock_does(
            steps in proptest::collection::vec((1_u64..100_000, -7_200_000_i64..7_200_000), 1..50),
        ) {
            let (wall, steady) = both();
            let mut last = steady.now();
            for (pass, set) in steps {
                wall.set(SignedDuration::from_millis(set));
                wall.pass(Duration::from_millis(pass));
                let now = steady.now();
                let passed = now.timestamp().duration_since(last.timestamp()).as_millis();
                let real = i128::from(pass);
                prop_assert!(passed >= real * 9 / 10 - 1 && passed <= real * 11 / 10 + 1, "{passed} for {real}");
                last = now;
            }
        }
    }
}
