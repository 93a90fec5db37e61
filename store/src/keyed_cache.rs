//! A cache of values that are made of rows, by key. The transaction that writes rows removes the values of their keys.
//!
//! ```text
//!   get -- cached --------------------------------------------> value
//!     `--- not cached --> ticket -- read the rows --> put: only while nothing has been written for the key
//!
//!   writer:  BEGIN   rows written ...   close(keys)   COMMIT   open   ... send results
//! ```
//!
//! Invariants
//! - A cached value is never older than the rows that a reader sees: it is removed before the transaction that changes the rows
//!   becomes visible, and none is cached again for its key until it is visible.
//! - A value of rows that were read before a write is never cached: the write has invalidated its ticket.
//! - The cache has at most its number of bytes. The value that was least recently used is removed first.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use hashlink::LruCache;
use parking_lot::Mutex;

/// The accounted size of an entry without its value, in bytes.
const OVERHEAD: usize = 256;

/// A key of a cache.
pub(super) trait CacheKey: Clone + Eq + Hash + Debug {}

impl<K: Clone + Eq + Hash + Debug> CacheKey for K {}

/// A value with its approximate size.
pub(super) trait Weighed: Clone {
    /// The approximate size in bytes.
    fn weight(&self) -> usize;
}

/// The right to cache a value whose rows are read after the ticket was issued.
#[derive(Debug)]
pub(super) struct Ticket<K: CacheKey, V: Weighed> {
    cache: Arc<KeyedCache<K, V>>,
    key: K,
    number: u64,
}

impl<K: CacheKey, V: Weighed> Ticket<K, V> {
    /// Caches the value, unless a row of its key was written since the ticket was issued.
    pub(super) fn put(self, value: V) {
        self.cache.put(self.key, self.number, value);
    }
}

/// The cached values of one kind.
#[derive(Debug)]
pub(super) struct KeyedCache<K: CacheKey, V> {
    max_bytes: usize,
    state: Mutex<State<K, V>>,
    /// The keys whose rows the current transaction has written.
    written: Arc<Mutex<HashSet<K>>>,
}

#[derive(Debug)]
struct State<K: CacheKey, V> {
    slots: LruCache<K, Slot<V>>,
    bytes: usize,
    tickets: u64,
    /// The keys whose transaction is being committed.
    closed: HashSet<K>,
}

#[derive(Debug)]
enum Slot<V> {
    /// A ticket with this number is issued.
    Ticket(u64),
    Cached(V),
}

impl<V: Weighed> Slot<V> {
    fn bytes(&self) -> usize {
        match self {
            Slot::Ticket(_) => OVERHEAD,
            Slot::Cached(value) => OVERHEAD + value.weight(),
        }
    }
}

impl<K: CacheKey, V: Weighed> KeyedCache<K, V> {
    /// An empty cache of at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        let state = State { slots: LruCache::new_unbounded(), bytes: 0, tickets: 0, closed: HashSet::new() };
        Self { max_bytes, state: Mutex::new(state), written: Arc::default() }
    }

    /// Where the writer's connection notes the keys whose rows it writes.
    pub(super) fn written(&self) -> Arc<Mutex<HashSet<K>>> {
        Arc::clone(&self.written)
    }

    /// Removes the values of all keys written since the last call, or all values when other rows may have been written too
    /// (`complete` is false). None of these keys is cached until [`open`](Self::open).
    pub(super) fn close(&self, complete: bool) {
        let written = std::mem::take(&mut *self.written.lock());
        let mut state = self.state.lock();
        if complete {
            for key in &written {
                state.remove(key);
            }
        } else {
            state.slots.clear();
            state.bytes = 0;
        }
        state.closed = written;
    }

    /// Ends the exclusion of [`close`](Self::close), after the transaction was committed or rolled back.
    pub(super) fn open(&self) {
        self.state.lock().closed.clear();
    }

    /// The cached value of a key.
    ///
    /// # Errors
    /// When there is none: a ticket to cache it.
    pub(super) fn cached(self: &Arc<Self>, key: &K) -> Result<V, Ticket<K, V>> {
        let ticket = |number| Ticket { cache: Arc::clone(self), key: key.clone(), number };
        self.get(key).map_err(ticket)
    }

    /// The cached value of a key, or the number of a new ticket.
    fn get(&self, key: &K) -> Result<V, u64> {
        let mut state = self.state.lock();
        if let Some(Slot::Cached(value)) = state.slots.get(key) {
            return Ok(value.clone());
        }
        state.tickets += 1;
        let number = state.tickets;
        if !state.closed.contains(key) {
            state.insert(key.clone(), Slot::Ticket(number), self.max_bytes);
        }
        Err(number)
    }

    fn put(&self, key: K, number: u64, value: V) {
        let mut state = self.state.lock();
        let slot = Slot::Cached(value);
        // A value that would evict all others is not cached.
        let fits = slot.bytes() <= self.max_bytes;
        if fits && matches!(state.slots.peek(&key), Some(Slot::Ticket(open)) if *open == number) {
            state.insert(key, slot, self.max_bytes);
        }
    }
}

