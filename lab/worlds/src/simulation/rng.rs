//! The random numbers of a world, from one seed.
//!
//! ```text
//!   seed + name of a stream --> WorldRng: always the same numbers in the same order
//! ```
//!
//! Every component of a world has a separate stream. If one component draws more numbers, the others are not affected.
//! The generator is SplitMix64 (Steele, Lea, Flood 2014).

use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

use model::{IdSource, Time};

/// A stream of random numbers that tasks of one thread share.
pub(super) struct WorldRng(Mutex<u64>);

impl WorldRng {
    /// Creates the stream with this name. A changed name gives other numbers: recorded seeds would no longer replay their
    /// worlds.
    pub(super) fn new(seed: u64, stream: &str) -> Self {
        // FNV-1a: similar names give unrelated streams.
        let named = stream.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::keyed(seed, named)
    }

    /// Creates the stream with this key: the hash of a former name, for a component that was renamed after seeds were
    /// recorded.
    pub(super) fn keyed(seed: u64, key: u64) -> Self {
        let rng = Self(Mutex::new(seed ^ key));
        rng.next_u64();
        rng
    }

    /// Returns the next number.
    pub(super) fn next_u64(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, or zero if `limit` is zero.
    pub(super) fn below(&self, limit: u64) -> u64 {
        self.next_u64().checked_rem(limit).unwrap_or(0)
    }

    /// Returns true with a probability of `times` per mille.
    pub(super) fn chance_per_mille(&self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// Returns a duration from `least` to `most`.
    pub(super) fn time(&self, least: Duration, most: Duration) -> Duration {
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX - 1);
        least + Duration::from_millis(self.below(span + 1))
    }

    /// Returns a duration from `least` to `most` seconds.
    pub(super) fn seconds(&self, least: u64, most: u64) -> Duration {
        self.time(Duration::from_secs(least), Duration::from_secs(most))
    }

    /// Returns a random element, or `None` if the slice is empty.
    pub(super) fn choose<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).unwrap_or(0))
    }
}

/// The ids and jitter of the controllers of a world.
pub(super) struct SeededIds {
    rng: WorldRng,
    count: Mutex<u16>,
}

impl SeededIds {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: WorldRng::new(seed, "ids"), count: Mutex::new(0) }
    }
}

impl IdSource for SeededIds {
    fn new_id(&self, now: Time) -> Uuid {
        let mut count = self.count.lock();
        *count = count.wrapping_add(1);
        let mut bytes = [0; 10];
        bytes[..2].copy_from_slice(&count.to_be_bytes());
        bytes[2..].copy_from_slice(&self.rng.next_u64().to_be_bytes());
        let millis = u64::try_from(now.timestamp().as_millisecond()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    }

    fn jitter(&self) -> f64 {
        f64::from(u32::try_from(self.rng.below(1 << 32)).unwrap_or(0)) / f64::from(u32::MAX)
    }
}
