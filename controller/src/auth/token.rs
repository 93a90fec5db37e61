//! API tokens.
//!
//! ```text
//! shoal_ + 40 × [a-z2-7]     base32 of 25 random bytes: 200 bits
//! ```
//!
//! The prefix lets scanners of repositories and logs find a leaked one. Stored is the hex SHA-256 of the whole text,
//! which is enough for a secret that nobody can guess; the token itself is shown once, when it is made.
//!
//! DESIGN sections 4 (`api_tokens`) and 11.

use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use secrets::{NoRandomness, base32_lower, random_bytes};

/// How every API token begins.
pub const API_TOKEN_PREFIX: &str = "shoal_";

const RANDOM_BYTES: usize = 25;
const RANDOM_CHARACTERS: usize = RANDOM_BYTES / 5 * 8;

/// Makes an API token. Keep its [`secrets::token_hash`] and show the token once.
///
/// # Errors
/// [`NoRandomness`] when the operating system has none to give.
pub fn generate_token() -> Result<SecretString, NoRandomness> {
    let bytes = Zeroizing::new(random_bytes::<RANDOM_BYTES>()?);
    let characters = base32_lower(bytes.as_slice());
    Ok(SecretString::from([API_TOKEN_PREFIX, characters.expose_secret()].concat()))
}

/// Whether a text has the form of an API token. The alphabet is wider than what we make, so that another encoding
/// later needs no second form.
pub fn is_api_token(text: &str) -> bool {
    text.strip_prefix(API_TOKEN_PREFIX).is_some_and(|rest| {
        rest.len() == RANDOM_CHARACTERS
            && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}
