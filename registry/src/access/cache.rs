//! Credentials that were right a moment ago.
//!
//! ```text
//!  HMAC(key of this process, length of the user, user, password) -> until when, of which reading of the file
//! ```
//!
//! Neither password nor hash is kept, and without the key an entry says nothing. An entry ends after its time, and with
//! the reading of the file it was verified against: a password that was changed is asked for at once. Wrong credentials
//! are not remembered, so an entry is always somebody's who was let in.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const ENTRIES_MAX: usize = 1024;

/// What credentials are remembered by.
pub(super) type Fingerprint = [u8; 32];

/// See the module.
pub(super) struct Cache {
    key: [u8; 32],
    lifetime: Duration,
    entries: HashMap<Fingerprint, Entry>,
}

struct Entry {
    until: Instant,
    reading: u64,
}

impl Cache {
    pub(super) fn new(key: [u8; 32], lifetime: Duration) -> Self {
        Cache { key, lifetime, entries: HashMap::new() }
    }

    pub(super) fn fingerprint(&self, user: &str, password: &str) -> Fingerprint {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else {
            unreachable!("HMAC takes keys of every length")
        };
        mac.update(&(user.len() as u64).to_be_bytes());
        mac.update(user.as_bytes());
        mac.update(password.as_bytes());
        mac.finalize().into_bytes().into()
    }

    pub(super) fn knows(&self, fingerprint: &Fingerprint, reading: u64, now: Instant) -> bool {
        let entry = self.entries.get(fingerprint);
        entry.is_some_and(|entry| entry.reading == reading && now < entry.until)
    }

    pub(super) fn remember(&mut self, fingerprint: Fingerprint, reading: u64, now: Instant) {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.retain(|_, entry| entry.reading == reading && now < entry.until);
        }
        if self.entries.len() >= ENTRIES_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.until).map(|(key, _)| *key);
            oldest.map(|oldest| self.entries.remove(&oldest));
        }
        self.entries.insert(fingerprint, Entry { until: now + self.lifetime, reading });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Cache {
        Cache::new([7; 32], Duration::from_secs(60))
    }

    #[test]
    fn an_entry_ends_with_its_time_and_with_its_reading() {
        let (mut cache, now) = (cache(), Instant::now());
        let known = cache.fingerprint("ann", "sesame");
        assert!(!cache.knows(&known, 1, now));
        cache.remember(known, 1, now);
        assert!(cache.knows(&known, 1, now + Duration::from_secs(59)));
        assert!(!cache.knows(&known, 1, now + Duration::from_secs(60)));
        assert!(!cache.knows(&known, 2, now));
    }

    #[test]
    fn the_border_between_user_and_password_counts_and_so_does_the_key() {
        let cache = cache();
        assert_ne!(cache.fingerprint("ann", "sesame"), cache.fingerprint("anns", "esame"));
        let other = Cache::new([8; 32], Duration::from_secs(60));
        assert_ne!(cache.fingerprint("ann", "sesame"), other.fingerprint("ann", "sesame"));
    }

    #[test]
    fn it_never_grows_beyond_its_bound_and_forgets_the_oldest() {
        let (mut cache, now) = (cache(), Instant::now());
        let of = |cache: &Cache, number: usize| cache.fingerprint("ann", &number.to_string());
        for number in 0..ENTRIES_MAX + 10 {
            let fingerprint = of(&cache, number);
            cache.remember(fingerprint, 1, now + Duration::from_millis(number as u64));
        }
        assert_eq!(cache.entries.len(), ENTRIES_MAX);
        let later = now + Duration::from_secs(2);
        assert!(!cache.knows(&of(&cache, 9), 1, later) && cache.knows(&of(&cache, 10), 1, later));
    }
}
