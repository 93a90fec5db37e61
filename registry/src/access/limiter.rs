//! The limit of wrong passwords.
//!
//! ```text
//!  an address and a user name    TRIES at once, then one more every RECOVERY
//!  an address, all names         TRIES × NAMES at once, then one more every RECOVERY / NAMES;
//!                                not for a name that logged in from there within TRUSTED_FOR
//!
//!  a try with a right password is returned
//! ```
//!
//! All users behind a proxy have one address. The limit of the name keeps one of them, whose password is wrong, from
//! locking out the others. The limit of the address keeps one client from guessing the passwords of many names; a user
//! who has logged in from the address is not affected by it.
//!
//! An IPv6 address stands for its /64, which one host has for itself. The tables are bounded: an entry is dropped when
//! all its tries have recovered; when a table is full, the entry closest to that is dropped. Names are kept as hashes
//! with a key of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

const TRIES: u32 = 20;
const RECOVERY: Duration = Duration::from_secs(5);
/// The number of names an address may guess for as fast as for one.
const NAMES: u32 = 10;
const ENTRIES_MAX: usize = 4096;
/// The time for which a login keeps its name free of the limit of the address.
const TRUSTED_FOR: Duration = Duration::from_secs(24 * 3600);

/// A user name at an address.
type Account = (IpAddr, u64);

/// Recent wrong passwords and right ones.
pub(super) struct Limiter {
    names: RandomState,
    accounts: Tries<Account>,
    addresses: Tries<IpAddr>,
    /// Accounts with a right password, and the time until which that counts.
    trusted: HashMap<Account, Instant>,
}

/// The wrong passwords of each key, as the time when all its tries have recovered.
struct Tries<K> {
    most: u32,
    recovery: Duration,
    recovered: HashMap<K, Instant>,
}

impl Default for Limiter {
    fn default() -> Self {
        let tries = |names| (TRIES * names, RECOVERY / names);
        Limiter {
            names: RandomState::new(),
            accounts: Tries::new(tries(1)),
            addresses: Tries::new(tries(NAMES)),
            trusted: HashMap::new(),
        }
    }
}

impl Limiter {
    /// Takes a try; `false` when the user has none left at this address.
    pub(super) fn take(&mut self, address: IpAddr, user: &str, now: Instant) -> bool {
        let account = self.account(address, user);
        let trusted = self.trusted.get(&account).is_some_and(|until| now < *until);
        if !self.accounts.has(&account, now) || !(trusted || self.addresses.has(&account.0, now)) {
            return false;
        }
        self.accounts.take(account, now);
        if !trusted {
            self.addresses.take(account.0, now);
        }
        true
    }

    /// Returns a try that was taken before the account was trusted, as after a verification that did not happen.
    pub(super) fn return_try(&mut self, address: IpAddr, user: &str, now: Instant) {
        let account = self.account(address, user);
        self.accounts.give_back(&account);
        if self.trusted.get(&account).is_none_or(|until| now >= *until) {
            self.addresses.give_back(&account.0);
        }
    }

    /// Returns a try with a right password, and trusts the account.
    pub(super) fn succeeded(&mut self, address: IpAddr, user: &str, now: Instant) {
        self.return_try(address, user, now);
        if self.trusted.len() >= ENTRIES_MAX {
            self.trusted.retain(|_, until| now < *until);
        }
        if self.trusted.len() >= ENTRIES_MAX {
            let oldest = self.trusted.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key);
            oldest.map(|oldest| self.trusted.remove(&oldest));
        }
        self.trusted.insert(self.account(address, user), now + TRUSTED_FOR);
    }

    fn account(&self, address: IpAddr, user: &str) -> Account {
        (network(address), self.names.hash_one(user))
    }
}

impl<K: Copy + Eq + Hash> Tries<K> {
    fn new((most, recovery): (u32, Duration)) -> Self {
        Tries { most, recovery, recovered: HashMap::new() }
    }

    fn after_one_more(&self, key: &K, now: Instant) -> Instant {
        self.recovered.get(key).map_or(now, |recovered| now.max(*recovered)) + self.recovery
    }

    fn has(&self, key: &K, now: Instant) -> bool {
        self.after_one_more(key, now) <= now + self.recovery * self.most
    }

