//! API tokens.
//!
//! ```text
//! shoal_ + 40 × [a-z2-7]     base32 of 25 random bytes: 200 bits
//! ```
//!
//! Secret scanners find leaked tokens in repositories and logs by the prefix. The store keeps the hex SHA-256 of the whole
//! text, which is enough for a secret of 200 random bits. The token is shown once, when it is created.
//!
//! Table api_tokens; docs/operating.md.

use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use secrets::{NoRandomness, base32_lower, random_bytes};

/// The prefix of every API token.
pub const API_TOKEN_PREFIX: &str = "shoal_";

const RANDOM_BYTES: usize = 25;
const RANDOM_CHARACTERS: usize = RANDOM_BYTES / 5 * 8;

/// Creates an API token. Store its [`secrets::token_hash`] and show the token once.
///
/// # Errors
/// [`NoRandomness`] when the operating system returns no random bytes.
pub fn generate_token() -> Result<SecretString, NoRandomness> {
    let bytes = Zeroizing::new(random_bytes::<RANDOM_BYTES>()?);
    let characters = base32_lower(bytes.as_slice());
    Ok(SecretString::from([API_TOKEN_PREFIX, characters.expose_secret()].concat()))
}

/// Whether a text has the form of an API token. The accepted alphabet is wider than that of [`generate_token`], so that a
/// later encoding needs no second form.
pub fn is_api_token(text: &str) -> bool {
    text.strip_prefix(API_TOKEN_PREFIX).is_some_and(|rest| {
        rest.len() == RANDOM_CHARACTERS
            && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}
