//! When the machine itself stood still: a virtual machine's processors are taken away now and then, all of them together, for
//! tens of milliseconds, and no program on it can help that. A figure says so beside what it found.
//!
//! ```text
//!   sleep 1 ms | look | sleep 1 ms | look | sleep 1 ms ....................... | look
//!                                                      `- rang 37 ms late, and only 0.2 of them waited for a processor:
//!                                                         nothing ran here for 36.8 ms
//! ```
//!
//! A timer that rings late has waited for a processor that others used (then the programs under measurement are at fault, and
//! nothing is said), or nothing could run. The kernel tells the two apart: `/proc/thread-self/schedstat` counts the time a
//! thread could have run and did not. Where it is not to be had, no still is known.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often the watch looks.
const LOOK: Duration = Duration::from_millis(1);
/// A timer that is late by less than this is no still.
const LATE: Duration = Duration::from_millis(4);

/// A time in which nothing ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    from: Instant,
    length: Duration,
}

impl Stall {
    /// Whether something that was waited for from `due` on was held up: by the still, or by what had piled up in it. At less
    /// than half load that is gone after as long again.
    pub(super) fn held_up(&self, due: Instant, waited: Duration) -> bool {
        due < self.from + 2 * self.length && self.from < due + waited
    }
}

/// The stills since the watch began; it ends with the last of these.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls(Arc<Mutex<Vec<Stall>>>);

impl Stalls {
    /// Begins to watch.
    pub(super) fn watch() -> Self {
        let stalls = Self::default();
        let seen = Arc::downgrade(&stalls.0);
        // Without a thread for it no still is known either.
        let _best_effort = std::thread::Builder::new().name("stalls".to_owned()).spawn(move || watch(&seen));
        stalls
    }

    /// Those that held up something between these.
    pub(super) fn during(&self, from: Instant, to: Instant) -> Vec<Stall> {
        let stalls = lock(&self.0);
        stalls.iter().filter(|still| still.held_up(from, to - from)).copied().collect()
    }
}

/// How long these took together.
pub(super) fn total(stalls: &[Stall]) -> Duration {
    stalls.iter().map(|still| still.length).sum()
}

fn watch(seen: &Weak<Mutex<Vec<Stall>>>) {
    let Ok(schedstat) = File::open("/proc/thread-self/schedstat") else { return };
    let (mut last, Some(mut queued)) = (Instant::now(), in_queue(&schedstat)) else { return };
    loop {
        std::thread::sleep(LOOK);
        let Some(seen) = seen.upgrade() else { return };
        let (now, Some(queued_now)) = (Instant::now(), in_queue(&schedstat)) else { return };
        let length = now.duration_since(last).saturating_sub(LOOK + queued_now.saturating_sub(queued));
        if length > LATE {
            lock(&seen).push(Stall { from: now - length, length });
        }
        (last, queued) = (now, queued_now);
    }
}

/// How long this thread has waited for a processor, in all.
fn in_queue(schedstat: &File) -> Option<Duration> {
    let mut text = [0; 96];
    let read = schedstat.read_at(&mut text, 0).ok()?;
    let waited = std::str::from_utf8(text.get(..read)?).ok()?.split_whitespace().nth(1)?;
    waited.parse().ok().map(Duration::from_nanos)
}

fn lock(stalls: &Mutex<Vec<Stall>>) -> MutexGuard<'_, Vec<Stall>> {
    stalls.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_in_a_still_or_as_long_after_it_was_held_up_and_nothing_else() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let still = Stall { from: at(100), length: Duration::from_millis(40) };
        let held_up = |due, waited| still.held_up(at(due), Duration::from_millis(waited));
        assert!(!held_up(95, 5));
        assert!(held_up(95, 50), "under way when it began");
        assert!(held_up(120, 25));
        assert!(held_up(179, 2), "behind what had piled up");
        assert!(!held_up(180, 2));
    }
}
