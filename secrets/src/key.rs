//! Key rings: a key of the installation in all versions that are accepted, and the keys derived from it.
//!
//! ```text
//! ring       the version in force, then the former versions that are still accepted        ([`KeyFile`] stores it)
//! id         hex of the first 8 bytes of HMAC-SHA256(version, "shoal:key-id:v1")            public
//! subkey     HMAC-SHA256(version, "shoal:v1:" + purpose)
//! tag        HMAC-SHA256(subkey, for each part: length as u64 big-endian, part)
//! ```
//!
//! The length before each part makes `("ab", "c")` and `("a", "bc")` different messages. All copies of a ring share its
//! versions: a rotation takes effect in every part of the program at once.
//!
//! Invariant: a ring always has a version in force. A version that was removed from its file is still opened for what was read
//! before, until the process ends, and never seals.
//!
//! See docs/operating.md.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use parking_lot::RwLock;
use secrecy::{ExposeSecret, SecretBox, SecretString};
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

use super::random::{NoRandomness, random_bytes};

/// The length in bytes of a key and of every derived key.
pub const KEY_BYTES: usize = 32;

/// The prefix of every purpose when a subkey is derived. A new scheme needs a new prefix.
const PURPOSE_PREFIX: &str = "shoal:v1:";
/// The message whose HMAC is the id of a version.
const ID_MESSAGE: &[u8] = b"shoal:key-id:v1";
/// The bytes of the HMAC that form an id.
const ID_BYTES: usize = 8;

/// The public name of one version of a key. It is derived from the key and reveals nothing about it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KeyId([u8; ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl FromStr for KeyId {
    type Err = NotAKeyId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; ID_BYTES];
        let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match lower && hex::decode_to_slice(text, &mut bytes).is_ok() {
            true => Ok(Self(bytes)),
            false => Err(NotAKeyId),
        }
    }
}

/// A text is not the id of a key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("a key id is 16 lower-case hex digits, as `shoal secret list` shows it")]
pub struct NotAKeyId;

/// A derived key of one version.
pub(super) struct SubKey(SecretBox<[u8; KEY_BYTES]>);

impl SubKey {
    pub(super) fn derive(key: &[u8], purpose: &str) -> Self {
        let label = [PURPOSE_PREFIX.as_bytes(), purpose.as_bytes()].concat();
        let bytes = Zeroizing::new(hmac_sha256(key, &label));
        Self(secret(&bytes))
    }

    pub(super) fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = hmac_with(self.bytes());
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.0.expose_secret()
    }
}

fn secret(bytes: &[u8; KEY_BYTES]) -> SecretBox<[u8; KEY_BYTES]> {
    SecretBox::init_with_mut(|kept: &mut [u8; KEY_BYTES]| kept.copy_from_slice(bytes))
}

/// One version of a key, with what may be shown of it.
#[derive(Clone)]
pub struct KeyVersion {
    bytes: Arc<SecretBox<[u8; KEY_BYTES]>>,
    /// The name of the version.
    pub id: KeyId,
    /// When the version was made, if it is known.
    pub made: Option<Timestamp>,
    /// The end of the time in which a former version is accepted; `None` for one that is accepted until it is removed.
    pub until: Option<Timestamp>,
}

impl KeyVersion {
    /// A new random version.
    ///
    /// # Errors
    /// [`NoRandomness`] when the operating system returns no random bytes.
    pub fn random(made: Option<Timestamp>) -> Result<Self, NoRandomness> {
        let bytes = Zeroizing::new(random_bytes::<KEY_BYTES>()?);
        Ok(Self { made, ..Self::from_bytes(&bytes) })
    }

    /// The version with these bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let tag = hmac_sha256(bytes, ID_MESSAGE);
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&tag[..ID_BYTES]);
        Self { bytes: Arc::new(secret(bytes)), id: KeyId(id), made: None, until: None }
    }

    /// The key as hex digits, to be stored sealed.
    pub fn to_hex(&self) -> SecretString {
        SecretString::from(hex::encode(self.bytes()))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.bytes.expose_secret()
    }
}

impl fmt::Debug for KeyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, made, until, .. } = self;
        f.debug_struct("KeyVersion")
            .field("id", id)
            .field("made", made)
            .field("until", until)
            .finish_non_exhaustive()
    }
}

