//! JSON Web Tokens signed with HMAC-SHA256.
//!
//! ```text
//! base64url(header) . base64url(claims) . base64url( HMAC-SHA256(key, header . claims) )
//!   header   alg = HS256; no crit
//!   claims   sub   name, 1 to 128 bytes            required
//!            role  admin | operator | viewer       required
//!            exp   seconds since 1970              required
//!            nbf   seconds since 1970              checked if present
//!            aud   contains "shoal"                checked if present
//! ```
//!
//! The signature is verified before the token is parsed, always with HS256 and the configured key. A token whose header
//! names another `alg` is refused. Clocks may differ by 30 s.
//!
//! RFC 7515, 7518 section 3.2, 7519; docs/operating.md.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::{Role, header};
use secrets::hmac_sha256;

/// The audience that an `aud` claim must contain, if the token has one.
pub const JWT_AUDIENCE: &str = "shoal";

/// The minimum length of the secret (RFC 7518 section 3.2: as long as the hash).
pub const MIN_JWT_SECRET_BYTES: usize = 32;

/// The maximum length of a token; a longer one is refused without parsing.
const MAX_JWT_BYTES: usize = 4096;

/// The accepted difference between the clocks of issuer and controller.
const LEEWAY_SECONDS: i64 = 30;

/// The key with which JWTs are verified.
pub struct JwtKey(SecretSlice<u8>);

impl JwtKey {
    /// A key for HS256 (`JWT_SECRET`).
    ///
    /// # Errors
    /// [`JwtKeyError`] when the secret is shorter than [`MIN_JWT_SECRET_BYTES`].
    pub fn hs256(secret: &SecretString) -> Result<Self, JwtKeyError> {
        let bytes = secret.expose_secret().as_bytes();
        if bytes.len() < MIN_JWT_SECRET_BYTES {
            return Err(JwtKeyError { length: bytes.len() });
        }
        Ok(Self(bytes.to_vec().into()))
    }

    #[cfg(test)]
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec().into())
    }

    /// Verifies a token and returns its bearer.
    pub(super) fn verify(&self, token: &str, now: Timestamp) -> Result<Bearer, JwtError> {
        let claims: Claims = serde_json::from_slice(&self.verified_claims(token)?)
            .map_err(|_| JwtError::Unreadable("claims"))?;
        let now = now.as_second();
        if claims.exp.0.saturating_add(LEEWAY_SECONDS) <= now {
            return Err(JwtError::Expired);
        }
        if claims.nbf.is_some_and(|nbf| nbf.0.saturating_sub(LEEWAY_SECONDS) > now) {
            return Err(JwtError::NotYet);
        }
        if claims.aud.is_some_and(|audience| !audience.names(JWT_AUDIENCE)) {
            return Err(JwtError::Audience);
        }
        if !claims.role.is_for_users() {
            return Err(JwtError::Unreadable("role"));
        }
        if !header::is_name(&claims.sub) {
            return Err(JwtError::Unreadable("sub"));
        }
        Ok(Bearer { name: claims.sub, role: claims.role })
    }

    /// Verifies the signature of a token and returns its claims as JSON text.
    pub(super) fn verified_claims(&self, token: &str) -> Result<Vec<u8>, JwtError> {
        if token.len() > MAX_JWT_BYTES {
            return Err(JwtError::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Form)?;
        if claims.contains('.') {
            return Err(JwtError::Form);
        }
        let signature = decode(signature)?;
        let expected = hmac_sha256(self.0.expose_secret(), signed.as_bytes());
        if !bool::from(expected.as_slice().ct_eq(&signature)) {
            return Err(JwtError::Signature);
        }
        let header: Header =
            serde_json::from_slice(&decode(header)?).map_err(|_| JwtError::Unreadable("header"))?;
        if header.alg != "HS256" {
            return Err(JwtError::Algorithm);
        }
        if header.crit.is_some() {
            return Err(JwtError::Critical);
        }
        decode(claims)
    }
}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JwtKey(redacted)")
    }
}

/// Whether a text has the form of a JWT; passwords rarely have it.
pub(super) fn is_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// The name and role that a token proves.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Bearer {
    pub(super) name: String,
    pub(super) role: Role,
}

/// The secret is too short.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "the JWT secret has {length} bytes, HS256 needs at least {MIN_JWT_SECRET_BYTES}; make one with: \
     openssl rand -hex 32"
)]
pub struct JwtKeyError {
    length: usize,
}

/// Why a token is refused. For the log, not for the caller.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(super) enum JwtError {
    #[error("it is longer than {MAX_JWT_BYTES} bytes")]
    TooLong,
    #[error("it does not have three parts in base64url")]
    Form,
    #[error("its signature is wrong")]
    Signature,
    #[error("its alg is not HS256")]
    Algorithm,
    #[error("it has critical extensions")]
    Critical,
    #[error("its {0} is malformed or incomplete")]
    Unreadable(&'static str),
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("its audience is not {JWT_AUDIENCE}")]
    Audience,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    crit: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    role: Role,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    aud: Option<Audience>,
}

/// Seconds since 1970. RFC 7519 allows fractions; they are cut off.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Number")]
struct NumericDate(i64);

impl TryFrom<serde_json::Number> for NumericDate {
    type Error = &'static str;

    fn try_from(number: serde_json::Number) -> Result<Self, Self::Error> {
        let seconds = number.as_i64().or_else(|| {
            let seconds = number.as_f64()?;
            // Within ±2^53 the whole part of a float is exact.
            (seconds.abs() < 9_007_199_254_740_992.0).then_some(seconds as i64)
        });
        seconds.map(Self).ok_or("not a time")
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names(&self, audience: &str) -> bool {
        match self {
            Self::One(one) => one == audience,
            Self::Many(many) => many.iter().any(|one| one == audience),
        }
    }
}

fn decode(part: &str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Form)
}
