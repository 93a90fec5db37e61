//! Secrets: the master key, the keys and tokens derived from it, sealed credentials, and sources of other secrets.
//!
//! ```text
//! master key: 32 bytes, 64 hex digits in a file with mode 0600, created at the first start      rotated: seals again
//!   │ HMAC-SHA256(master key, "shoal:v1:" + purpose)
//!   ├─ seal           ─> sealed:v1:ID:…  a credential in the database, bound to its server
//!   └─ seal-columns   ─> sealed:v1:ID:…  a recipe or URL in the database, bound to its row and column
//!
//! signing key: 32 bytes, stored sealed in the database                                             rotated: both accepted for a time
//!   ├─ registry-tokens ─> signatures of issued bearer tokens
//!   ├─ media-url       ─> 43 × base64url, the signature of a URL of one task image, with an expiry
//!   └─ token-seed      ─> the seed of one run, stored sealed in its input
//!        ├─ webhook-token  ─> 32 × [a-z2-7]   in one job's task image
//!        ├─ media-grant    ─> 32 × [a-z2-7]   in one media URL
//!        └─ registry-pull  ─> 32 × [a-z2-7]   one job's password for the registry
//!
//! password of a BMC    sealed:…  env:NAME  file:/PATH            CredentialRef, resolved when a step starts
//! a secret setting               env:NAME  file:PATH  literal    SecretSource, read when the program starts
//! ```
//!
//! Invariants:
//! - No type of this crate shows its secret through `Debug` or `Display`, and no error repeats its input: a mistyped
//!   reference is often the password. Errors name the kind of reference, the variable or the file.
//! - The tokens of a run depend on its stored seed and its id only, so that rendering again gives the same bytes, also after a
//!   rotation. Only keys, nonces and new API tokens are random.
//! - A sealed text names the version of its key.
//! - Secrets are compared as SHA-256 digests in constant time.
//!
//! If the master key is lost, sealed credentials must be entered again and running jobs end; nothing else is lost. This crate stores only key files. It does not decide about access; `auth` in the controller
//! does.
//!
//! Decisions D2, D12, D14, D16 and D18; docs/operating.md.

mod key;
mod key_file;
mod random;
mod reference;
mod seal;
mod source;
mod text_seal;
mod tokens;

pub use key::hmac_sha256;
pub use key::{KEY_BYTES, Key, KeyId, KeyRing, KeyVersion, MasterKey, NotAKeyId};
pub use key_file::{MAX_VERSIONS, MasterKeyError, replace_key_file, replace_secret_file};
pub use random::{NoRandomness, random_bytes};
pub use reference::{CredentialRef, CredentialRefError, ResolveError, Resolver};
pub use seal::{
    MAX_TEXT_BYTES, OpenError, ResealError, SEALED_PREFIX, SealError, open, open_document, reseal, seal,
    seal_document, sealed_with,
};
pub use source::{MAX_SECRET_BYTES, SecretError, SecretSource, SecretSourceError, Unfit};
pub use text_seal::ColumnSeal;
pub use tokens::{JOB_USERNAME, JobTokens, TokenSeed, TokenSeeds, same_secret, token_hash, token_matches};
pub use tokens::{base32_lower, sha256};

#[cfg(test)]
mod tests;
