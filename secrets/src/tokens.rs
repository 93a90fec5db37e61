//! The tokens of one job, and the storage and comparison of tokens.
//!
//! ```text
//! seed    HMAC(signing key, run), made when the run is created and stored sealed in its input
//! token   base32 (a-z, 2-7) of the first 20 bytes of an HMAC under the seed: 32 characters, 160 bits
//!           webhook token   webhook-token  (job)
//!           grant token     media-grant    (job, image, slot plan, attempt)
//!           pull password   registry-pull  (job)
//! stored  hex SHA-256 of the text of the token
//! ```
//!
//! The tokens are derived and not random: a task image that is rendered again after a crash contains the same tokens. A
//! changed image, slot plan or attempt has another grant token, so a URL never serves other bytes than before. Tokens
//! satisfy the rules of media paths (`[a-z0-9]` only, short).
//!
//! Decisions D1, D2, D12 and D14.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::key::{Key, KeyRing, SubKey};

/// The user name with which the maintenance OS of a job sends its pull password. It is reserved: no user can have it.
pub const JOB_USERNAME: &str = "shoal-job";

/// The bytes of an HMAC that form a token: a whole number of base32 groups and more than 128 bits.
const TOKEN_BYTES: usize = 20;

/// The length of a seed in hex.
const SEED_DIGITS: usize = 64;

/// The base32 alphabet of RFC 4648 section 6 in lower case.
const BASE32_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The seed of one run, from which its tokens are derived. It is stored in the sealed input of the run, so a rotation of the
/// signing key changes no token of a run that exists.
#[derive(Clone)]
pub struct TokenSeed(SecretString);

impl fmt::Debug for TokenSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSeed(redacted)")
    }
}

/// Only for the input of a run, which is sealed.
impl Serialize for TokenSeed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose_secret())
    }
}

impl<'de> Deserialize<'de> for TokenSeed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = SecretString::from(String::deserialize(deserializer)?);
        match text.expose_secret().len() == SEED_DIGITS {
            true => Ok(Self(text)),
            // The text is not repeated: it is a secret.
            false => Err(serde::de::Error::custom("the seed of the tokens is damaged")),
        }
    }
}

/// Makes the seeds of new runs.
pub struct TokenSeeds(Key);

impl TokenSeeds {
    /// The seeds of this installation, derived from its signing key.
    pub fn new(signing: &KeyRing) -> Self {
        Self(signing.derive("token-seed"))
    }

    /// The seed of a new run, by the version of the signing key that is in force now.
    pub fn seed(&self, run: &str) -> TokenSeed {
        TokenSeed(SecretString::from(hex::encode(self.0.tag(&[run.as_bytes()]))))
    }
}

impl fmt::Debug for TokenSeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSeeds(redacted)")
    }
}

/// Derives the tokens of one run.
pub struct JobTokens {
    webhook: SubKey,
    grant: SubKey,
    pull: SubKey,
}

impl JobTokens {
    /// The tokens of the run with this seed.
    pub fn new(seed: &TokenSeed) -> Self {
        let key = |purpose| SubKey::derive(seed.0.expose_secret().as_bytes(), purpose);
        Self { webhook: key("webhook-token"), grant: key("media-grant"), pull: key("registry-pull") }
    }

    /// The report token, which the maintenance OS sends with the installation reports of this job.
    pub fn report_token(&self, job_id: &str) -> SecretString {
        token(&self.webhook, &[job_id.as_bytes()])
    }

    /// The token in the media URL of one image. `image` names the artifact and its digest, so that other bytes have another
    /// URL.
    pub fn grant_token(&self, job_id: &str, image: &str, slot_plan: &str, attempt: u32) -> SecretString {
        let parts = [job_id.as_bytes(), image.as_bytes(), slot_plan.as_bytes(), &attempt.to_be_bytes()];
        token(&self.grant, &parts)
    }

    /// The password with which the maintenance OS of this job pulls from the registry.
    pub fn pull_password(&self, job_id: &str) -> SecretString {
        token(&self.pull, &[job_id.as_bytes()])
    }
}

impl fmt::Debug for JobTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobTokens").finish_non_exhaustive()
    }
}

/// The SHA-256 of the text of a token in hex, which is stored. This is safe for tokens of 160 random bits and more; a
/// password needs `auth::hash_password`.
pub fn token_hash(token: &str) -> String {
    hex::encode(sha256(token))
}

/// Whether `stored_hash` is the hash of the token `presented`. Constant-time in both; a stored text that is not a hash
/// matches no token.
pub fn token_matches(presented: &str, stored_hash: &str) -> bool {
    let mut stored = [0u8; 32];
    let is_hash = hex::decode_to_slice(stored_hash, &mut stored).is_ok();
    bool::from(sha256(presented).ct_eq(&stored)) && is_hash
}

/// Whether two secrets are equal. The time does not depend on how much of them is equal.
pub fn same_secret(left: &str, right: &str) -> bool {
    sha256(left).ct_eq(&sha256(right)).into()
}

/// The SHA-256 of a text, by which secrets are compared.
pub fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Encodes whole groups in base32, lower case, without padding: five bytes become eight characters.
pub fn base32_lower(bytes: &[u8]) -> SecretString {
    debug_assert!(bytes.len().is_multiple_of(5), "only whole groups, so that no padding is needed");
    let mut text = String::with_capacity(bytes.len() / 5 * 8);
    for group in bytes.chunks_exact(5) {
        let bits = group.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        for position in (0..8).rev() {
            let index = (bits >> (position * 5)) & 0x1f;
            text.push(char::from(BASE32_ALPHABET[index as usize]));
        }
    }
    SecretString::from(text)
}

fn token(key: &SubKey, parts: &[&[u8]]) -> SecretString {
    base32_lower(&key.tag(parts)[..TOKEN_BYTES])
}
