//! Credentials that were verified a moment ago.
//!
//! ```text
//!  HMAC(key of this process, length of the user, user, password) -> expiry, revision of the file
//! ```
//!
//! The cache holds neither passwords nor hashes, and without the key an entry reveals nothing. An entry ends after its
//! lifetime, and when the file is read again: a changed password takes effect at once. Wrong credentials are not
//! stored.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const ENTRIES_MAX: usize = 1024;

/// The cache key of a user and a password.
pub(super) type Fingerprint = [u8; 32];

/// Verified credentials, at most [`ENTRIES_MAX`].
pub(super) struct Cache {
    key: [u8; 32],
    lifetime: Duration,
    entries: HashMap<Fingerprint, Entry>,
}

struct Entry {
    until: Instant,
    revision: u64,
}

impl Cache {
    pub(super) fn new(key: [u8; 32], lifetime: Duration) -> Self {
        Cache { key, lifetime, entries: HashMap::new() }
    }

    pub(super) fn fingerprint(&self, user: &str, password: &str) -> Fingerprint {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            unreachable!("HMAC accepts a key of any length")
        };
        mac.update(&(user.len() as u64).to_be_bytes());
        mac.update(user.as_bytes());
        mac.update(password.as_bytes());
        mac.finalize().into_bytes().into()
    }

    pub(super) fn contains(&self, fingerprint: &Fingerprint, revision: u64, now: Instant) -> bool {
        let entry = self.entries.get(fingerprint);
        entry.is_some_and(|entry| entry.revision == revision && now < entry.until)
    }

    pub(super) fn remember(&mut self, fingerprint: Fingerprint, revision: u64, now: Instant) {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.retain(|_, entry| entry.revision == revision && now < entry.until);
        }
        if self.entries.len() >= ENTRIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key);
            oldest.map(|oldest| self.entries.remove(&oldest));
        }
        self.entries.insert(fingerprint, Entry { until: now + self.lifetime, revision });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Cache {
        Cache::new([7; 32], Duration::from_secs(60))
    }

    #[test]
    fn an_entry_ends_after_its_lifetime_and_when_the_file_is_read_again() {
        let (mut cache, now) = (cache(), Instant::now());
        let fingerprint = cache.fingerprint("ann", "sesame");
        assert!(!cache.contains(&fingerprint, 1, now));
        cache.remember(fingerprint, 1, now);
        assert!(cache.contains(&fingerprint, 1, now + Duration::from_secs(59)));
        assert!(!cache.contains(&fingerprint, 1, now + Duration::from_secs(60)));
        assert!(!cache.contains(&fingerprint, 2, now));
    }

    #[test]
    fn a_fingerprint_depends_on_the_user_the_password_and_the_key() {
        let cache = cache();
        assert_ne!(cache.fingerprint("ann", "sesame"), cache.fingerprint("anns", "esame"));
        let other = Cache::new([8; 32], Duration::from_secs(60));
        assert_ne!(cache.fingerprint("ann", "sesame"), other.fingerprint("ann", "sesame"));
    }

    #[test]
    fn the_cache_is_bounded_and_drops_the_oldest_entry() {
        let (mut cache, now) = (cache(), Instant::now());
        let of = |cache: &Cache, number: usize| cache.fingerprint("ann", &number.to_string());
        for number in 0..ENTRIES_MAX + 10 {
            let fingerprint = of(&cache, number);
            cache.remember(fingerprint, 1, now + Duration::from_millis(number as u64));
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        let later = now + Duration::from_secs(2);
        assert!(!cache.contains(&of(&cache, 9), 1, later) && cache.contains(&of(&cache, 10), 1, later));
    }
}
