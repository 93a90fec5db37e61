//! Who may change what at the same time.
//!
//! ```text
//!  references (one per repository)   shared:    put a manifest, from the check of what it refers to until it is durable
//!                                    exclusive: delete, and garbage collection of a handful of records
//!  transition (one of 256, by digest)           content and its records appear, disappear or become young again;
//!                                               held for a few system calls, never for an fsync
//!  barrier                                      while garbage is collected: everything that was referred to since
//! ```
//!
//! Taken in this order, one of each kind at a time. Reading content takes none of them, but for the transition lock when
//! its record is touched, once a minute.
//!
//! The barrier is what makes collecting exact whatever the clock says: garbage is found by walking directories without
//! any lock, and whatever is pushed, mounted or referred to meanwhile is in the barrier and stays.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::cache::Changes;
use crate::digest::Digest;

const TRANSITIONS: usize = 256;
/// Digests a barrier remembers one by one; from there on it keeps everything.
const BARRIER_MAX: usize = 1 << 20;

/// The first half of a digest: enough to tell contents apart where a mistake only keeps something longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key(u128);

impl Key {
    pub(super) fn of(digest: &Digest) -> Self {
        // Digests are canonical hex of 64 characters or more.
        Key(u128::from_str_radix(digest.hex().get(..32).unwrap_or_default(), 16).unwrap_or_default())
    }

    /// Its first four bits.
    pub(super) fn nibble(self) -> u8 {
        (self.0 >> 124) as u8
    }
}

/// The references of one repository: its manifests, tags and pins.
#[derive(Debug, Default)]
pub(super) struct References {
    lock: RwLock<()>,
    /// Of its manifests and tags; tells who reads without any lock.
    pub(super) changes: Changes,
}

impl References {
    /// Nothing that is referred to goes away meanwhile.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody comes to refer to anything meanwhile.
    pub(super) fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.lock.write().unwrap_or_else(PoisonError::into_inner)
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

/// A running collection; what is referred to while it lives is kept.
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

    /// The right to let content under `digest` appear or disappear.
    pub(super) fn transition(&self, digest: &Digest) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        Key::of(digest).hash(&mut hasher);
        lock(&self.transitions[hasher.finish() as usize % TRANSITIONS])
    }

    /// Says that `digest` is referred to from now on, before it can be seen on disk.
    pub(super) fn keep(&self, digest: &Digest) {
        self.keep_key(Key::of(digest));
    }

    pub(super) fn keep_key(&self, key: Key) {
        let mut barrier = lock(&self.barrier);
        if let Some(Barrier::These(keys)) = &mut *barrier {
            keys.insert(key);
            if keys.len() > BARRIER_MAX {
                *barrier = Some(Barrier::Everything);
            }
        }
    }

    /// Begins a collection, after any other. From here on what is kept is known; what began before and does not know
    /// of the barrier yet has to be waited for, through the locks it holds.
    pub(super) fn collecting(&self) -> Collecting<'_> {
        let only = lock(&self.collecting);
        *lock(&self.barrier) = Some(Barrier::These(HashSet::new()));
        self.transitions.iter().for_each(|transition| drop(lock(transition)));
        Collecting { locks: self, _only: only }
    }
}

impl Collecting<'_> {
    /// Whether `digest` was referred to since this collection began.
    pub(super) fn kept(&self, digest: &Digest) -> bool {
        match &*lock(&self.locks.barrier) {
            Some(Barrier::These(keys)) => keys.contains(&Key::of(digest)),
            Some(Barrier::Everything) | None => true,
        }
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        *lock(&self.locks.barrier) = None;
    }
}

/// What these locks protect is on disk and whole between any two system calls, so a panic elsewhere spoils nothing.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
