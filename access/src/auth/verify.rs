//! Verification of passwords with bounded CPU time and memory.
//!
//! ```text
//! request ─> remembered? ─yes──────────────────────────────> right
//!              │no
//!            queue of 64 ─full─> busy
//!              │
//!            one of 2 permits ─> blocking thread: argon2id ─> right (remembered for 30 s) or wrong
//! ```
//!
//! Registry clients send the password with every request; remembering a right one makes the next requests cheap. The
//! memory contains an HMAC of name, password and hash with a key of this process: it contains no password, and after a
//! change of the hash no entry matches. Wrong passwords are never remembered.
//!
//! The permit moves with the work. It moves into the blocking thread, so that a caller that disconnects does not free its
//! permit while its verification still runs. It moves back to the request, so that the next request in the queue finds the
//! remembered result.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::password;
use secrets::{Key, NoRandomness};

/// The number of verifications that run at once; each takes 19 MiB with hashes of this program.
const PERMITS: usize = 2;

/// The number of requests that wait for a permit or have one: about a second of work.
const QUEUE: usize = 64;

/// The time for which a right password is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// The maximum number of remembered passwords.
const MAX_REMEMBERED: usize = 1024;

/// Verifies passwords with a limit of parallel verifications.
pub(super) struct PasswordVerifier {
    key: Key,
    queue: Arc<Semaphore>,
    permits: Arc<Semaphore>,
    /// The HMAC of a right password and the time of its verification, in milliseconds since 1970.
    remembered: Mutex<HashMap<[u8; 32], i64>>,
}

/// The name, password and stored hash of one verification.
pub(super) struct PasswordAttempt<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a SecretString,
    pub(super) hash: &'a str,
}

/// The right to verify one password.
#[derive(Debug)]
pub(super) struct VerifyPermit {
    _place: OwnedSemaphorePermit,
    _permit: OwnedSemaphorePermit,
}

/// The queue is full, or the verification thread panicked.
#[derive(Debug)]
pub(super) struct Busy;

impl PasswordVerifier {
    pub(super) fn new() -> Result<Self, NoRandomness> {
        Ok(Self {
            key: Key::random()?,
            queue: Arc::new(Semaphore::new(QUEUE)),
            permits: Arc::new(Semaphore::new(PERMITS)),
            remembered: Mutex::default(),
        })
    }

    /// Whether this password was verified for this user and hash within the last 30 s.
    pub(super) fn remembers(&self, attempt: &PasswordAttempt<'_>, now: Timestamp) -> bool {
        let proof = self.proof(attempt);
        self.remembered.lock().get(&proof).is_some_and(|verified| fresh(*verified, now.as_millisecond()))
    }

    /// Waits for a permit. [`Busy`] when the queue is full.
    pub(super) async fn acquire(&self) -> Result<VerifyPermit, Busy> {
        let place = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| Busy)?;
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| Busy)?;
        Ok(VerifyPermit { _place: place, _permit: permit })
    }

    /// Verifies a password and remembers a right one. Returns the permit with the result.
    pub(super) async fn verify(
        &self,
        permit: VerifyPermit,
        attempt: &PasswordAttempt<'_>,
        now: Timestamp,
    ) -> Result<(bool, VerifyPermit), Busy> {
        let password = attempt.password.clone();
        let hash = attempt.hash.to_owned();
        let verification = tokio::task::spawn_blocking(move || (password::verify(&password, &hash), permit));
        let (verified, permit) = verification.await.map_err(|_| Busy)?;
        let right = verified.unwrap_or_else(|error| {
            tracing::warn!(user = attempt.name, %error, "the stored password hash of a user cannot be used");
            false
        });
        if right {
            self.remember(self.proof(attempt), now.as_millisecond());
        }
        Ok((right, permit))
    }

    fn remember(&self, proof: [u8; 32], now: i64) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, verified| fresh(*verified, now));
        }
        // If all entries are recent, this password is not remembered and is verified again the next time.
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(proof, now);
        }
    }

    fn proof(&self, attempt: &PasswordAttempt<'_>) -> [u8; 32] {
        let password = attempt.password.expose_secret();
        self.key.tag(&[attempt.name.as_bytes(), password.as_bytes(), attempt.hash.as_bytes()])
    }

    #[cfg(test)]
    pub(super) fn remembered_count(&self) -> usize {
        self.remembered.lock().len()
    }

    #[cfg(test)]
    pub(super) fn remember_for_test(&self, proof: [u8; 32], now: Timestamp) {
        self.remember(proof, now.as_millisecond());
    }

    #[cfg(test)]
    pub(super) const LIMITS: (usize, usize, usize) = (PERMITS, QUEUE, MAX_REMEMBERED);
}

/// Whether a verification is recent. An entry from the future is not, so that a clock that was set back extends nothing.
fn fresh(verified: i64, now: i64) -> bool {
    let age = now.saturating_sub(verified);
    u128::try_from(age).is_ok_and(|age| age < REMEMBERED_FOR.as_millis())
}
