//! Verification: header, key, signature, then the rules of the claims.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use jsonwebtoken::Algorithm;
use jsonwebtoken::errors::ErrorKind;
use secrecy::SecretString;

use super::claims::{Claims, JwtRules};
use super::key_set::KeySet;
use super::keys::{self, JwtKeyError, VerificationKey};
use super::provider;
use super::refusal::{Bearer, JwtError, MAX_JWT_BYTES};

/// Verifies tokens with the keys and rules of the settings.
pub struct JwtVerifier {
    /// The keys of the settings, which have no id.
    keys: Vec<VerificationKey>,
    key_set: Option<Arc<KeySet>>,
    rules: JwtRules,
}

/// The keys with which tokens are verified, as the settings name them.
#[derive(Default)]
pub struct JwtKeys {
    /// The key of HS256 (`JWT_SECRET`).
    pub secret: Option<SecretString>,
    /// Public keys in PEM (`JWT_PUBLIC_KEY_FILE`).
    pub public: Option<Vec<u8>>,
    /// A set of public keys (`JWT_JWKS`).
    pub set: Option<KeySet>,
}

impl JwtVerifier {
    /// A verifier with these keys and rules; `None` without a key.
    ///
    /// # Errors
    /// [`JwtKeyError`] when a key cannot be used.
    pub fn new(keys: JwtKeys, rules: JwtRules) -> Result<Option<Self>, JwtKeyError> {
        provider::install();
        let mut fixed = Vec::new();
        if let Some(secret) = &keys.secret {
            fixed.push(keys::of_secret(secret)?);
        }
        if let Some(pem) = &keys.public {
            fixed.extend(keys::of_pem(pem)?);
        }
        let key_set = keys.set.map(Arc::new);
        let any = !fixed.is_empty() || key_set.is_some();
        Ok(any.then_some(Self { keys: fixed, key_set, rules }))
    }

    /// A verifier with a secret of any length.
    #[cfg(test)]
    pub(in crate::auth) fn of_secret_bytes(secret: &[u8]) -> Self {
        provider::install();
        Self { keys: vec![keys::of_secret_bytes(secret)], key_set: None, rules: JwtRules::default() }
    }

    /// Continues with the key set of a former verifier until this one has fetched its own.
    pub(in crate::auth) fn inherit(&self, former: &Self) {
        if let (Some(set), Some(former)) = (&self.key_set, &former.key_set) {
            set.inherit(former);
        }
    }

    /// Verifies a token and returns its bearer.
    pub(in crate::auth) async fn verify(
        &self,
        token: &str,
        now: Timestamp,
        wall: Timestamp,
    ) -> Result<Bearer, JwtError> {
        let claims = self.verified_claims(token, now).await?;
        self.rules.bearer(&claims, wall)
    }

    /// Verifies the signature of a token and returns its claims.
    pub(in crate::auth) async fn verified_claims(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<Claims, JwtError> {
        let header = header(token)?;
        let (algorithm, id) = (header.alg, header.kid.as_deref());
        let mut known = false;
        for key in self.keys.iter().filter(|key| key.algorithm() == algorithm) {
            match claims_by(key, token) {
                Err(JwtError::Signature) => known = true,
                verified => return verified,
            }
        }
        // A key set contains public keys only, so a token of the shared secret never causes a request for it.
        let set = self.key_set.as_ref().filter(|_| keys::is_public(algorithm));
        if let Some(set) = set {
            for key in set.keys(id, now).await?.selected(algorithm, id) {
                match claims_by(key, token) {
                    Err(JwtError::Signature) => known = true,
                    verified => return verified,
                }
            }
        }
        let other = self.keys.iter().any(|key| key.algorithm() == algorithm) || set.is_some();
        Err(match (known, other) {
            (true, _) => JwtError::Signature,
            (false, true) => JwtError::UnknownKey,
            (false, false) => JwtError::Algorithm,
        })
    }
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<Algorithm> = self.keys.iter().map(VerificationKey::algorithm).collect();
        f.debug_struct("JwtVerifier")
            .field("algorithms", &algorithms)
            .field("key_set", &self.key_set.is_some())
            .finish_non_exhaustive()
    }
}

/// Whether a text has the form of a JWT; passwords rarely have it.
pub(in crate::auth) fn is_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Reads the header of a token, which nothing has verified yet.
fn header(token: &str) -> Result<jsonwebtoken::Header, JwtError> {
    if token.len() > MAX_JWT_BYTES {
        return Err(JwtError::TooLong);
    }
    if token.split('.').count() != 3 {
        return Err(JwtError::Form);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
        ErrorKind::Json(_) => JwtError::Unreadable("header"),
        _ => JwtError::Form,
    })?;
    if header.crit.is_some() {
        return Err(JwtError::Critical);
    }
    let typ = header.typ.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
    let access = |typ: &str| typ.eq_ignore_ascii_case("jwt") || typ.eq_ignore_ascii_case("at+jwt");
    if typ.is_some_and(|typ| !access(typ)) {
        return Err(JwtError::Type);
    }
    Ok(header)
}

/// The claims of a token that this key signed.
fn claims_by(key: &VerificationKey, token: &str) -> Result<Claims, JwtError> {
    let decoded = jsonwebtoken::decode::<Claims>(token, key.key(), key.validation());
    decoded.map(|token| token.claims).map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature => JwtError::Signature,
        ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => JwtError::Algorithm,
        ErrorKind::Json(_) => JwtError::Unreadable("claims"),
        _ => JwtError::Form,
    })
}
