//! Passwords of users: argon2id in PHC form.
//!
//! ```text
//! $argon2id$v=19$m=19456,t=2,p=1$<salt, 16 bytes>$<hash, 32 bytes>
//! ```
//!
//! A hash from the configuration may be stronger than ours, within bounds: its numbers decide how much memory and
//! time every login takes. Both functions here take tens of milliseconds; async code runs them on a blocking thread.
//!
//! DESIGN section 11, contract 033.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use secrets::{NoRandomness, random_bytes};

/// No shorter password is hashed.
pub const MIN_PASSWORD_BYTES: usize = 8;

/// No longer password is hashed or looked at. Tokens that take a password's place fit too.
pub const MAX_PASSWORD_BYTES: usize = 4096;

/// No longer PHC text is read.
const MAX_HASH_BYTES: usize = 512;
const MAX_MEMORY_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 16;
const SALT_BYTES: usize = 16;

/// Verified in place of the hash that an unknown user does not have, so that the answer takes as long. It has the
/// numbers of [`hash_password`]; what it says is never used.
pub(super) const DECOY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2hvYWwtZGVjb3ktc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a password for the `users` table or `BASIC_PASS_HASH`. Takes tens of milliseconds.
///
/// # Errors
/// [`PasswordError`] when the password is too short or too long, or there is no randomness for the salt.
pub fn hash_password(password: &SecretString) -> Result<String, PasswordError> {
    let password = password.expose_secret();
    if password.len() < MIN_PASSWORD_BYTES {
        return Err(PasswordError::TooShort);
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(PasswordError::TooLong);
    }
    let salt = random_bytes::<SALT_BYTES>()?;
    let salt = SaltString::encode_b64(&salt).map_err(PasswordError::Hash)?;
    let hash = argon2().hash_password(password.as_bytes(), &salt).map_err(PasswordError::Hash)?;
    Ok(hash.to_string())
}

/// Checks that a text is a password hash this program verifies.
///
/// # Errors
/// [`PasswordError::Unusable`] when it is not argon2id in PHC form, or its numbers are beyond the bounds.
pub fn password_hash_usable(hash: &str) -> Result<(), PasswordError> {
    parse_hash(hash).map(|_| ())
}

/// Whether a password belongs to a hash. Takes as long as the hash's numbers say.
pub(super) fn verify(password: &SecretString, hash: &str) -> Result<bool, PasswordError> {
    let hash = parse_hash(hash)?;
    match argon2().verify_password(password.expose_secret().as_bytes(), &hash) {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::Password) => Ok(false),
        Err(error) => Err(PasswordError::Hash(error)),
    }
}

/// Why a password could not be hashed or a hash not be used.
#[derive(Debug, Error)]
pub enum PasswordError {
    /// Easily guessed.
    #[error("the password is shorter than {MIN_PASSWORD_BYTES} bytes; choose a longer one")]
    TooShort,
    /// Longer than any password.
    #[error("the password is longer than {MAX_PASSWORD_BYTES} bytes; choose a shorter one")]
    TooLong,
    /// The text is no hash, one of another kind, or one out of bounds.
    #[error(
        "the password hash is not argon2id in PHC form ($argon2id$v=19$m=…,t=…,p=…$salt$hash) with at most 256 MiB, \
         16 passes and 16 lanes; make a new one"
    )]
    Unusable,
    /// The hash function refused.
    #[error("cannot compute an argon2id hash ({0}); make a new password hash")]
    Hash(argon2::password_hash::Error),
    /// No salt without randomness.
    #[error("cannot hash a password")]
    Random(#[from] NoRandomness),
}

/// argon2id with the crate's defaults, which are the first choice of OWASP: 19 MiB, two passes, one lane.
fn argon2() -> Argon2<'static> {
    Argon2::default()
}

fn parse_hash(text: &str) -> Result<PasswordHash<'_>, PasswordError> {
    if text.len() > MAX_HASH_BYTES {
        return Err(PasswordError::Unusable);
    }
    let hash = PasswordHash::new(text).map_err(|_| PasswordError::Unusable)?;
    let argon2id = Algorithm::try_from(hash.algorithm).is_ok_and(|found| found == Algorithm::Argon2id);
    let params = Params::try_from(&hash).map_err(|_| PasswordError::Unusable)?;
    let bounded = params.m_cost() <= MAX_MEMORY_KIB
        && params.t_cost() <= MAX_PASSES
        && params.p_cost() <= MAX_LANES
        && hash.salt.is_some()
        && hash.hash.is_some();
    if argon2id && bounded { Ok(hash) } else { Err(PasswordError::Unusable) }
}
