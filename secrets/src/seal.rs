//! Sealing of credentials that are kept in the database.
//!
//! ```text
//! sealed:v1: base64url( nonce[24] ‖ ciphertext[n] ‖ tag[16] )        XChaCha20-Poly1305
//!            associated data: "shoal:sealed:v1:" + context
//! ```
//!
//! The context is what the secret belongs to (a server's serial, say): a sealed text copied into another server's
//! row does not open there. The nonce is random; 24 bytes are enough to never think about collisions.
//!
//! The cipher cannot tell a wrong key from a wrong context or from an altered text, so neither can the error; what
//! helps is the same for all three: enter the credential again.
//!
//! DESIGN section 11.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::{Key, NoRandomness};
use super::source::MAX_SECRET_BYTES;
use super::tokens::random_bytes;

/// How a sealed text of the present version begins.
pub const SEALED_PREFIX: &str = "sealed:v1:";

const ASSOCIATED_PREFIX: &[u8] = b"shoal:sealed:v1:";
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// The longest base64url text that can hold a sealed secret.
const MAX_ENCODED_BYTES: usize = (NONCE_BYTES + MAX_SECRET_BYTES + TAG_BYTES).div_ceil(3) * 4;

/// Seals a secret for one context. Sealing the same secret twice gives two different texts.
///
/// # Errors
/// [`SealError`] when the secret is too long or the operating system has no randomness.
pub fn seal(key: &Key, context: &str, plaintext: &[u8]) -> Result<String, SealError> {
    if plaintext.len() > MAX_SECRET_BYTES {
        return Err(SealError::TooLong { length: plaintext.len() });
    }
    let nonce = random_bytes::<NONCE_BYTES>()?;
    let aad = associated_data(context);
    let ciphertext = cipher(key)
        .encrypt(XNonce::from_slice(&nonce), Payload { msg: plaintext, aad: &aad })
        .map_err(|_| SealError::TooLong { length: plaintext.len() })?;
    let mut sealed = SEALED_PREFIX.to_owned();
    URL_SAFE_NO_PAD.encode_string([nonce.as_slice(), &ciphertext].concat(), &mut sealed);
    Ok(sealed)
}

/// Opens what [`seal`] made with the same key and context.
///
/// # Errors
/// [`OpenError`] when the text is not a sealed one, or was sealed otherwise, or was altered.
pub fn open(key: &Key, context: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let Some(encoded) = sealed.strip_prefix(SEALED_PREFIX) else {
        let later = sealed.starts_with("sealed:");
        return Err(if later { OpenError::UnknownVersion } else { OpenError::NotSealed });
    };
    if encoded.len() > MAX_ENCODED_BYTES {
        return Err(OpenError::Malformed);
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| OpenError::Malformed)?;
    let (nonce, ciphertext) = bytes.split_at_checked(NONCE_BYTES).ok_or(OpenError::Malformed)?;
    let aad = associated_data(context);
    cipher(key)
        .decrypt(XNonce::from_slice(nonce), Payload { msg: ciphertext, aad: &aad })
        .map(Zeroizing::new)
        .map_err(|_| OpenError::Refused)
}

/// Why a secret could not be sealed.
#[derive(Debug, Error)]
pub enum SealError {
    /// The secret is longer than any credential.
    #[error("cannot seal a secret of {length} bytes; the limit is {MAX_SECRET_BYTES} bytes")]
    TooLong {
        /// How long it is.
        length: usize,
    },
    /// There is no nonce without randomness.
    #[error("cannot seal a secret")]
    Random(#[from] NoRandomness),
}

/// Why a sealed text did not open.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum OpenError {
    /// The text does not begin as a sealed one.
    #[error("cannot open a credential that is not sealed; enter the credential again")]
    NotSealed,
    /// The text was sealed by a later version of this program.
    #[error(
        "cannot open a credential sealed by a newer version of shoal; upgrade, or enter the credential again"
    )]
    UnknownVersion,
    /// The text is cut off or was edited.
    #[error("cannot open a sealed credential whose text is damaged; enter the credential again")]
    Malformed,
    /// The cipher refused: another key, another context, or an altered text.
    #[error(
        "cannot open a sealed credential: it was sealed with another master key or for another server, or it was \
         altered; restore the master key file, or enter the credential again"
    )]
    Refused,
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.bytes().into())
}

fn associated_data(context: &str) -> Vec<u8> {
    [ASSOCIATED_PREFIX, context.as_bytes()].concat()
}
