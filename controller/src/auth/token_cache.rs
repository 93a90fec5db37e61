//! A cache of API tokens: a client with a thousand requests a second causes one look-up a second.
//!
//! ```text
//!  looked up, found ──> cached for one second ──> looked up again        (unknown tokens are never cached)
//! ```
//!
//! Invariants: a token that is removed from the database is refused after one second at most; its expiry is checked with
//! every request; a clock that is set back extends no entry; the map is bounded.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::store::TokenRecord;

/// The lifetime of an entry.
const LIFETIME: Duration = Duration::from_secs(1);
/// The maximum number of entries.
const MAX_TOKENS: usize = 256;

/// Token records with the time of their look-up, by the hash of the token.
#[derive(Debug, Default)]
pub(super) struct TokenCache(Mutex<HashMap<String, (TokenRecord, Timestamp)>>);

impl TokenCache {
    /// The token with this hash, if it was looked up within the last second.
    pub(super) fn get(&self, hash: &str, now: Timestamp) -> Option<TokenRecord> {
        let recent = self.0.lock();
        let (record, read_at) = recent.get(hash)?;
        let age = Duration::try_from(now.duration_since(*read_at)).ok()?;
        (age < LIFETIME).then(|| record.clone())
    }

    /// Stores a token that was just looked up.
    pub(super) fn put(&self, hash: String, record: TokenRecord, now: Timestamp) {
        let mut recent = self.0.lock();
        if recent.len() >= MAX_TOKENS && !recent.contains_key(&hash) {
            recent.clear();
        }
        recent.insert(hash, (record, now));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;

    fn record() -> TokenRecord {
        TokenRecord { id: "1".to_owned(), name: "ci".to_owned(), role: Role::Reader, expires_at: None }
    }

    #[test]
    fn a_token_is_cached_for_one_second_and_not_before_it_was_read() {
        let recent = TokenCache::default();
        let read: Timestamp = "2026-11-20T08:00:00Z".parse().unwrap();
        recent.put("hash".to_owned(), record(), read);
        let at = |ms| read + jiff::SignedDuration::from_millis(ms);
        let known = |ms| recent.get("hash", at(ms)).is_some();
        assert_eq!([known(0), known(999), known(1000), known(-1)], [true, true, false, false]);
        assert!(recent.get("another", read).is_none());
    }

    #[test]
    fn the_number_of_cached_tokens_is_bounded() {
        let recent = TokenCache::default();
        let now: Timestamp = "2026-11-20T08:00:00Z".parse().unwrap();
        for token in 0..3 * MAX_TOKENS {
            recent.put(token.to_string(), record(), now);
        }
        assert!(recent.0.lock().len() <= MAX_TOKENS);
        assert!(recent.get(&(3 * MAX_TOKENS - 1).to_string(), now).is_some());
    }
}
