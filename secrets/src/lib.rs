//! Secrets: one master key, what is derived from it, what is sealed under it, and where other secrets come from.
//!
//! ```text
//! master key: 32 bytes, 64 hex digits in a file 0600, made on first start
//!   │ HMAC-SHA256(master key, "shoal:v1:" + purpose)
//!   ├─ seal           ─> sealed:v1:…     a credential kept in the database, bound to its server
//!   ├─ webhook-token  ─> 32 × [a-z2-7]   in one job's task image
//!   ├─ media-grant    ─> 32 × [a-z2-7]   in one media URL
//!   └─ registry-pull  ─> 32 × [a-z2-7]   one job's password for the registry
//!
//! a BMC's password     sealed:…  env:NAME  file:/PATH            CredentialRef, read by Resolver at a step's start
//! a secret setting               env:NAME  file:PATH  literal    SecretSource, read once at the start
//! ```
//!
//! Invariants:
//! - No type of this room shows its secret through `Debug` or `Display`, and no error repeats what it was given:
//!   a mistyped reference is often the password itself. Errors name the kind, the variable or the file.
//! - What is derived depends on the master key and the job alone, so that everything rendered twice is the same
//!   bytes; only nonces and new API tokens are random.
//! - Secrets are compared as SHA-256 digests in constant time.
//!
//! Losing the master key costs re-entering credentials and ends the tokens of running jobs, nothing else. This room
//! does not decide who may do what (`auth` does) and does not store anything but the key file.
//!
//! DESIGN sections 3 (L2, L12, L14, L16, L18) and 11.

mod key;
mod reference;
mod seal;
mod source;
mod tokens;

pub use key::hmac_sha256;
pub use key::{KEY_BYTES, Key, MasterKey, MasterKeyError, NoRandomness};
pub use reference::{CredentialRef, CredentialRefError, ResolveError, Resolver};
pub use seal::{OpenError, SEALED_PREFIX, SealError, open, seal};
pub use source::{MAX_SECRET_BYTES, SecretSource, SecretSourceError, SourceError, Unfit};
pub use tokens::{JOB_USERNAME, JobTokens, same_secret, token_hash, token_matches};
pub use tokens::{base32_lower, random_bytes, sha256};

#[cfg(test)]
mod tests;
