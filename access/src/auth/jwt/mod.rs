//! JSON Web Tokens of another system, or signed with a shared secret.
//!
//! ```text
//! header    alg  RS256 | ES256 | EdDSA | HS256, the algorithm of the key    required
//!           kid  selects the key                                           a key of a set has one
//!           typ  JWT | at+jwt                                              checked if present
//!           crit                                                           refused
//! claims    sub  name, 1 to 128 bytes                                      required
//!           exp  seconds since 1970                                        required
//!           nbf, iat                                                       checked if present
//!           iss  JWT_ISSUER                                                required if it is set
//!           aud  contains JWT_AUDIENCE                                     required if it is set
//!           JWT_ROLE_CLAIM  a role, or values that JWT_ROLES maps to roles required
//! ```
//!
//! Invariants: a key has one algorithm, and a token whose header names another one is refused, so a public key is never used as
//! a secret; the claims are read only after the signature was verified; no claim occurs twice; a token that names no known
//! role has no right. Clocks may differ by 30 s.
//!
//! The library `jsonwebtoken` takes tokens apart and binds the signature to the algorithm; `ring` verifies (`provider`). Times
//! are compared here, because the library knows no clock but that of the machine.
//!
//! RFC 7515, 7517, 7518, 7519, 8037, 8725; docs/operating.md.

mod claims;
mod key_set;
mod keys;
mod provider;
mod refusal;
mod verify;

pub use claims::{InvalidRoleEntry, JWT_AUDIENCE, JwtRules, RoleEntry};
pub use key_set::{KeyDocument, KeySet};
pub use keys::{JwtKeyError, MIN_JWT_SECRET_BYTES, check_key_set, check_public_keys, check_secret};
#[cfg(test)]
pub(super) use refusal::Bearer;
pub(super) use refusal::JwtError;
pub(super) use verify::is_jwt;
pub use verify::{JwtKeys, JwtVerifier};
