//! The keys of tokens: a secret, public keys in PEM, and those of a key set.
//!
//! ```text
//!  JWT_SECRET            at least 32 bytes                             HS256   without id
//!  JWT_PUBLIC_KEY_FILE   PEM: SubjectPublicKeyInfo { algorithm, key }  RS256, ES256 or EdDSA by its algorithm   without id
//!  JWT_JWKS              {"keys": [{"kty", "kid", "use", "alg", …}]}   RS256, ES256 or EdDSA by kty and crv
//! ```
//!
//! Invariants: a key has exactly one algorithm; a key set contributes no secret; a key of another kind in a set is skipped, and
//! in a PEM file it is an error.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Validation};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{SubjectPublicKeyInfoDer, alg_id};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use thiserror::Error;

use crate::tls::der;

/// The minimum length of the secret (RFC 7518 section 3.2: as long as the hash).
pub const MIN_JWT_SECRET_BYTES: usize = 32;

/// The maximum of keys of a file or a key set.
const MAX_KEYS: usize = 64;

/// The lengths of an RSA modulus in bytes: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// A key and the only algorithm that it is used with.
pub(super) struct VerificationKey {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
}

impl VerificationKey {
    fn new(id: Option<String>, algorithm: Algorithm, key: DecodingKey) -> Self {
        let mut validation = Validation::new(algorithm);
        // The claims are checked by the rules, with the clock of the controller.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        Self { id, algorithm, key, validation }
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(super) fn key(&self) -> &DecodingKey {
        &self.key
    }

    pub(super) fn validation(&self) -> &Validation {
        &self.validation
    }
}

/// The usable keys of a key set.
#[derive(Default)]
pub(super) struct PublicKeys(Vec<VerificationKey>);

impl PublicKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key has this id.
    pub(super) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// The keys that may have signed a token: those with its id; for a token without id those without one, or the only one.
    pub(super) fn selected<'a>(
        &'a self,
        algorithm: Algorithm,
        id: Option<&'a str>,
    ) -> impl Iterator<Item = &'a VerificationKey> {
        let alone = self.0.len() == 1;
        let selects = move |key: &&VerificationKey| {
            key.algorithm == algorithm
                && match (&key.id, id) {
                    (Some(one), Some(other)) => one == other,
                    (Some(_), None) => alone,
                    (None, _) => true,
                }
        };
        self.0.iter().filter(selects)
    }
}

/// Whether the keys of an algorithm are public.
pub(super) fn is_public(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA)
}

/// The reason why keys cannot be used. The messages contain nothing of a key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum JwtKeyError {
    /// The secret is too short.
    #[error(
        "the JWT secret has {length} bytes, HS256 needs at least {MIN_JWT_SECRET_BYTES}; make one with: \
         openssl rand -hex 32"
    )]
    ShortSecret {
        /// The length of the secret.
        length: usize,
    },
    /// A file contains no public key in PEM.
    #[error("it contains no public key in PEM; give one that begins with -----BEGIN PUBLIC KEY-----")]
    NoPublicKey,
    /// A public key is of another kind.
    #[error("a public key in it is none of RSA with 2048 to 8192 bits, P-256 and Ed25519")]
    KeyKind,
    /// A text is no key set.
    #[error("it is not a JSON Web Key Set: an object with the list `keys`")]
    NotKeySet,
    /// No key of a set can be used.
    #[error("none of its keys is for signatures of RS256 (2048 to 8192 bits), ES256 or EdDSA (Ed25519)")]
    NoUsableKey,
    /// A file or a set contains too many keys.
    #[error("it contains more than {MAX_KEYS} keys")]
    TooManyKeys,
}

/// Checks `JWT_SECRET`.
///
/// # Errors
/// [`JwtKeyError`] when the secret is shorter than [`MIN_JWT_SECRET_BYTES`].
pub fn check_secret(secret: &SecretString) -> Result<(), JwtKeyError> {
    of_secret(secret).map(drop)
}

/// Checks the content of `JWT_PUBLIC_KEY_FILE`.
///
/// # Errors
/// [`JwtKeyError`] when it contains no key, or one that cannot be used.
pub fn check_public_keys(pem: &[u8]) -> Result<(), JwtKeyError> {
    of_pem(pem).map(drop)
}

/// Checks the content of a key set.
///
/// # Errors
/// [`JwtKeyError`] when it is no key set or contains no usable key.
pub fn check_key_set(json: &[u8]) -> Result<(), JwtKeyError> {
    of_set(json).map(drop)
}

pub(super) fn of_secret(secret: &SecretString) -> Result<VerificationKey, JwtKeyError> {
    let bytes = secret.expose_secret().as_bytes();
    if bytes.len() < MIN_JWT_SECRET_BYTES {
        return Err(JwtKeyError::ShortSecret { length: bytes.len() });
    }
    Ok(of_secret_bytes(bytes))
}

