//! Sealing of credentials for storage in the database.
//!
//! ```text
//! sealed:v1: KEY-ID : base64url( nonce[24] ‖ ciphertext[n] ‖ tag[16] )        XChaCha20-Poly1305
//!            associated data: "shoal:sealed:v1:" + context
//! ```
//!
//! The id names the version of the master key (16 hex digits, [`KeyId`]). So the records of an old version can be counted
//! without opening one.
//!
//! The context names the owner of the secret, for example the serial number of a server: a sealed text that is copied to
//! the row of another server cannot be opened there. The nonce is random; with 24 bytes a collision is negligible.
//!
//! The cipher does not distinguish a wrong key, a wrong context and an altered text, so neither does the error. The remedy
//! is the same for all three: enter the credential again.
//!
//! See docs/operating.md.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::{Key, KeyId, SubKey};
use super::random::{NoRandomness, random_bytes};
use super::source::MAX_SECRET_BYTES;

/// The longest sealed text in bytes: more than the greatest request body.
pub const MAX_TEXT_BYTES: usize = 256 * 1024 * 1024;

/// The prefix of sealed texts of the present version.
pub const SEALED_PREFIX: &str = "sealed:v1:";

const ASSOCIATED_PREFIX: &[u8] = b"shoal:sealed:v1:";
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Seals a secret for one context. Sealing a secret twice gives two different texts.
///
/// # Errors
/// [`SealError`] when the secret is too long or the operating system returns no random bytes.
pub fn seal(key: &Key, context: &str, plaintext: &[u8]) -> Result<String, SealError> {
    seal_within(key, context, plaintext, MAX_SECRET_BYTES)
}

/// Seals a document for one context: up to [`MAX_TEXT_BYTES`], where [`seal`] has the limit of a secret.
///
/// # Errors
/// [`SealError`] when the document is too long or the operating system returns no random bytes.
pub fn seal_document(key: &Key, context: &str, document: &[u8]) -> Result<String, SealError> {
    seal_within(key, context, document, MAX_TEXT_BYTES)
}

/// Seals at most `limit` bytes.
pub(super) fn seal_within(
    key: &Key,
    context: &str,
    plaintext: &[u8],
    limit: usize,
) -> Result<String, SealError> {
    let too_long = || SealError::TooLong { length: plaintext.len(), limit };
    if plaintext.len() > limit {
        return Err(too_long());
    }
    let nonce = random_bytes::<NONCE_BYTES>()?;
    let aad = associated_data(context);
    let (id, key) = key.in_force();
    let ciphertext = cipher(&key)
        .encrypt(XNonce::from_slice(&nonce), Payload { msg: plaintext, aad: &aad })
        .map_err(|_| too_long())?;
    let mut sealed = format!("{SEALED_PREFIX}{id}:");
    URL_SAFE_NO_PAD.encode_string([nonce.as_slice(), &ciphertext].concat(), &mut sealed);
    Ok(sealed)
}

/// Opens a text that [`seal`] made with this key and context.
///
/// # Errors
/// [`OpenError`] when the text is not sealed, was sealed with another key or context, or was altered.
pub fn open(key: &Key, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    open_within(key, context, sealed, MAX_SECRET_BYTES)
}

/// Opens a text that [`seal_document`] made with this key and context.
///
/// # Errors
/// [`OpenError`] when the text is not sealed, was sealed with another key or context, or was altered.
pub fn open_document(key: &Key, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    open_within(key, context, sealed, MAX_TEXT_BYTES)
}

/// Opens a text of at most `limit` sealed bytes.
pub(super) fn open_within(
    key: &Key,
    context: &str,
    sealed: &str,
    limit: usize,
) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let Some(rest) = sealed.strip_prefix(SEALED_PREFIX) else {
        let later = sealed.starts_with("sealed:");
        return Err(if later { OpenError::UnknownVersion } else { OpenError::NotSealed });
    };
    let (id, encoded) = rest.split_once(':').ok_or(OpenError::Malformed)?;
    let id: KeyId = id.parse().map_err(|_| OpenError::Malformed)?;
    let longest = (NONCE_BYTES + limit + TAG_BYTES).div_ceil(3) * 4;
    if encoded.len() > longest {
        return Err(OpenError::Malformed);
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| OpenError::Malformed)?;
    let (nonce, ciphertext) = bytes.split_at_checked(NONCE_BYTES).ok_or(OpenError::Malformed)?;
    let key = key.version(id).ok_or(OpenError::UnknownKey { needs: id })?;
    let aad = associated_data(context);
    cipher(&key)
        .decrypt(XNonce::from_slice(nonce), Payload { msg: ciphertext, aad: &aad })
        .map(Zeroizing::new)
        .map_err(|_| OpenError::Refused)
}

/// The version of the master key with which a text is sealed; `None` when the text is not sealed in a form of this program.
pub fn sealed_with(sealed: &str) -> Option<KeyId> {
    sealed.strip_prefix(SEALED_PREFIX)?.split_once(':')?.0.parse().ok()
}

/// Seals a text again with the version in force. `None` when that version sealed it, or when it is not sealed.
///
/// # Errors
/// [`ResealError`] when the text cannot be opened or sealed; it is still sealed as before.
pub fn reseal(key: &Key, context: &str, sealed: &str) -> Result<Option<String>, ResealError> {
    match sealed_with(sealed) {
        Some(id) if id != key.in_force().0 => {
            let plain = open_within(key, context, sealed, MAX_TEXT_BYTES)?;
            Ok(Some(seal_within(key, context, &plain, MAX_TEXT_BYTES)?))
        }
        _ => Ok(None),
    }
}

/// The reason why a text could not be sealed again.
#[derive(Debug, Error)]
pub enum ResealError {
    /// The text could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The text could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

/// The reason why a secret could not be sealed.
#[derive(Debug, Error)]
pub enum SealError {
    /// The secret is empty, which no opened secret may be.
    #[error("cannot seal an empty secret; give one of at least one byte")]
    Empty,
    /// The secret is longer than the limit.
    #[error("cannot seal a secret of {length} bytes; the limit is {limit} bytes")]
    TooLong {
        /// The length of the secret in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The operating system returned no random bytes for the nonce.
    #[error("cannot seal a secret")]
    Random(#[from] NoRandomness),
}

/// The reason why a sealed text could not be opened.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum OpenError {
    /// The text has no `sealed:` prefix.
    #[error("cannot open a credential that is not sealed; enter the credential again")]
    NotSealed,
    /// The text was sealed by a later version of this program.
    #[error(
        "cannot open a credential sealed by a newer version of shoal; upgrade, or enter the credential again"
    )]
    UnknownVersion,
    /// The text names a version of the master key that is not accepted here.
    #[error(
        "cannot open a credential that is sealed with the master key {needs}: the key file does not have this version; \
         add it to the key file, or enter the credential again"
    )]
    UnknownKey {
        /// The version that sealed the text.
        needs: KeyId,
    },
    /// The text is truncated or not valid base64url.
    #[error("cannot open a sealed credential whose text is damaged; enter the credential again")]
    Malformed,
    /// Decryption failed: another key, another context, or an altered text.
    #[error(
        "cannot open a sealed credential: it was sealed with another master key or for another server, or it was \
         altered; restore the master key file, or enter the credential again"
    )]
    Refused,
}

fn cipher(key: &SubKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.bytes().into())
}

fn associated_data(context: &str) -> Vec<u8> {
    [ASSOCIATED_PREFIX, context.as_bytes()].concat()
}