struct Versions {
    in_force: KeyVersion,
    accepted: Vec<KeyVersion>,
    /// Removed from the file. They open what this process read before that.
    removed: Vec<KeyVersion>,
}

/// A key of an installation in all its accepted versions. Copies share the versions.
#[derive(Clone)]
pub struct KeyRing(Arc<RwLock<Versions>>);

/// The ring that seals stored secrets.
pub type MasterKey = KeyRing;

impl KeyRing {
    /// A ring with one version.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self::new(KeyVersion::from_bytes(bytes), Vec::new())
    }

    /// A ring of the version in force and former ones that are still accepted.
    pub fn new(in_force: KeyVersion, accepted: Vec<KeyVersion>) -> Self {
        Self(Arc::new(RwLock::new(Versions { in_force, accepted, removed: Vec::new() })))
    }

    /// The key for one purpose. The keys of different purposes are independent.
    pub fn derive(&self, purpose: &str) -> Key {
        Key { ring: self.clone(), purpose: purpose.to_owned() }
    }

    /// The version in force.
    pub fn in_force(&self) -> KeyVersion {
        self.0.read().in_force.clone()
    }

    /// The former versions that are still accepted, the newest first.
    pub fn accepted(&self) -> Vec<KeyVersion> {
        self.0.read().accepted.clone()
    }

    /// Replaces the versions by the stored ones. A version that is no longer among them is kept in memory, to open what was read
    /// before.
    pub fn replace(&self, in_force: KeyVersion, accepted: Vec<KeyVersion>) {
        let mut versions = self.0.write();
        let stays = |id: KeyId| in_force.id == id || accepted.iter().any(|version| version.id == id);
        let before = [vec![versions.in_force.clone()], versions.accepted.clone(), versions.removed.clone()];
        let mut removed: Vec<KeyVersion> = Vec::new();
        for version in before.concat() {
            if !stays(version.id) && removed.iter().all(|known| known.id != version.id) {
                removed.push(version);
            }
        }
        *versions = Versions { in_force, accepted, removed };
    }

    fn find(&self, id: KeyId) -> Option<KeyVersion> {
        let versions = self.0.read();
        let former = versions.accepted.iter().chain(&versions.removed);
        std::iter::once(&versions.in_force).chain(former).find(|version| version.id == id).cloned()
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(redacted)")
    }
}

/// The key for one purpose, in all versions of its ring.
#[derive(Clone)]
pub struct Key {
    ring: KeyRing,
    purpose: String,
}

impl Key {
    /// A random key, valid for the lifetime of the process.
    ///
    /// # Errors
    /// [`NoRandomness`] when the operating system returns no random bytes.
    pub fn random() -> Result<Self, NoRandomness> {
        Ok(KeyRing::new(KeyVersion::random(None)?, Vec::new()).derive("process"))
    }

    /// The authentication tag of a message of several `parts`, by the version in force. Other borders between the parts give
    /// another tag.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.in_force().1.tag(parts)
    }

    /// The tags of a message by every version whose signatures are accepted at this time, the one in force first. What one of
    /// them signed is genuine.
    pub fn tags(&self, parts: &[&[u8]], now: Timestamp) -> Vec<[u8; 32]> {
        let versions = self.ring.0.read();
        let accepted =
            versions.accepted.iter().filter(|version| version.until.is_none_or(|until| now < until));
        let all = std::iter::once(&versions.in_force).chain(accepted);
        all.map(|version| SubKey::derive(version.bytes(), &self.purpose).tag(parts)).collect()
    }

    pub(super) fn in_force(&self) -> (KeyId, SubKey) {
        let version = self.ring.in_force();
        (version.id, SubKey::derive(version.bytes(), &self.purpose))
    }

    pub(super) fn version(&self, id: KeyId) -> Option<SubKey> {
        self.ring.find(id).map(|version| SubKey::derive(version.bytes(), &self.purpose))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(redacted)")
    }
}

/// HMAC-SHA256 of one message.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    hmac_with(key).chain_update(message).finalize().into_bytes().into()
}

#[expect(clippy::expect_used, reason = "HMAC is defined for keys of every length (RFC 2104 section 2)")]
fn hmac_with(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC accepts keys of every length")
}
