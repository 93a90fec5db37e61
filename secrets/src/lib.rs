//! Secrets: the master key, the keys and tokens derived from it, sealed credentials, and sources of other secrets.
//!
//! ```text
//! master key: 32 bytes, 64 hex digits in a file with mode 0600, created at the first start
//!   │ HMAC-SHA256(master key, "shoal:v1:" + purpose)
//!   ├─ seal           ─> sealed:v1:…     a credential in the database, bound to its server
//!   ├─ seal-columns   ─> sealed:v1:…     a recipe or URL in the database, bound to its row and column
//!   ├─ webhook-token  ─> 32 × [a-z2-7]   in one job's task image
//!   ├─ media-grant    ─> 32 × [a-z2-7]   in one media URL
//!   └─ registry-pull  ─> 32 × [a-z2-7]   one job's password for the registry
//!
//! password of a BMC    sealed:…  env:NAME  file:/PATH            CredentialRef, resolved when a step starts
//! a secret setting               env:NAME  file:PATH  literal    SecretSource, read when the program starts
//! ```
//!
//! Invariants:
//! - No type of this crate shows its secret through `Debug` or `Display`, and no error repeats its input: a mistyped
//!   reference is often the password. Errors name the kind of reference, the variable or the file.
//! - Derived tokens depend on the master key and the job only, so that rendering again gives the same bytes. Only nonces
//!   and new API tokens are random.
//! - Secrets are compared as SHA-256 digests in constant time.
//!
//! If the master key is lost, sealed credentials must be entered again and the tokens of running jobs become invalid;
//! nothing else is lost. This crate stores only the key file. It does not decide about access; `auth` in the controller
//! does.
//!
//! Decisions D2, D12, D14, D16 and D18; docs/operating.md.

mod key;
mod random;
mod reference;
mod seal;
mod source;
mod text_seal;
mod tokens;

pub use key::hmac_sha256;
pub use key::{KEY_BYTES, Key, MasterKey, MasterKeyError};
pub use random::{NoRandomness, random_bytes};
pub use reference::{CredentialRef, CredentialRefError, ResolveError, Resolver};
pub use seal::{OpenError, SEALED_PREFIX, SealError, open, seal};
pub use source::{MAX_SECRET_BYTES, SecretError, SecretSource, SecretSourceError, Unfit};
pub use text_seal::{ColumnSeal, MAX_TEXT_BYTES};
pub use tokens::{JOB_USERNAME, JobTokens, same_secret, token_hash, token_matches};
pub use tokens::{base32_lower, sha256};

#[cfg(test)]
mod tests;
