//! Verifying passwords without letting callers buy CPU and memory.
//!
//! ```text
//! request ─> remembered? ─yes──────────────────────────────> right
//!              │no
//!            queue of 64 ─full─> busy
//!              │
//!            one of 2 turns ─> blocking thread: argon2id ─> right (remembered for 30 s) or wrong
//! ```
//!
//! Clients of a registry send the password with every request; remembering a right one for a while makes the second
//! request cheap. What is remembered is an HMAC, under a key of this process, of name, password and hash: it holds
//! no password, and a changed hash is not found again. Wrong passwords are never remembered.
//!
//! A turn travels with the work: into the blocking thread, so that a caller who hangs up does not make room for
//! another verification while its own still runs, and back to the request, so that the next one in the queue finds
//! what this one learned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::password;
use secrets::{Key, NoRandomness};

/// How many verifications run at once; each takes 19 MiB with our own hashes.
const TURNS: usize = 2;

/// How many requests may wait for a turn or have one: about a second of work.
const QUEUE: usize = 64;

/// How long a right password need not be verified again.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// How many right passwords are remembered.
const MAX_REMEMBERED: usize = 1024;

/// Verifies passwords, a few at a time.
pub(super) struct PasswordVerifier {
    key: Key,
    queue: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Proof of a right password, and when it was verified, in milliseconds since the epoch.
    remembered: Mutex<HashMap<[u8; 32], i64>>,
}

/// What one verification is about.
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a SecretString,
    pub(super) hash: &'a str,
}

/// The right to verify one password.
#[derive(Debug)]
pub(super) struct Turn {
    _place: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
}

/// Too many are waiting already, or the verification broke.
#[derive(Debug)]
pub(super) struct Busy;

impl PasswordVerifier {
    pub(super) fn new() -> Result<Self, NoRandomness> {
        Ok(Self {
            key: Key::random()?,
            queue: Arc::new(Semaphore::new(QUEUE)),
            turns: Arc::new(Semaphore::new(TURNS)),
            remembered: Mutex::default(),
        })
    }

    /// Whether this very claim was verified a moment ago.
    pub(super) fn remembers(&self, claim: &Claim<'_>, now: Timestamp) -> bool {
        let proof = self.proof(claim);
        self.remembered().get(&proof).is_some_and(|verified| fresh(*verified, now.as_millisecond()))
    }

    /// Waits for a turn, or refuses when too many wait already.
    pub(super) async fn turn(&self) -> Result<Turn, Busy> {
        let place = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| Busy)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Busy)?;
        Ok(Turn { _place: place, _turn: turn })
    }

    /// Verifies a claim; a right one is remembered. The turn comes back with the answer.
    pub(super) async fn verify(
        &self,
        turn: Turn,
        claim: &Claim<'_>,
        now: Timestamp,
    ) -> Result<(bool, Turn), Busy> {
        let password = claim.password.clone();
        let hash = claim.hash.to_owned();
        let verification = tokio::task::spawn_blocking(move || (password::verify(&password, &hash), turn));
        let (verified, turn) = verification.await.map_err(|_| Busy)?;
        let right = verified.unwrap_or_else(|error| {
            tracing::warn!(user = claim.name, %error, "the stored password hash of a user cannot be used");
            false
        });
        if right {
            self.remember(self.proof(claim), now.as_millisecond());
        }
        Ok((right, turn))
    }

    fn remember(&self, proof: [u8; 32], now: i64) {
        let mut remembered = self.remembered();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, verified| fresh(*verified, now));
        }
        // Full of fresh ones: this one is verified again next time, which costs time and nothing else.
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(proof, now);
        }
    }

    fn proof(&self, claim: &Claim<'_>) -> [u8; 32] {
        let password = claim.password.expose_secret();
        self.key.tag(&[claim.name.as_bytes(), password.as_bytes(), claim.hash.as_bytes()])
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<[u8; 32], i64>> {
        // A panic elsewhere leaves whole entries behind, so the map stays usable.
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn remembered_count(&self) -> usize {
        self.remembered().len()
    }

    #[cfg(test)]
    pub(super) fn remember_for_test(&self, proof: [u8; 32], now: Timestamp) {
        self.remember(proof, now.as_millisecond());
    }

    #[cfg(test)]
    pub(super) const LIMITS: (usize, usize, usize) = (TURNS, QUEUE, MAX_REMEMBERED);
}

/// A clock that was set back makes nothing fresh again.
fn fresh(verified: i64, now: i64) -> bool {
    let age = now.saturating_sub(verified);
    u128::try_from(age).is_ok_and(|age| age < REMEMBERED_FOR.as_millis())
}