    fn take(&mut self, key: K, now: Instant) {
        let after = self.after_one_more(&key, now);
        if self.recovered.len() >= ENTRIES_MAX && !self.recovered.contains_key(&key) {
            self.recovered.retain(|_, recovered| *recovered > now);
        }
        if self.recovered.len() >= ENTRIES_MAX && !self.recovered.contains_key(&key) {
            let nearest = self.recovered.iter().min_by_key(|(_, recovered)| **recovered).map(|(key, _)| *key);
            nearest.map(|nearest| self.recovered.remove(&nearest));
        }
        self.recovered.insert(key, after);
    }

    fn give_back(&mut self, key: &K) {
        if let Some(recovered) = self.recovered.get_mut(key) {
            *recovered = recovered.checked_sub(self.recovery).unwrap_or(*recovered);
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn tries_run_out_and_come_back_one_by_one() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let here = address("192.0.2.1");
        assert!((0..TRIES).all(|_| limiter.take(here, "ann", now)));
        assert!(!limiter.take(here, "ann", now));
        assert!(limiter.take(address("192.0.2.2"), "ann", now));
        assert!(limiter.take(here, "ann", now + RECOVERY));
        assert!(!limiter.take(here, "ann", now + RECOVERY));
        assert!((0..TRIES).all(|_| limiter.take(here, "ann", now + RECOVERY * 100)));
    }

    #[test]
    fn right_passwords_never_use_up_the_tries() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        for number in 0..1000 {
            let user = format!("user {number}");
            assert!(limiter.take(address("192.0.2.1"), &user, now));
            limiter.succeeded(address("192.0.2.1"), &user, now);
        }
        assert!(
            limiter
                .accounts
                .recovered
                .values()
                .chain(limiter.addresses.recovered.values())
                .all(|at| *at <= now)
        );
    }

    #[test]
    fn one_user_with_a_wrong_password_does_not_lock_out_the_others_of_the_address() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let proxy = address("192.0.2.1");
        while limiter.take(proxy, "ann", now) {}
        assert!(limiter.take(proxy, "bob", now));
    }

    #[test]
    fn guesses_for_many_names_are_limited_and_do_not_lock_out_a_user_who_logged_in_before() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let proxy = address("192.0.2.1");
        assert!(limiter.take(proxy, "ann", now));
        limiter.succeeded(proxy, "ann", now);
        let guesses =
            (0..TRIES * NAMES * 2).filter(|number| limiter.take(proxy, &format!("name {number}"), now));
        assert_eq!(guesses.count() as u32, TRIES * NAMES);
        assert!(!limiter.take(proxy, "bob", now));
        assert!(limiter.take(proxy, "bob", now + RECOVERY / NAMES));
        assert!((0..TRIES).all(|_| limiter.take(proxy, "ann", now)), "its own tries");
        assert!(!limiter.take(proxy, "ann", now), "and no more");
        assert!(limiter.take(address("192.0.2.2"), "bob", now));
        let later = now + TRUSTED_FOR;
        let mut names = (0..).map(|number| format!("another {number}"));
        while names.next().is_some_and(|name| limiter.take(proxy, &name, later)) {}
        assert!(!limiter.take(proxy, "ann", later), "a login counts for a day");
    }

    #[test]
    fn addresses_in_one_network_share_their_tries() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let mut take = |text: &str| limiter.take(address(text), "ann", now);
        for host in 0..TRIES {
            assert!(take(&format!("2001:db8::{host:x}")));
        }
        assert!(!take("2001:db8::ffff"));
        assert!(take("2001:db8:0:1::1"));
        assert!((0..TRIES).all(|_| take("::ffff:192.0.2.1")));
        assert!(!take("192.0.2.1"));
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let worst = address("192.0.2.1");
        assert!((0..TRIES).all(|_| limiter.take(worst, "ann", now)));
        for number in 0..ENTRIES_MAX as u32 * 2 {
            limiter.take(IpAddr::V4((0x0a00_0000 + number).into()), "ann", now);
            limiter.succeeded(IpAddr::V4((0x0b00_0000 + number).into()), "ann", now);
        }
        assert_eq!(limiter.accounts.recovered.len(), ENTRIES_MAX);
        assert_eq!(limiter.addresses.recovered.len(), ENTRIES_MAX);
        assert_eq!(limiter.trusted.len(), ENTRIES_MAX);
        assert!(
            !limiter.take(worst, "ann", now),
            "the entry with the most wrong passwords is not dropped first"
        );
    }
}
