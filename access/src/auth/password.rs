//! Passwords of users: argon2id in PHC form.
//!
//! ```text
//! $argon2id$v=19$m=19456,t=2,p=1$<salt, 16 bytes>$<hash, 32 bytes>
//! ```
//!
//! A hash in the configuration may have higher costs than the hashes of this program, within bounds: its parameters
//! determine memory and time of every login. Hashing and verification take tens of milliseconds; async code runs them on a
//! blocking thread.
//!
//! Decision D18; docs/operating.md.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params};
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use secrets::{NoRandomness, random_bytes};

/// The minimum length of a password in bytes.
pub const MIN_PASSWORD_BYTES: usize = 8;

/// The maximum length of a password in bytes. It is enough for a token in place of a password.
pub const MAX_PASSWORD_BYTES: usize = 4096;

/// The maximum length of a PHC text.
const MAX_HASH_BYTES: usize = 512;
const MAX_MEMORY_KIB: u32 = 256 * 1024;
const MAX_PASSES: u32 = 16;
const MAX_LANES: u32 = 16;
const SALT_BYTES: usize = 16;

/// The hash that is verified for an unknown user, so that the response takes as long as for a known one. It has the
/// parameters of [`hash_password`]; the result is ignored.
pub(super) const DECOY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c2hvYWwtZGVjb3ktc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes a password for the `users` table or `BASIC_PASS_HASH`. Takes tens of milliseconds.
///
/// # Errors
/// [`PasswordError`] when the password is too short or too long or has a control character, or the operating system returns no random bytes.
pub fn hash_password(password: &SecretString) -> Result<String, PasswordError> {
    let password = password.expose_secret();
    if password.len() < MIN_PASSWORD_BYTES {
        return Err(PasswordError::TooShort);
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(PasswordError::TooLong);
    }
    // A login has its password in a header, which carries none.
    if password.contains(char::is_control) {
        return Err(PasswordError::ControlCharacter);
    }
    let salt = random_bytes::<SALT_BYTES>()?;
    let salt = SaltString::encode_b64(&salt).map_err(PasswordError::Hash)?;
    let hash = argon2().hash_password(password.as_bytes(), &salt).map_err(PasswordError::Hash)?;
    Ok(hash.to_string())
}

/// Checks that this program can verify a password hash.
///
/// # Errors
/// [`PasswordError::Unusable`] when the text is not argon2id in PHC form, or its parameters exceed the bounds.
pub fn password_hash_usable(hash: &str) -> Result<(), PasswordError> {
    parse_hash(hash).map(|_| ())
}

/// Whether a password matches a hash. The parameters of the hash determine the time.
pub(super) fn verify(password: &SecretString, hash: &str) -> Result<bool, PasswordError> {
    let hash = parse_hash(hash)?;
    match argon2().verify_password(password.expose_secret().as_bytes(), &hash) {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::Password) => Ok(false),
        Err(error) => Err(PasswordError::Hash(error)),
    }
}

/// The reason why a password cannot be hashed or a hash cannot be used.
#[derive(Debug, Error)]
pub enum PasswordError {
    /// The password is too short.
    #[error("the password is shorter than {MIN_PASSWORD_BYTES} bytes; choose a longer one")]
    TooShort,
    /// The password is too long.
    #[error("the password is longer than {MAX_PASSWORD_BYTES} bytes; choose a shorter one")]
    TooLong,
    /// The password has a control character.
    #[error(
        "the password has a line break, a tab or another control character, which no login can send; choose one without"
    )]
    ControlCharacter,
    /// The text is not a PHC hash, has another algorithm, or exceeds the bounds.
    #[error(
        "the password hash is not argon2id in PHC form ($argon2id$v=19$m=…,t=…,p=…$salt$hash) with at most 256 MiB, \
         16 passes and 16 lanes; create a new one"
    )]
    Unusable,
    /// The hash function failed.
    #[error("cannot compute an argon2id hash ({0}); create a new password hash")]
    Hash(argon2::password_hash::Error),
    /// The operating system returned no random bytes for the salt.
    #[error("cannot hash a password")]
    Random(#[from] NoRandomness),
}

/// argon2id with the defaults of the crate, which OWASP recommends: 19 MiB, two passes, one lane.
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
