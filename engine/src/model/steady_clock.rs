//! A wall clock that cannot be made to jump.
//!
//! ```text
//!   wall    ----------+                     somebody sets the clock an hour forward
//!                     +------------------
//!   steady  -----------.-'--'--'--'--'-     follows by a tenth of the time that passes, until both agree
//! ```
//!
//! Leases, waits and deadlines are points in time on disk. A controller whose clock is set an hour forward would find every
//! lease expired while its holder works, and every report overdue; set backward, it would sleep for an hour. With this clock
//! both only make time pass a tenth faster or slower for a while, which every lease bears: its holder counts by
//! [`Clock::elapsed`], and the grace before another may take it is longer than a tenth of it.
//!
//! Invariants: never runs backward; as long as nobody sets the clock it is the wall clock to the millisecond. After a restart
//! of the program it is the wall clock at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::time::{Clock, Time};

/// The part of passing time by which the wall clock is followed: 1/10.
const FOLLOW: i32 = 10;
/// A difference from which on it is said that somebody has set the clock.
const SET: SignedDuration = SignedDuration::from_secs(5);

/// A clock that follows another without its jumps.
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
    /// Begins at what the wall clock shows now.
    pub fn new(source: C) -> Self {
        let last = Reading { steady: source.now().timestamp(), elapsed: source.elapsed(), behind: false };
        Self { source, last: Mutex::new(last) }
    }
}

impl<C: Clock> Clock for SteadyClock<C> {
    fn now(&self) -> Time {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
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
            tell(off, behind);
        }
        *last = Reading { steady, elapsed, behind };
        Time::from_timestamp(steady)
    }

    fn elapsed(&self) -> Duration {
        self.source.elapsed()
    }
}

fn tell(off: SignedDuration, behind: bool) {
    if behind {
        let seconds = off.as_secs();
        tracing::warn!(
            seconds,
            "the system's clock was set; leases and deadlines follow it slowly, ten seconds for each second"
        );
    } else {
        tracing::info!("the system's clock is followed again to the second");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A wall clock that can be set, and time that only passes.
    #[derive(Debug)]
    struct Settable(Mutex<(Timestamp, Duration)>);

    impl Settable {
        fn new() -> Self {
            Self(Mutex::new(("2026-01-01T00:00:00Z".parse().unwrap(), Duration::ZERO)))
        }

        fn pass(&self, by: Duration) {
            let mut now = self.0.lock().unwrap();
            now.0 += by;
            now.1 += by;
        }

        fn set(&self, by: SignedDuration) {
            self.0.lock().unwrap().0 += by;
        }
    }

    impl Clock for &'static Settable {
        fn now(&self) -> Time {
            Time::from_timestamp(self.0.lock().unwrap().0)
        }

        fn elapsed(&self) -> Duration {
            self.0.lock().unwrap().1
        }
    }

    fn both() -> (&'static Settable, SteadyClock<&'static Settable>) {
        let wall: &'static Settable = Box::leak(Box::new(Settable::new()));
        (wall, SteadyClock::new(wall))
    }

    #[test]
    fn a_clock_that_nobody_sets_is_followed_to_the_millisecond() {
        let (wall, steady) = both();
        for step in 1..2_000_u64 {
            wall.pass(Duration::from_micros(step * 37));
            let off = wall.now().timestamp().duration_since(steady.now().timestamp()).abs();
            assert!(off <= SignedDuration::from_millis(1), "{off:?} after step {step}");
        }
    }

    #[test]
    fn an_hour_either_way_is_followed_by_a_tenth_of_the_time_and_then_reached() {
        for sign in [1, -1] {
            let (wall, steady) = both();
            let before = steady.now();
            wall.set(SignedDuration::from_hours(sign));
            assert_eq!(steady.now(), before, "setting it changes nothing at once");
            wall.pass(Duration::from_secs(60));
            let passed = steady.now().timestamp().duration_since(before.timestamp());
            assert_eq!(passed, SignedDuration::from_secs(60 + 6 * sign));
            for _minute in 0..11 * 60 {
                wall.pass(Duration::from_secs(60));
                steady.now();
            }
            assert_eq!(steady.now(), wall.now(), "it agrees again");
        }
    }

    proptest! {
        #[test]
        fn whatever_happens_to_the_wall_clock_time_passes_at_nearly_its_own_pace(
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
