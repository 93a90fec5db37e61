//! Time as the whole system writes it, and the clock from which it is read.
//!
//! ```text
//! 2026-11-20T07:49:08.123Z      RFC 3339, UTC, always milliseconds: 24 bytes, so that text order is time order
//! ```
//!
//! Invariant: only the controller's start creates a clock of the system. Every other module receives a [`Clock`], so that a test
//! controls time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A point in time with millisecond precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(Timestamp);

impl Time {
    /// The time of a timestamp, truncated to whole milliseconds.
    pub fn from_timestamp(stamp: Timestamp) -> Self {
        let whole = Timestamp::from_millisecond(stamp.as_millisecond()).unwrap_or(Timestamp::UNIX_EPOCH);
        Self(whole)
    }

    /// The timestamp inside.
    pub fn timestamp(self) -> Timestamp {
        self.0
    }

    /// Whole seconds since 1970, as ISO images and signatures use them.
    pub fn unix_seconds(self) -> i64 {
        self.0.as_second()
    }

    /// Milliseconds since 1970.
    pub fn unix_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// This time plus a duration; saturates at the end of the calendar.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        Self(self.0.saturating_add(by).unwrap_or(Timestamp::MAX))
    }

    /// This time minus a duration; saturates at the beginning of the calendar.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        Self(self.0.saturating_sub(by).unwrap_or(Timestamp::MIN))
    }

    /// The duration since `earlier`; zero when `earlier` is later, so that a clock that was set back gives no negative wait.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::try_from(self.0.duration_since(earlier.0)).unwrap_or(Duration::ZERO)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

/// The error of a text that is not an RFC 3339 timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 timestamp: {0:?}")]
pub struct InvalidTime(String);

impl FromStr for Time {
    type Err = InvalidTime;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Timestamp>()
            .map(Self::from_timestamp)
            .map_err(|_| InvalidTime(text.chars().take(40).collect()))
    }
}

impl TryFrom<String> for Time {
    type Error = InvalidTime;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

/// A run of the machine, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineRun {
    /// The id of the start.
    pub boot: String,
    /// How long the machine has run, suspended or not.
    pub ran: Duration,
}

/// What the records of a former run of the program say about the time of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerRun {
    /// The last sign of life: it is not earlier now.
    pub last_seen: Time,
    /// The time of now by the clock of the former run, if the machine was not started again since.
    pub now: Option<Time>,
}

/// The source of wall time and of elapsed time.
pub trait Clock: Send + Sync + 'static {
    /// The current wall time, by which leases, waits and deadlines are judged. It may follow a clock that was set slowly.
    fn now(&self) -> Time;
    /// The time of day as other systems know it: for what they have signed or will check, such as tokens, certificates and the
    /// timestamps of deliveries. It jumps when the clock of the machine is set.
    fn wall(&self) -> Time {
        self.now()
    }
    /// The run of the machine: what goes on while the program does not run. `None` where it is not known.
    fn machine_run(&self) -> Option<MachineRun> {
        None
    }
    /// Continues the time of a former run of the program. A clock that is the wall clock itself does nothing.
    fn resume(&self, _former: FormerRun) {}
    /// The time since an arbitrary start. It never jumps and also counts while the machine is suspended. Leases are measured
    /// with it, so that a suspended controller finds its leases expired (decision D7).
    fn elapsed(&self) -> Duration;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn wall(&self) -> Time {
        (**self).wall()
    }

    fn machine_run(&self) -> Option<MachineRun> {
        (**self).machine_run()
    }

    fn resume(&self, former: FormerRun) {
        (**self).resume(former);
    }

    fn elapsed(&self) -> Duration {
        (**self).elapsed()
    }
}

/// The clocks of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::from_timestamp(Timestamp::now())
    }

    #[cfg(target_os = "linux")]
    fn machine_run(&self) -> Option<MachineRun> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let boot = boot.trim().to_owned();
        // Elapsed time is counted from the start of the machine.
        (!boot.is_empty()).then(|| MachineRun { boot, ran: self.elapsed() })
    }

    fn elapsed(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let spec = rustix::time::clock_gettime(id);
        Duration::new(u64::try_from(spec.tv_sec).unwrap_or(0), u32::try_from(spec.tv_nsec).unwrap_or(0))
    }
}

/// A clock that moves only by [`ManualClock::advance`] and [`ManualClock::set`].
#[derive(Debug)]
pub struct ManualClock {
    start: Mutex<Time>,
    elapsed: Mutex<Duration>,
}

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: Time) -> Self {
        Self { start: Mutex::new(start), elapsed: Mutex::new(Duration::ZERO) }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut elapsed = self.elapsed.lock();
        *elapsed += by;
    }

    /// Sets the wall time. The elapsed time stays.
    pub fn set(&self, now: Time) {
        *self.start.lock() = now.minus(*self.elapsed.lock());
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        self.start.lock().plus(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        *self.elapsed.lock()
    }
}

/// A duration as text, rounded to whole seconds.
pub fn whole_seconds(duration: Duration) -> String {
    let signed = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    format!("{:#}", signed.round(Unit::Second).unwrap_or(signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_order_is_time_order_and_the_width_is_fixed() {
        let a: Time = "2026-11-20T07:49:08Z".parse().unwrap();
        let b = a.plus(Duration::from_millis(1));
        assert_eq!(a.to_string(), "2026-11-20T07:49:08.000Z");
        assert_eq!(b.to_string(), "2026-11-20T07:49:08.001Z");
        assert!(a.to_string() < b.to_string());
        assert_eq!(b.since(a), Duration::from_millis(1));
        assert_eq!(a.since(b), Duration::ZERO);
    }

    #[test]
    fn a_time_is_unchanged_by_writing_and_reading() {
        let a: Time = "1999-12-31T23:59:59.9999+01:00".parse().unwrap();
        assert_eq!(a.to_string().parse::<Time>().unwrap(), a);
    }

    #[test]
    fn the_system_clock_does_not_run_backwards() {
        let first = SystemClock.elapsed();
        assert!(SystemClock.elapsed() >= first);
    }
}
