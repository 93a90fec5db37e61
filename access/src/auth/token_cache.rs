//! A cache of API tokens: a client with a thousand requests a second causes one look-up a second.
//!
//! ```text
//!  looked up, found ──> cached for one second ──> looked up again        (unknown tokens are never cached)
//!                              │
//!  a token was changed ──────> emptied; a look-up that began before is not cached
//! ```
//!
//! Invariants: a token that this process revokes, rotates or changes is refused or changed from the next request on; one that
//! is removed from the database by other means is refused after one second at most; its expiry is checked with every request;
//! a clock that is set back extends no entry; the map is bounded.

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
pub(super) struct TokenCache(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    tokens: HashMap<String, (TokenRecord, Timestamp)>,
    /// The number of changes of tokens.
    changes: u64,
}

/// The state of the tokens before a look-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct BeforeLookup(u64);

impl TokenCache {
    /// The token with this hash, if it was looked up within the last second.
    pub(super) fn get(&self, hash: &str, now: Timestamp) -> Option<TokenRecord> {
        let recent = self.0.lock();
        let (record, read_at) = recent.tokens.get(hash)?;
        let age = Duration::try_from(now.duration_since(*read_at)).ok()?;
        (age < LIFETIME).then(|| record.clone())
    }

    /// The state to give to [`Self::put`], taken before the look-up.
    pub(super) fn before_lookup(&self) -> BeforeLookup {
        BeforeLookup(self.0.lock().changes)
    }

    /// Stores a token that was just looked up, unless tokens have changed since `before`.
    pub(super) fn put(&self, hash: String, record: TokenRecord, before: BeforeLookup, now: Timestamp) {
        let mut recent = self.0.lock();
        if recent.changes != before.0 {
            return;
        }
        if recent.tokens.len() >= MAX_TOKENS && !recent.tokens.contains_key(&hash) {
            recent.tokens.clear();
        }
        recent.tokens.insert(hash, (record, now));
    }

    /// Forgets all tokens, after a change of them was stored.
    pub(super) fn changed(&self) {
        let mut recent = self.0.lock();
        recent.changes += 1;
        recent.tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;

    fn record() -> TokenRecord {
        TokenRecord {
            id: "1".to_owned(),
            name: "ci".to_owned(),
            role: Role::Viewer,
            limits: super::super::TokenLimits::default(),
            expires_at: None,
            last_used_at: None,
            unconfirmed: false,
        }
    }

    #[test]
    fn a_token_is_cached_for_one_second_and_not_before_it_was_read() {
        let recent = TokenCache::default();
        let read: Timestamp = "2026-11-20T08:00:00Z".parse().unwrap();
        recent.put("hash".to_owned(), record(), recent.before_lookup(), read);
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
            recent.put(token.to_string(), record(), recent.before_lookup(), now);
        }
        assert!(recent.0.lock().tokens.len() <= MAX_TOKENS);
        assert!(recent.get(&(3 * MAX_TOKENS - 1).to_string(), now).is_some());
    }
    #[test]
    fn a_change_empties_the_cache_and_a_look_up_that_began_before_it_is_not_cached() {
        let recent = TokenCache::default();
        let now: Timestamp = "2026-11-20T08:00:00Z".parse().unwrap();
        recent.put("hash".to_owned(), record(), recent.before_lookup(), now);
        let before = recent.before_lookup();
        recent.changed();
        assert!(recent.get("hash", now).is_none());
        recent.put("hash".to_owned(), record(), before, now);
        assert!(
            recent.get("hash", now).is_none(),
            "what was read before the revocation is not cached after it"
        );
    }
}
