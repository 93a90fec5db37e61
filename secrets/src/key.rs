//! The master key and the keys derived from it.
//!
//! ```text
//! key file   64 lower-case hex digits, one newline; mode 0600, owned by the user of the controller
//! subkey     HMAC-SHA256(master key, "shoal:v1:" + purpose)
//! tag        HMAC-SHA256(subkey, for each part: length as u64 big-endian, part)
//! ```
//!
//! The length before each part makes `("ab", "c")` and `("a", "bc")` different messages. The file is created atomically:
//! it is written and synced under another name and then renamed without replacing an existing file. A crash at the first
//! start therefore leaves no partial file, and two processes that start at the same time use one key.
//!
//! See docs/operating.md.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretBox, SecretString};
use sha2::Sha256;
use thiserror::Error;
use zeroize::Zeroizing;

use super::random::{NoRandomness, random_bytes};

/// The length in bytes of the master key and of every derived key.
pub const KEY_BYTES: usize = 32;

/// The prefix of every purpose when a subkey is derived. A new scheme needs a new prefix.
const PURPOSE_PREFIX: &str = "shoal:v1:";

/// The maximum number of bytes read from a key file.
const MAX_KEY_FILE_BYTES: u64 = 4096;

/// A key derived for one purpose.
pub struct Key(SecretBox<[u8; KEY_BYTES]>);

impl Key {
    /// A random key, valid for the lifetime of the process.
    ///
    /// # Errors
    /// [`NoRandomness`] when the operating system returns no random bytes.
    pub fn random() -> Result<Self, NoRandomness> {
        let bytes = Zeroizing::new(random_bytes::<KEY_BYTES>()?);
        Ok(Self::from_bytes(&bytes))
    }

    /// The authentication tag of a message of several `parts`. Other borders between the parts give another tag.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
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

    fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(SecretBox::init_with_mut(|kept: &mut [u8; KEY_BYTES]| kept.copy_from_slice(bytes)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(redacted)")
    }
}

/// The master key of an installation, from which all other keys are derived.
pub struct MasterKey(Key);

impl MasterKey {
    /// Reads the key of this installation, or creates it at the first start.
    ///
    /// # Errors
    /// [`MasterKeyError`] when the file cannot be read or created, when group or others have access to it, or when it
    /// does not contain a key. An existing file is never replaced.
    pub fn load_or_create(path: &Path) -> Result<Self, MasterKeyError> {
        match Self::load(path)? {
            Some(key) => Ok(key),
            None => Self::create(path),
        }
    }

    /// A master key made of the given bytes.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Key::from_bytes(bytes))
    }

    /// Parses a key of 64 hex digits, as in the key file or the setting `MASTER_KEY`.
    ///
    /// # Errors
    /// [`MasterKeyError::NotAKey`] when the text is not 64 hex digits.
    pub fn from_hex(text: &SecretString) -> Result<Self, MasterKeyError> {
        let digits = text.expose_secret().trim_ascii();
        let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
        hex::decode_to_slice(digits, bytes.as_mut_slice())
            .map_err(|_| MasterKeyError::NotAKey { length: digits.len() })?;
        Ok(Self::from_bytes(&bytes))
    }

    /// Derives the key for one purpose. The keys of different purposes are independent.
    pub fn derive(&self, purpose: &str) -> Key {
        let label = [PURPOSE_PREFIX.as_bytes(), purpose.as_bytes()].concat();
        Key::from_bytes(&Zeroizing::new(hmac_sha256(self.0.bytes(), &label)))
    }

    fn load(path: &Path) -> Result<Option<Self>, MasterKeyError> {
        let unreadable = |source| MasterKeyError::Unreadable { path: path.to_owned(), source };
        // Checked before the open, because opening a pipe would wait for a writer.
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(MasterKeyError::NotAFile { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        }
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(MasterKeyError::ReadableByOthers { path: path.to_owned(), mode });
        }
        let mut content = Zeroizing::new(Vec::with_capacity(2 * KEY_BYTES + 2));
        file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut content).map_err(unreadable)?;
        let in_file = || MasterKeyError::FileNotAKey { path: path.to_owned(), length: content.len() };
        let text = str::from_utf8(&content).map_err(|_| in_file())?;
        Self::from_hex(&SecretString::from(text)).map(Some).map_err(|_| in_file())
    }

    fn create(path: &Path) -> Result<Self, MasterKeyError> {
        let failed = |source| MasterKeyError::Create { path: path.to_owned(), source };
        let bytes = Zeroizing::new(random_bytes::<KEY_BYTES>()?);
        let mut line = Zeroizing::new(hex::encode(bytes.as_slice()));
        line.push('\n');

        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = parent.unwrap_or(Path::new("."));
        let mut staged = tempfile::Builder::new()
            .prefix(".master-key-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(directory)
            .map_err(failed)?;
        staged.write_all(line.as_bytes()).map_err(failed)?;
        staged.as_file().sync_all().map_err(failed)?;
        match staged.persist_noclobber(path) {
            Ok(_) => {
                File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
                Ok(Self::from_bytes(&bytes))
            }
            // Another process created the file meanwhile: its key is used.
            Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => {
                Self::load(path)?.ok_or_else(|| failed(lost.error))
            }
            Err(lost) => Err(failed(lost.error)),
        }
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(redacted)")
    }
}

/// Why the master key cannot be used.
#[derive(Debug, Error)]
pub enum MasterKeyError {
    /// The file exists but cannot be read.
    #[error("cannot read the master key file {path:?}; it must be readable by the user that runs shoal")]
    Unreadable {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, a device or a pipe.
    #[error("the master key {path:?} is not a regular file; give the path of a file")]
    NotAFile {
        /// The key file.
        path: PathBuf,
    },
    /// Group or others have access to the file.
    #[error(
        "the master key file {path:?} has mode {mode:04o} and is open to others; run: chmod 600 {path:?}"
    )]
    ReadableByOthers {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file does not contain 64 hex digits.
    #[error(
        "the master key file {path:?} ({length} bytes) does not contain 64 hex digits; restore it from a backup, or \
         move it away: then shoal creates a new key and all sealed credentials must be entered again"
    )]
    FileNotAKey {
        /// The key file.
        path: PathBuf,
        /// The size of the file in bytes; at most 4096 are counted.
        length: usize,
    },
    /// The text is not 64 hex digits.
    #[error("a master key is 64 hex digits, {length} bytes were given; make one with: openssl rand -hex 32")]
    NotAKey {
        /// The length of the text in bytes.
        length: usize,
    },
    /// The first start could not create the file.
    #[error("cannot create the master key file {path:?}; its directory must exist and be writable")]
    Create {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The operating system returned no random bytes at the first start.
    #[error("cannot create a master key")]
    Random(#[from] NoRandomness),
}

/// HMAC-SHA256 of one message.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    hmac_with(key).chain_update(message).finalize().into_bytes().into()
}

#[expect(clippy::expect_used, reason = "HMAC is defined for keys of every length (RFC 2104 section 2)")]
fn hmac_with(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC accepts keys of every length")
}