impl<K: CacheKey, V: Weighed> State<K, V> {
    fn insert(&mut self, key: K, slot: Slot<V>, max_bytes: usize) {
        self.remove(&key);
        self.bytes += slot.bytes();
        self.slots.insert(key, slot);
        while self.bytes > max_bytes
            && let Some((_, slot)) = self.slots.remove_lru()
        {
            self.bytes -= slot.bytes();
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    /// A value of that many bytes.
    #[derive(Clone, Debug, PartialEq)]
    struct Bytes(usize);

    impl Weighed for Bytes {
        fn weight(&self) -> usize {
            self.0
        }
    }

    fn cache() -> KeyedCache<u8, Bytes> {
        KeyedCache::new(MAX)
    }

    fn put(cache: &KeyedCache<u8, Bytes>, key: u8, value: Bytes) {
        let number = cache.get(&key).unwrap_err();
        cache.put(key, number, value);
    }

    #[test]
    fn no_value_is_cached_or_returned_while_its_transaction_commits() {
        let cache = cache();
        put(&cache, 1, Bytes(1));
        put(&cache, 2, Bytes(1));
        cache.written.lock().insert(1);
        cache.close(true);
        put(&cache, 1, Bytes(1));
        assert!(cache.get(&1).is_err());
        assert!(cache.get(&2).is_ok());
        let while_closed = cache.get(&1).unwrap_err();
        cache.open();
        cache.put(1, while_closed, Bytes(1));
        assert!(cache.get(&1).is_err(), "its rows may have been read before the commit");
        put(&cache, 1, Bytes(1));
        assert!(cache.get(&1).is_ok());
    }

    #[test]
    fn every_value_is_removed_when_unknown_rows_were_written() {
        let cache = cache();
        put(&cache, 1, Bytes(1));
        put(&cache, 2, Bytes(1));
        cache.written.lock().insert(1);
        cache.close(false);
        cache.open();
        assert!(cache.get(&1).is_err() && cache.get(&2).is_err());
    }

    #[test]
    fn the_least_recently_used_value_is_removed_first() {
        let cache = cache();
        let size = MAX / 4 - OVERHEAD;
        for key in 1..=4 {
            put(&cache, key, Bytes(size));
        }
        assert!(cache.get(&1).is_ok());
        put(&cache, 5, Bytes(size));
        let state = cache.state.lock();
        let cached: Vec<u8> = (1..=5).filter(|key| state.slots.contains_key(key)).collect();
        assert_eq!(cached, [1, 3, 4, 5]);
        assert!(state.bytes <= MAX);
        assert_eq!(state.bytes, state.slots.iter().map(|(_, slot)| slot.bytes()).sum::<usize>());
    }

    #[test]
    fn a_value_larger_than_the_cache_is_not_cached_and_evicts_no_other() {
        let cache = cache();
        put(&cache, 2, Bytes(1));
        put(&cache, 1, Bytes(MAX + 1));
        assert!(cache.get(&1).is_err());
        assert!(cache.get(&2).is_ok());
        assert!(cache.state.lock().bytes <= MAX);
    }
}
