//! API tokens, and tokens of workers.
//!
//! ```text
//! shoal_       + 40 × [a-z2-7]     an API token: base32 of 25 random bytes, 200 bits
//! shoalworker_ + 40 × [a-z2-7]     the token of a worker, for the routes of workers only
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

/// The prefix of every token of a worker. It is no prefix of an API token, so that neither is taken for the other.
pub const WORKER_TOKEN_PREFIX: &str = "shoalworker_";

const RANDOM_BYTES: usize = 25;
const RANDOM_CHARACTERS: usize = RANDOM_BYTES / 5 * 8;

/// Creates an API token. Store its [`secrets::token_hash`] and show the token once.
///
/// # Errors
/// [`NoRandomness`] when the operating system returns no random bytes.
pub fn generate_token() -> Result<SecretString, NoRandomness> {
    generate(API_TOKEN_PREFIX)
}

/// Creates the token of a worker, in the form of an API token with a prefix of its own.
///
/// # Errors
/// [`NoRandomness`] when the operating system returns no random bytes.
pub fn generate_worker_token() -> Result<SecretString, NoRandomness> {
    generate(WORKER_TOKEN_PREFIX)
}

fn generate(prefix: &str) -> Result<SecretString, NoRandomness> {
    let bytes = Zeroizing::new(random_bytes::<RANDOM_BYTES>()?);
    let characters = base32_lower(bytes.as_slice());
    Ok(SecretString::from([prefix, characters.expose_secret()].concat()))
}

/// Whether a text has the form of an API token. The accepted alphabet is wider than that of [`generate_token`], so that a
/// later encoding needs no second form.
pub fn is_api_token(text: &str) -> bool {
    text.strip_prefix(API_TOKEN_PREFIX).is_some_and(is_random_part)
}

/// Whether a text has the form of a token of a worker.
pub fn is_worker_token(text: &str) -> bool {
    text.strip_prefix(WORKER_TOKEN_PREFIX).is_some_and(is_random_part)
}

fn is_random_part(rest: &str) -> bool {
    rest.len() == RANDOM_CHARACTERS
        && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
