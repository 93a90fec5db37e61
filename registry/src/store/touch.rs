//! The time at which a repository's content was last used.
//!
//! ```text
//!  HEAD or GET served  ->  used a moment ago?  yes: nothing
//!                                              no:  mtime of the record := now, under its transition lock
//! ```
//!
//! The age of content is the age of its record on disk, so it survives a restart and needs no table. The memory here
//! only saves system calls: a fixed number of slots, each with the last record that used it. A record that lost its
//! slot is touched again. So a record on disk is never more than [`Touches::margin`] older than the last use, which
//! garbage collection allows for.
//!
//! If a record cannot be touched (a full or a read-only disk), the response is sent nevertheless and the touch is kept
//! in memory. If there are too many of these, all content counts as used at that moment: that delays garbage collection
//! by a grace period and causes no error.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// File times are as precise as the kernel's clock.
const TICK: Duration = Duration::from_millis(20);
const SLOTS: usize = 1 << 14;
const UNSAVED_MAX: usize = 1 << 14;

/// The records touched recently.
pub(super) struct Touches {
    /// The interval in which a record is touched once.
    interval: Duration,
    since: Instant,
    opened: SystemTime,
    keys: RandomState,
    /// Upper half: the record; lower half: the second of its last touch.
    slots: Box<[AtomicU64]>,
    unsaved: Mutex<Unsaved>,
}

/// Touches that could not be written to disk.
struct Unsaved {
    /// The times of the touches, by the hash of the record.
    touched: HashMap<u64, SystemTime>,
    /// The time up to which all content counts as touched.
    everything: SystemTime,
}

impl Touches {
    pub(super) fn new(interval: Duration) -> Self {
        Touches {
            interval,
            since: Instant::now(),
            opened: SystemTime::now(),
            keys: RandomState::new(),
            slots: std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect(),
            unsaved: Mutex::new(Unsaved { touched: HashMap::new(), everything: UNIX_EPOCH }),
        }
    }

    /// Whether `record` was touched within the interval.
    pub(super) fn fresh(&self, record: &Path) -> bool {
        let (slot, tag) = self.slot(record);
        let value = slot.load(Ordering::Relaxed);
        value != 0
            && value >> 32 == tag
            && self.second() - (value & u64::from(u32::MAX)) < self.interval.as_secs()
    }

    /// Records that `record` was just touched.
    pub(super) fn note(&self, record: &Path) {
        let (slot, tag) = self.slot(record);
        slot.store(tag << 32 | self.second(), Ordering::Relaxed);
    }

    /// Records that `record` was removed: a later one of the same name is touched again.
    pub(super) fn forget(&self, record: &Path) {
        self.slot(record).0.store(0, Ordering::Relaxed);
    }

    /// Records that `record` was just touched, in memory only.
    pub(super) fn unsaved(&self, record: &Path) {
        let mut unsaved = self.unsaved.lock();
        let now = SystemTime::now();
        if unsaved.touched.len() == UNSAVED_MAX {
            unsaved.touched.clear();
            unsaved.everything = now;
        }
        unsaved.touched.insert(self.keys.hash_one(record), now);
    }

    /// Whether `record` was touched after `limit` in memory only.
    pub(super) fn younger(&self, record: &Path, limit: SystemTime) -> bool {
        let unsaved = self.unsaved.lock();
        let touched = unsaved.touched.get(&self.keys.hash_one(record));
        unsaved.everything > limit || touched.is_some_and(|touched| *touched > limit)
    }

    /// The most by which a record can be older than the last use: the interval, the clock's tick, and as much as the
    /// wall clock was set forward since the store was opened.
    pub(super) fn margin(&self) -> Duration {
        self.interval + TICK + self.clock_jump()
    }

    /// The time by which the wall clock was set forward since the store was opened.
    pub(super) fn clock_jump(&self) -> Duration {
        SystemTime::now().duration_since(self.opened).unwrap_or_default().saturating_sub(self.since.elapsed())
    }

    /// Makes the wall clock one that was set forward after the store was opened.
    #[cfg(test)]
    pub(super) fn set_clock_forward(&mut self, by: Duration) {
        self.opened -= by;
    }

    /// Starts at 1, so that no slot in use is zero.
    fn second(&self) -> u64 {
        (self.since.elapsed().as_secs() + 1).min(u64::from(u32::MAX))
    }

    fn slot(&self, record: &Path) -> (&AtomicU64, u64) {
        let hash = self.keys.hash_one(record);
        (&self.slots[hash as usize % SLOTS], hash >> 32)
    }
}
