//! The locks of the store.
//!
//! ```text
//!  references (one per repository)   shared:    put a manifest, from the check of its references until it is durable
//!                                    exclusive: delete, and garbage collection of a few records
//!  transition (one of 256, by digest)           content and its records appear, disappear or get a new time;
//!                                               held for a few system calls, never for an fsync
//!  barrier                                      during a garbage collection: everything that was referred to since
//! ```
//!
//! Taken in this order, one of each kind at a time. Reading content takes none of them, except for the transition lock
//! when the time of its record is updated, once a minute.
//!
//! The barrier makes collection exact independently of clocks: garbage is found by walking directories without any
//! lock, and content that is pushed, mounted or referred to meanwhile is in the barrier and stays.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::cache::Changes;
use crate::digest::Digest;

const TRANSITIONS: usize = 256;
/// The limit of digests in a barrier; beyond it the barrier keeps everything.
const BARRIER_MAX: usize = 1 << 20;

/// The first half of a digest: enough to distinguish contents where a collision only keeps something longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn of(digest: &Digest) -> Self {
        // Digests are canonical hex of 64 characters or more.
        Key(u128::from_str_radix(digest.hex().get(..32).unwrap_or_default(), 16).unwrap_or_default())
    }

    /// The first four bits of the digest.
    pub(super) fn nibble(self) -> u8 {
        (self.0 >> 124) as u8
    }
}

/// The references of one repository: its manifests, tags and pins.
#[derive(Debug, Default)]
pub(super) struct References {
    lock: RwLock<()>,
    /// The changes of the manifests and tags of the repository, for readers that take no lock.
    pub(super) changes: Changes,
    /// The time of the newest tag, since this process pushed one. Locked after all other locks, for a few system calls.
    pub(super) newest_tag: Mutex<Option<SystemTime>>,
}

impl References {
    /// While held, referenced content is not removed.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read()
    }

    /// While held, no new reference is made.
    pub(super) fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write()
    }
}

/// The locks by digest, and the barrier.
pub(super) struct Locks {
    transitions: Box<[Mutex<()>]>,
    barrier: Mutex<Option<Barrier>>,
    collecting: Mutex<()>,
}

#[derive(Debug)]
enum Barrier {
    These(HashSet<Key>),
    Everything,
}

/// A running collection; digests referred to during its lifetime are kept.
pub(super) struct Collecting<'a> {
    locks: &'a Locks,
    _only: MutexGuard<'a, ()>,
}

impl Locks {
    pub(super) fn new() -> Self {
        Locks {
            transitions: std::iter::repeat_with(Mutex::default).take(TRANSITIONS).collect(),
            barrier: Mutex::default(),
            collecting: Mutex::default(),
        }
    }

    /// The lock for content under `digest` to appear or disappear.
    pub(super) fn transition(&self, digest: &Digest) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        Key::of(digest).hash(&mut hasher);
        self.transitions[hasher.finish() as usize % TRANSITIONS].lock()
    }

    /// Records a reference to `digest`, before it can be seen on disk.
    pub(super) fn keep(&self, digest: &Digest) {
        self.keep_key(Key::of(digest));
    }

    pub(super) fn keep_key(&self, key: Key) {
        let mut barrier = self.barrier.lock();
        if let Some(Barrier::These(keys)) = &mut *barrier {
            keys.insert(key);
            if keys.len() > BARRIER_MAX {
                *barrier = Some(Barrier::Everything);
            }
        }
    }

    /// Begins a collection, after any other. References made after this call are recorded. An operation that began
    /// before may not know of the barrier; the collection has to wait for it, through the locks it holds.
    pub(super) fn collecting(&self) -> Collecting<'_> {
        let only = self.collecting.lock();
        *self.barrier.lock() = Some(Barrier::These(HashSet::new()));
        self.transitions.iter().for_each(|transition| drop(transition.lock()));
        Collecting { locks: self, _only: only }
    }
}

impl Collecting<'_> {
    /// Whether `digest` was referred to since this collection began.
    pub(super) fn kept(&self, digest: &Digest) -> bool {
        self.kept_key(Key::of(digest))
    }

    pub(super) fn kept_key(&self, key: Key) -> bool {
        match &*self.locks.barrier.lock() {
            Some(Barrier::These(keys)) => keys.contains(&key),
            Some(Barrier::Everything) | None => true,
        }
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        *self.locks.barrier.lock() = None;
    }
}
