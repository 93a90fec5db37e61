//! The rate limit of authentication failures per address.
//!
//! ```text
//! burst = 3            failure  failure  failure │ refused   refused  │ one more attempt
//! allowance            3 ──────> 2 ─────> 1 ────> 0 ─────────────────> 1 ─────> …      one is restored per interval
//! ```
//!
//! Each address has a token bucket, stored as one time: when the bucket will be full again. Only failures take a token. A
//! caller checks with [`RateLimiter::check`] first and reports with [`RateLimiter::record_failure`] afterwards. If an
//! attempt is expensive, the failure is recorded before the attempt and taken back with [`GuessLimiter::succeeded`] if the
//! attempt succeeds. A client that disconnects during the attempt has then used up its token.
//!
//! IPv6 addresses of one /64 share a bucket, because a single host can choose from the whole /64; an IPv4 address in IPv6
//! form counts as IPv4. The map is bounded: when it is full, the address with the smallest deficit is dropped. The time is
//! a parameter; after a clock is set back, a refusal lasts at most as long as the bucket takes to fill.
//!
//! Passwords have two buckets, in [`GuessLimiter`]. All users behind a proxy have one address: the bucket of address and
//! user name keeps one of them, whose password is wrong, from locking out the others. The bucket of the address, ten times
//! as large, keeps one client from guessing the passwords of many names; a user who has logged in from the address within
//! a day is not affected by it.
//!
//! Failures are rate-limited per address: decision D25.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
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
pub struct RateLimiter(Buckets<IpAddr>);

impl RateLimiter {
    /// A limiter without failures. Zeros in `limit` count as one.
    pub fn new(limit: RateLimit) -> Self {
        Self(Buckets::new(limit))
    }

    /// Checks that `peer` may make an attempt.
    ///
    /// # Errors
    /// [`Limited`] with the time until the next attempt is allowed.
    pub fn check(&self, peer: IpAddr, now: Timestamp) -> Result<(), Limited> {
        self.0.check(&bucket_of(peer), now)
    }

    /// Takes one token from the bucket of `peer`.
    pub fn record_failure(&self, peer: IpAddr, now: Timestamp) {
        self.0.take(bucket_of(peer), now);
    }

    #[cfg(test)]
    pub(super) fn refund(&self, peer: IpAddr, now: Timestamp) {
        self.0.give_back(&bucket_of(peer), now);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.0.full_at.lock().len()
    }
}

/// The number of names that an address may guess for as fast as for one.
const NAMES: u32 = 10;

/// The time for which a login keeps its account free of the limit of its address.
const TRUSTED_FOR: Duration = Duration::from_secs(24 * 3600);

/// A user name at an address.
type Account = (IpAddr, u64);

/// Counts the wrong passwords of each user name at an address, and of each address.
#[derive(Debug)]
pub(super) struct GuessLimiter {
    /// Names are kept as hashes with a key of this process.
    names: RandomState,
    accounts: Buckets<Account>,
    addresses: Buckets<IpAddr>,
    max_trusted: usize,
    /// Accounts with a right password, and its time in milliseconds since 1970.
    trusted: Mutex<HashMap<Account, i64>>,
}

impl GuessLimiter {
    /// A limiter without failures, with `limit` for each user name at an address.
    pub(super) fn new(limit: RateLimit) -> Self {
        let burst = limit.burst.saturating_mul(NAMES);
        let of_address = RateLimit { burst, interval: limit.interval / NAMES, ..limit };
        Self {
            names: RandomState::new(),
            accounts: Buckets::new(limit),
            addresses: Buckets::new(of_address),
            max_trusted: limit.max_addresses.max(1),
            trusted: Mutex::default(),
        }
    }

    /// Checks that a password of `user` from `peer` may be verified.
    ///
    /// # Errors
    /// [`Limited`] with the time until the next attempt is allowed.
    pub(super) fn check(&self, peer: IpAddr, user: &str, now: Timestamp) -> Result<(), Limited> {
        let account = self.account(peer, user);
        self.accounts.check(&account, now)?;
        if self.is_trusted(&account, now) { Ok(()) } else { self.addresses.check(&account.0, now) }
    }

