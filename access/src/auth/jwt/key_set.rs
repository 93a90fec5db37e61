//! A key set that another system publishes: fetched when it is needed, kept, and fetched again for a key that is not in it.
//!
//! ```text
//!  token ── known kid, set younger than MAX_AGE ──────────────────────────> keys
//!       `── otherwise ── at most once per REFRESH_INTERVAL: fetch ──┬─ usable: replaces the set ──> keys
//!                                                                   `─ not: warning, the former set ──> keys
//! ```
//!
//! Invariants: clients that send tokens with unknown ids cause at most one request per [`REFRESH_INTERVAL`]; a client that
//! disconnects does not end a fetch; a failure removes no key; without any set tokens cannot be checked, which is not the
//! caller's mistake.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::keys::{self, JwtKeyError, PublicKeys};
use super::refusal::JwtError;

/// The minimum time between two fetches.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// The age after which a set is fetched again, so that a key that its issuer removed is removed here.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Fetches the document of a key set.
#[async_trait]
pub trait KeyDocument: Send + Sync {
    /// Returns the document, with a limit of its size and of the time.
    ///
    /// # Errors
    /// The cause, in words, when the document cannot be fetched.
    async fn fetch(&self) -> Result<Vec<u8>, String>;
}

/// A set of public keys.
pub struct KeySet {
    /// The source of the set; `None` for a set that was read from a file.
    source: Option<Arc<dyn KeyDocument>>,
    held: Arc<RwLock<Held>>,
    /// The time at which the last fetch began; locked while one is under way.
    refresh: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Clone, Default)]
struct Held {
    keys: Arc<PublicKeys>,
    fetched: Option<Timestamp>,
}

impl KeySet {
    /// A set that does not change.
    ///
    /// # Errors
    /// [`JwtKeyError`] when the text is no key set or contains no usable key.
    pub fn fixed(json: &[u8]) -> Result<Self, JwtKeyError> {
        Ok(Self::new(None, keys::of_set(json)?))
    }

    /// A set that is fetched when the first token needs it.
    pub fn fetched(source: Arc<dyn KeyDocument>) -> Self {
        Self::new(Some(source), PublicKeys::default())
    }

    fn new(source: Option<Arc<dyn KeyDocument>>, keys: PublicKeys) -> Self {
        let held = Held { keys: Arc::new(keys), fetched: None };
        Self { source, held: Arc::new(RwLock::new(held)), refresh: Arc::default() }
    }

    /// Takes over the keys of a former set until the own ones are fetched. A set from a file has its own keys.
    pub(in crate::auth) fn inherit(&self, former: &Self) {
        if self.source.is_some() && former.source.is_some() {
            self.held.write().keys = Arc::clone(&former.held.read().keys);
        }
    }

    /// The keys of the set, fetched again if that is due or no key has this id.
    pub(super) async fn keys(&self, id: Option<&str>, now: Timestamp) -> Result<Arc<PublicKeys>, JwtError> {
        let known = |held: &Held| !held.keys.is_empty() && id.is_none_or(|id| held.keys.has(id));
        if let Some(source) = &self.source {
            let held = self.held.read().clone();
            let young = held.fetched.is_some_and(|fetched| within(fetched, now, MAX_AGE));
            if !known(&held) {
                // Waits for a fetch that is under way: it may bring the key.
                let turn = Arc::clone(&self.refresh).lock_owned().await;
                if !known(&self.held.read()) {
                    self.fetch(source, turn, now).await;
                }
            } else if !young && let Ok(turn) = Arc::clone(&self.refresh).try_lock_owned() {
                self.fetch(source, turn, now).await;
            }
        }
        let keys = Arc::clone(&self.held.read().keys);
        if keys.is_empty() { Err(JwtError::NoKeySet) } else { Ok(keys) }
    }

    /// Fetches the set, unless the last fetch was within [`REFRESH_INTERVAL`].
    async fn fetch(
        &self,
        source: &Arc<dyn KeyDocument>,
        mut turn: OwnedMutexGuard<Option<Timestamp>>,
        now: Timestamp,
    ) {
        if turn.is_some_and(|last| within(last, now, REFRESH_INTERVAL)) {
            return;
        }
        *turn = Some(now);
        let (source, held) = (Arc::clone(source), Arc::clone(&self.held));
        // A task of its own: a client that disconnects must not use up the fetch of the interval.
        let fetch = tokio::spawn(async move {
            let document = source.fetch().await;
            match document.and_then(|json| keys::of_set(&json).map_err(|error| error.to_string())) {
                Ok(keys) => *held.write() = Held { keys: Arc::new(keys), fetched: Some(now) },
                Err(reason) => {
                    let kept = !held.read().keys.is_empty();
                    tracing::warn!(%reason, kept, "the key set of JWT_JWKS could not be fetched; former keys are kept");
                }
            }
            drop(turn);
        });
        if fetch.await.is_err() {
            tracing::error!("the fetch of JWT_JWKS ended early; former keys are kept");
        }
    }
}

/// Whether `time` is at most `age` before `now`. A time in the future is not, so that a clock that was set back is noticed.
fn within(time: Timestamp, now: Timestamp, age: SignedDuration) -> bool {
    let passed = now.duration_since(time);
    !passed.is_negative() && passed < age
}