pub(super) fn of_secret_bytes(bytes: &[u8]) -> VerificationKey {
    VerificationKey::new(None, Algorithm::HS256, DecodingKey::from_secret(bytes))
}

pub(super) fn of_pem(pem: &[u8]) -> Result<Vec<VerificationKey>, JwtKeyError> {
    let found: Vec<SubjectPublicKeyInfoDer<'_>> = SubjectPublicKeyInfoDer::pem_slice_iter(pem)
        .take(MAX_KEYS + 1)
        .collect::<Result<_, _>>()
        .map_err(|_| JwtKeyError::NoPublicKey)?;
    match found.len() {
        0 => Err(JwtKeyError::NoPublicKey),
        count if count > MAX_KEYS => Err(JwtKeyError::TooManyKeys),
        _ => found.iter().map(|key| of_der(key).ok_or(JwtKeyError::KeyKind)).collect(),
    }
}

/// The key of a SubjectPublicKeyInfo (RFC 5280 section 4.1).
fn of_der(info: &[u8]) -> Option<VerificationKey> {
    let (fields, _) = der::sequence(info)?;
    let (kind, rest) = der::sequence(fields)?;
    let (tag, bits, _) = der::element(rest)?;
    // The first byte of a bit string is the number of its unused bits.
    let key = bits.strip_prefix(&[0]).filter(|_| tag == BIT_STRING)?;
    if kind == alg_id::RSA_ENCRYPTION.as_ref() {
        let (numbers, _) = der::sequence(key)?;
        let (first, modulus, rest) = der::element(numbers)?;
        let (second, exponent, _) = der::element(rest)?;
        (first == INTEGER && second == INTEGER).then_some(())?;
        rsa(None, modulus, exponent)
    } else if kind == alg_id::ECDSA_P256.as_ref() {
        ec(None, DecodingKey::from_ec_der(key))
    } else if kind == alg_id::ED25519.as_ref() {
        ed(None, DecodingKey::from_ed_der(key))
    } else {
        None
    }
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<serde_json::Value>,
}

pub(super) fn of_set(json: &[u8]) -> Result<PublicKeys, JwtKeyError> {
    let document: KeySetDocument = serde_json::from_slice(json).map_err(|_| JwtKeyError::NotKeySet)?;
    if document.keys.len() > MAX_KEYS {
        return Err(JwtKeyError::TooManyKeys);
    }
    let usable = |key| of_jwk(&serde_json::from_value(key).ok()?);
    let keys: Vec<VerificationKey> = document.keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() { Err(JwtKeyError::NoUsableKey) } else { Ok(PublicKeys(keys)) }
}

fn of_jwk(jwk: &Jwk) -> Option<VerificationKey> {
    let common = &jwk.common;
    let signs = common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature);
    let verifies =
        common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify));
    let of = |algorithm| common.key_algorithm.is_none_or(|named| named == algorithm);
    (signs && verifies).then_some(())?;
    let (id, key) = (common.key_id.clone(), || DecodingKey::from_jwk(jwk).ok());
    match &jwk.algorithm {
        AlgorithmParameters::RSA(_) if of(KeyAlgorithm::RS256) => match key()?.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => rsa(id, n, e),
            DecodingKeyKind::SecretOrDer(_) => None,
        },
        AlgorithmParameters::EllipticCurve(key_of)
            if key_of.curve == EllipticCurve::P256 && of(KeyAlgorithm::ES256) =>
        {
            ec(id, key()?)
        }
        AlgorithmParameters::OctetKeyPair(key_of)
            if key_of.curve == EllipticCurve::Ed25519 && of(KeyAlgorithm::EdDSA) =>
        {
            ed(id, key()?)
        }
        _ => None,
    }
}

fn rsa(id: Option<String>, modulus: &[u8], exponent: &[u8]) -> Option<VerificationKey> {
    let plain =
        |number: &[u8]| number.iter().position(|byte| *byte != 0).map(|start| number[start..].to_vec());
    let (modulus, exponent) = (plain(modulus)?, plain(exponent)?);
    let usable = RSA_BYTES.contains(&modulus.len()) && exponent.len() <= 4;
    usable.then(|| {
        let key = DecodingKey::from_rsa_raw_components(&modulus, &exponent);
        VerificationKey::new(id, Algorithm::RS256, key)
    })
}

/// A key of P-256: a point without compression.
fn ec(id: Option<String>, key: DecodingKey) -> Option<VerificationKey> {
    let usable = matches!(key.try_get_as_bytes().ok()?, [4, rest @ ..] if rest.len() == 64);
    usable.then(|| VerificationKey::new(id, Algorithm::ES256, key))
}

fn ed(id: Option<String>, key: DecodingKey) -> Option<VerificationKey> {
    let usable = key.try_get_as_bytes().ok()?.len() == 32;
    usable.then(|| VerificationKey::new(id, Algorithm::EdDSA, key))
}