    /// Counts an attempt as a failure, until [`GuessLimiter::succeeded`] takes that back.
    pub(super) fn record_failure(&self, peer: IpAddr, user: &str, now: Timestamp) {
        let account = self.account(peer, user);
        self.accounts.take(account, now);
        if !self.is_trusted(&account, now) {
            self.addresses.take(account.0, now);
        }
    }

    /// Returns the token of an attempt whose password was right, and trusts the account.
    pub(super) fn succeeded(&self, peer: IpAddr, user: &str, now: Timestamp) {
        let account = self.account(peer, user);
        self.accounts.give_back(&account, now);
        if !self.is_trusted(&account, now) {
            self.addresses.give_back(&account.0, now);
        }
        let mut trusted = self.trusted.lock();
        if trusted.len() >= self.max_trusted && !trusted.contains_key(&account) {
            let oldest = trusted.iter().min_by_key(|(_, login)| **login).map(|(account, _)| *account);
            oldest.map(|oldest| trusted.remove(&oldest));
        }
        trusted.insert(account, now.as_millisecond());
    }

    fn account(&self, peer: IpAddr, user: &str) -> Account {
        (bucket_of(peer), self.names.hash_one(user))
    }

    /// Whether the account logged in within [`TRUSTED_FOR`]. A login in the future does not count: the clock was set back.
    fn is_trusted(&self, account: &Account, now: Timestamp) -> bool {
        let age = self.trusted.lock().get(account).map(|login| now.as_millisecond().saturating_sub(*login));
        age.and_then(|age| u128::try_from(age).ok()).is_some_and(|age| age < TRUSTED_FOR.as_millis())
    }
}

/// The token buckets of all keys with failures.
#[derive(Debug)]
struct Buckets<K> {
    burst: i64,
    interval_ms: i64,
    max_keys: usize,
    /// For each key with failures: the time at which its bucket is full again, in milliseconds since 1970.
    full_at: Mutex<HashMap<K, i64>>,
}

impl<K: Copy + Eq + Hash> Buckets<K> {
    fn new(limit: RateLimit) -> Self {
        let interval_ms = i64::try_from(limit.interval.as_millis()).unwrap_or(i64::MAX);
        Self {
            burst: i64::from(limit.burst.max(1)),
            interval_ms: interval_ms.max(1),
            max_keys: limit.max_addresses.max(1),
            full_at: Mutex::default(),
        }
    }

    fn check(&self, key: &K, now: Timestamp) -> Result<(), Limited> {
        let now = now.as_millisecond();
        let deficit = match self.full_at.lock().get(key) {
            Some(full_at) => self.deficit(*full_at, now),
            None => return Ok(()),
        };
        let most = self.capacity() - self.interval_ms;
        match u64::try_from(deficit.saturating_sub(most)) {
            Ok(wait) if wait > 0 => Err(Limited { retry_after: Duration::from_millis(wait) }),
            _ => Ok(()),
        }
    }

    fn take(&self, key: K, now: Timestamp) {
        let now = now.as_millisecond();
        let mut full_at = self.full_at.lock();
        if full_at.len() >= self.max_keys && !full_at.contains_key(&key) {
            full_at.retain(|_, full_at| *full_at > now);
            if full_at.len() >= self.max_keys {
                let least = full_at.iter().min_by_key(|(_, full_at)| **full_at).map(|(key, _)| *key);
                least.map(|least| full_at.remove(&least));
            }
        }
        let entry = full_at.entry(key).or_insert(now);
        let deficit = self.deficit(*entry, now).saturating_add(self.interval_ms).min(self.capacity());
        *entry = now.saturating_add(deficit);
    }

    fn give_back(&self, key: &K, now: Timestamp) {
        let now = now.as_millisecond();
        let mut full_at = self.full_at.lock();
        if let Some(entry) = full_at.get_mut(key) {
            *entry = now.saturating_add(self.deficit(*entry, now)).saturating_sub(self.interval_ms);
            if *entry <= now {
                full_at.remove(key);
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
}

/// The address, or the user name at this address, has used up its failures.
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
