//! Detects stalls of the machine. The host of a virtual machine sometimes stops all its processors for tens of
//! milliseconds, which no program can prevent. A figure shows such stalls in addition to its result.
//!
//! ```text
//!   sleep 1 ms | check | sleep 1 ms | check | sleep 1 ms ....................... | check
//!                                                       `- 37 ms late, of which only 0.2 ms waited for a processor:
//!                                                          the machine stalled for 36.8 ms
//! ```
//!
//! A late timer has two possible causes: other programs used the processors (this is not a stall, because the measured
//! programs may cause it), or nothing could run. `/proc/thread-self/schedstat` distinguishes them: it counts the time in
//! which a thread was runnable and did not run. Without this file no stall is detected.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Interval of the checks.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Delays up to this time are not stalls.
const MIN_STALL: Duration = Duration::from_millis(4);

/// A time in which nothing ran on the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    from: Instant,
    length: Duration,
}

impl Stall {
    /// Whether the stall delayed a request that was due at `due`: directly, or by the backlog of the stall. At less than half
    /// load the backlog is gone after the length of the stall.
    pub(super) fn delayed(&self, due: Instant, waited: Duration) -> bool {
        due < self.from + 2 * self.length && self.from < due + waited
    }
}

/// The stalls since the start of the watch. The watch ends when the last clone is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls(Arc<Mutex<Vec<Stall>>>);

impl Stalls {
    /// Starts the watch.
    pub(super) fn watch() -> Self {
        let stalls = Self::default();
        let seen = Arc::downgrade(&stalls.0);
        // Without the thread no stall is detected.
        let _best_effort = std::thread::Builder::new().name("stalls".to_owned()).spawn(move || watch(&seen));
        stalls
    }

    /// Returns the stalls that delayed something between two times.
    pub(super) fn during(&self, from: Instant, to: Instant) -> Vec<Stall> {
        let stalls = self.0.lock();
        stalls.iter().filter(|stall| stall.delayed(from, to - from)).copied().collect()
    }
}

/// Returns the total length of stalls.
pub(super) fn total(stalls: &[Stall]) -> Duration {
    stalls.iter().map(|stall| stall.length).sum()
}

fn watch(seen: &Weak<Mutex<Vec<Stall>>>) {
    let Ok(schedstat) = File::open("/proc/thread-self/schedstat") else { return };
    let (mut last, Some(mut queued)) = (Instant::now(), in_queue(&schedstat)) else { return };
    loop {
        std::thread::sleep(POLL_INTERVAL);
        let Some(seen) = seen.upgrade() else { return };
        let (now, Some(queued_now)) = (Instant::now(), in_queue(&schedstat)) else { return };
        let length =
            now.duration_since(last).saturating_sub(POLL_INTERVAL + queued_now.saturating_sub(queued));
        if length > MIN_STALL {
            seen.lock().push(Stall { from: now - length, length });
        }
        (last, queued) = (now, queued_now);
    }
}

/// Returns the total time for which this thread has waited for a processor.
fn in_queue(schedstat: &File) -> Option<Duration> {
    let mut text = [0; 96];
    let read = schedstat.read_at(&mut text, 0).ok()?;
    let waited = std::str::from_utf8(text.get(..read)?).ok()?.split_whitespace().nth(1)?;
    waited.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_due_in_a_stall_or_its_backlog_are_delayed_and_no_others() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let stall = Stall { from: at(100), length: Duration::from_millis(40) };
        let delayed = |due, waited| stall.delayed(at(due), Duration::from_millis(waited));
        assert!(!delayed(95, 5));
        assert!(delayed(95, 50), "in flight when the stall began");
        assert!(delayed(120, 25));
        assert!(delayed(179, 2), "behind the backlog");
        assert!(!delayed(180, 2));
    }
}
