//! The rate limit of authentication failures per address.
//!
//! ```text
//! burst = 3            failure  failure  failure │ refused   refused  │ one more attempt
//! allowance            3 ──────> 2 ─────> 1 ────> 0 ─────────────────> 1 ─────> …      one is restored per interval
//! ```
//!
//! Each address has a token bucket, stored as one time: when the bucket will be full again. Only failures take a token. A
//! caller checks with [`RateLimiter::check`] first and reports with [`RateLimiter::record_failure`] afterwards. If an
//! attempt is expensive, the failure is recorded before the attempt and returned with [`RateLimiter::refund`] if the
//! attempt succeeds. A client that disconnects during the attempt has then used up its token.
//!
//! IPv6 addresses of one /64 share a bucket, because a single host can choose from the whole /64; an IPv4 address in IPv6
//! form counts as IPv4. The map is bounded: when it is full, the address with the smallest deficit is dropped. The time is
//! a parameter; after a clock is set back, a refusal lasts at most as long as the bucket takes to fill.
//!
//! Failures are rate-limited per address: decision D25.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use thiserror::Error;

/// The allowed number and rate of failures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// The number of failures in a row that an address may cause.
    pub burst: u32,
    /// The time after which one more failure is allowed.
    pub interval: Duration,
    /// The maximum number of addresses in the map.
    pub max_addresses: usize,
}

impl Default for RateLimit {
    /// Ten failures in a row, then one every six seconds; 4,096 addresses.
    fn default() -> Self {
        Self { burst: 10, interval: Duration::from_secs(6), max_addresses: 4096 }
    }
}

/// Counts the failures of each address.
#[derive(Debug)]
pub struct RateLimiter {
    burst: i64,
    interval_ms: i64,
    max_addresses: usize,
    /// For each address with failures: the time at which its bucket is full again, in milliseconds since 1970.
    full_at: Mutex<HashMap<IpAddr, i64>>,
}

impl RateLimiter {
    /// A limiter without failures. Zeros in `limit` count as one.
    pub fn new(limit: RateLimit) -> Self {
        let interval_ms = i64::try_from(limit.interval.as_millis()).unwrap_or(i64::MAX);
        Self {
            burst: i64::from(limit.burst.max(1)),
            interval_ms: interval_ms.max(1),
            max_addresses: limit.max_addresses.max(1),
            full_at: Mutex::default(),
        }
    }

    /// Checks that `peer` may make an attempt.
    ///
    /// # Errors
    /// [`Limited`] with the time until the next attempt is allowed.
    pub fn check(&self, peer: IpAddr, now: Timestamp) -> Result<(), Limited> {
        let now = now.as_millisecond();
        let deficit = match self.full_at.lock().get(&bucket_of(peer)) {
            Some(full_at) => self.deficit(*full_at, now),
            None => return Ok(()),
        };
        let most = self.capacity() - self.interval_ms;
        match u64::try_from(deficit.saturating_sub(most)) {
            Ok(wait) if wait > 0 => Err(Limited { retry_after: Duration::from_millis(wait) }),
            _ => Ok(()),
        }
    }

    /// Takes one token from the bucket of `peer`.
    pub fn record_failure(&self, peer: IpAddr, now: Timestamp) {
        let now = now.as_millisecond();
        let bucket = bucket_of(peer);
        let mut full_at = self.full_at.lock();
        if full_at.len() >= self.max_addresses && !full_at.contains_key(&bucket) {
            full_at.retain(|_, full_at| *full_at > now);
            if full_at.len() >= self.max_addresses {
                let least = full_at.iter().min_by_key(|(_, full_at)| **full_at).map(|(bucket, _)| *bucket);
                if let Some(least) = least {
                    full_at.remove(&least);
                }
            }
        }
        let entry = full_at.entry(bucket).or_insert(now);
        let deficit = self.deficit(*entry, now).saturating_add(self.interval_ms).min(self.capacity());
        *entry = now.saturating_add(deficit);
    }

    /// Returns a token that was taken for an attempt that succeeded.
    pub fn refund(&self, peer: IpAddr, now: Timestamp) {
        let now = now.as_millisecond();
        let bucket = bucket_of(peer);
        let mut full_at = self.full_at.lock();
        if let Some(entry) = full_at.get_mut(&bucket) {
            *entry = now.saturating_add(self.deficit(*entry, now)).saturating_sub(self.interval_ms);
            if *entry <= now {
                full_at.remove(&bucket);
            }
        }
    }

    /// The time in which an empty bucket becomes full; no deficit exceeds it.
    fn capacity(&self) -> i64 {
        self.burst.saturating_mul(self.interval_ms)
    }

    fn deficit(&self, full_at: i64, now: i64) -> i64 {
        full_at.saturating_sub(now).clamp(0, self.capacity())
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.full_at.lock().len()
    }
}

/// The address has used up its failures.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("too many failures from this address; try again in {} s", retry_after.as_secs() + 1)]
pub struct Limited {
    /// The time until the next attempt is allowed.
    pub retry_after: Duration,
}

fn bucket_of(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}
