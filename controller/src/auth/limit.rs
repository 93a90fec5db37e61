//! The brake on guessing: how many failures an address may cause.
//!
//! ```text
//! burst = 3            failure  failure  failure │ refused   refused  │ one more attempt
//! allowance            3 ──────> 2 ─────> 1 ────> 0 ─────────────────> 1 ─────> …      one comes back per interval
//! ```
//!
//! A token bucket per address, kept as one moment: when the bucket will be full again. Only failures take from it; a
//! caller asks with [`RateLimiter::check`] first and reports with [`RateLimiter::record_failure`] afterwards. Where
//! trying is expensive the failure is recorded before, and given back with [`RateLimiter::forgive`] if it was none,
//! so that who hangs up half-way has paid.
//!
//! An IPv6 address counts as its /64, because a single host has a whole one to choose from; an IPv4 address in IPv6
//! form counts as IPv4. The map is bounded: when it is full the address with the least debt is forgotten.
//! Time is passed in; a clock that is set back cannot make a refusal last longer than the bucket takes to fill.
//!
//! DESIGN section 13 (failures are rate-limited per address).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;

/// How many failures are allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RateLimit {
    /// How many failures in a row an address may cause.
    pub burst: u32,
    /// How long it takes until one more is allowed.
    pub interval: Duration,
    /// How many addresses are remembered.
    pub max_addresses: usize,
}

impl Default for RateLimit {
    /// Ten at once, then one every six seconds.
    fn default() -> Self {
        Self { burst: 10, interval: Duration::from_secs(6), max_addresses: 4096 }
    }
}

/// Counts the failures of addresses.
#[derive(Debug)]
pub struct RateLimiter {
    burst: i64,
    interval_ms: i64,
    max_addresses: usize,
    /// For each address with failures, in milliseconds since the epoch: when it will have none left.
    full_at: Mutex<HashMap<IpAddr, i64>>,
}

impl RateLimiter {
    /// A limiter that has seen nothing yet. Zeros in the rule count as one.
    pub fn new(limit: RateLimit) -> Self {
        let interval_ms = i64::try_from(limit.interval.as_millis()).unwrap_or(i64::MAX);
        Self {
            burst: i64::from(limit.burst.max(1)),
            interval_ms: interval_ms.max(1),
            max_addresses: limit.max_addresses.max(1),
            full_at: Mutex::default(),
        }
    }

    /// Whether `peer` may try.
    ///
    /// # Errors
    /// [`Limited`] with the time after which it may.
    pub fn check(&self, peer: IpAddr, now: Timestamp) -> Result<(), Limited> {
        let now = now.as_millisecond();
        let debt = match self.full_at().get(&bucket_of(peer)) {
            Some(full_at) => self.debt(*full_at, now),
            None => return Ok(()),
        };
        let most = self.capacity() - self.interval_ms;
        match u64::try_from(debt.saturating_sub(most)) {
            Ok(wait) if wait > 0 => Err(Limited { retry_after: Duration::from_millis(wait) }),
            _ => Ok(()),
        }
    }

    /// Takes one from the allowance of `peer`.
    pub fn record_failure(&self, peer: IpAddr, now: Timestamp) {
        let now = now.as_millisecond();
        let bucket = bucket_of(peer);
        let mut full_at = self.full_at();
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
        let debt = self.debt(*entry, now).saturating_add(self.interval_ms).min(self.capacity());
        *entry = now.saturating_add(debt);
    }

    /// Gives back one that was taken for an attempt which then succeeded.
    pub fn forgive(&self, peer: IpAddr, now: Timestamp) {
        let now = now.as_millisecond();
        let bucket = bucket_of(peer);
        let mut full_at = self.full_at();
        if let Some(entry) = full_at.get_mut(&bucket) {
            *entry = now.saturating_add(self.debt(*entry, now)).saturating_sub(self.interval_ms);
            if *entry <= now {
                full_at.remove(&bucket);
            }
        }
    }

    /// How long a full bucket takes to fill, which no debt exceeds.
    fn capacity(&self) -> i64 {
        self.burst.saturating_mul(self.interval_ms)
    }

    fn debt(&self, full_at: i64, now: i64) -> i64 {
        full_at.saturating_sub(now).clamp(0, self.capacity())
    }

    fn full_at(&self) -> MutexGuard<'_, HashMap<IpAddr, i64>> {
        // A panic elsewhere leaves whole entries behind, so the map stays usable.
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.full_at().len()
    }
}

/// An address has used up its failures.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("too many failures from this address; try again in {} s", retry_after.as_secs() + 1)]
pub struct Limited {
    /// When the next attempt is allowed.
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
