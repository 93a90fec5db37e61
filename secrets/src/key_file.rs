//! The file of a key ring.
//!
//! ```text
//! <64 hex digits> made=2026-01-31T12:00:00Z                                  in force
//! <64 hex digits> made=2025-01-31T12:00:00Z until=2026-01-31T13:00:00Z       accepted; `until` is optional
//! ```
//!
//! The setting `MASTER_KEY` has the same form; any white space separates the words. `made` is optional, so a file that
//! `openssl rand -hex 32` wrote is a key file.
//!
//! The file has mode 0600. It is replaced by a new file: written and synced under another name, renamed, the directory synced. A
//! crash leaves the former content or the new one. The first file is renamed without replacing an existing one, so two
//! processes that start at the same time use one key.
//!
//! See docs/operating.md.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::{KEY_BYTES, KeyRing, KeyVersion};
use super::random::NoRandomness;

/// The maximum number of bytes read from a key file.
const MAX_KEY_FILE_BYTES: u64 = 4096;
/// The maximum number of versions in a key file.
pub const MAX_VERSIONS: usize = 16;

impl KeyRing {
    /// Reads the ring of this installation, or makes a key at the first start.
    ///
    /// # Errors
    /// [`MasterKeyError`] when the file cannot be read or created, when group or others have access to it, or when it
    /// does not contain a key. An existing file is never replaced.
    pub fn load_or_create(path: &Path) -> Result<Self, MasterKeyError> {
        match Self::load(path)? {
            Some(ring) => Ok(ring),
            None => create(path),
        }
    }

    /// Parses the content of a key file or of the setting `MASTER_KEY`.
    ///
    /// # Errors
    /// [`MasterKeyError::NotAKey`] when the text is not a list of keys of 64 hex digits.
    pub fn from_hex(text: &SecretString) -> Result<Self, MasterKeyError> {
        let text = text.expose_secret();
        let refused = || MasterKeyError::NotAKey { length: text.trim_ascii().len() };
        let mut versions: Vec<KeyVersion> = Vec::new();
        for word in text.split_ascii_whitespace() {
            let time = |text: &str| text.parse::<Timestamp>().map(Some).map_err(|_| refused());
            if let Some(made) = word.strip_prefix("made=") {
                versions.last_mut().ok_or_else(refused)?.made = time(made)?;
            } else if let Some(until) = word.strip_prefix("until=") {
                versions.last_mut().ok_or_else(refused)?.until = time(until)?;
            } else {
                let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
                hex::decode_to_slice(word, bytes.as_mut_slice()).map_err(|_| refused())?;
                let version = KeyVersion::from_bytes(&bytes);
                let twice = versions.iter().any(|known| known.id == version.id);
                if twice || versions.len() == MAX_VERSIONS {
                    return Err(refused());
                }
                versions.push(version);
            }
        }
        let mut versions = versions.into_iter();
        let in_force = versions.next().ok_or_else(refused)?;
        Ok(Self::new(in_force, versions.collect()))
    }

    /// Reads the ring of this installation; `None` when there is no file.
    ///
    /// # Errors
    /// When the file cannot be read, other users can read it, or its content is no key.
    pub fn load(path: &Path) -> Result<Option<Self>, MasterKeyError> {
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
        let mut content = Zeroizing::new(Vec::with_capacity(MAX_KEY_FILE_BYTES as usize));
        file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut content).map_err(unreadable)?;
        let in_file = || MasterKeyError::FileNotAKey { path: path.to_owned(), length: content.len() };
        let text = str::from_utf8(&content).map_err(|_| in_file())?;
        Self::from_hex(&SecretString::from(text)).map(Some).map_err(|_| in_file())
    }
}

/// Makes a file with one new key. When another process made one meanwhile, that one is read.
fn create(path: &Path) -> Result<KeyRing, MasterKeyError> {
    let failed = |source| MasterKeyError::Create { path: path.to_owned(), source };
    let version = KeyVersion::random(Some(this_second()))?;
    let staged = stage(path, &lines(&version, &[])).map_err(failed)?;
    match staged.persist_noclobber(path) {
        Ok(_) => {
            sync_directory(path).map_err(failed)?;
            Ok(KeyRing::new(version, Vec::new()))
        }
        // Another process created the file meanwhile: its key is used.
        Err(lost) if lost.error.kind() == io::ErrorKind::AlreadyExists => {
            KeyRing::load(path)?.ok_or_else(|| failed(lost.error))
        }
        Err(lost) => Err(failed(lost.error)),
    }
}

/// Replaces the content of a key file. `reached` is called with the name of each point between two durable effects.
///
/// # Errors
/// [`MasterKeyError::Create`] when the file cannot be written; it has the former or the new content then.
pub fn replace_key_file(
    path: &Path,
    in_force: &KeyVersion,
    accepted: &[KeyVersion],
    reached: &dyn Fn(&str),
) -> Result<(), MasterKeyError> {
    replace_secret_file(path, lines(in_force, accepted).as_bytes(), reached)
        .map_err(|source| MasterKeyError::Create { path: path.to_owned(), source })
}

/// Replaces the content of a file with a secret: mode 0600, synced, renamed, the directory synced.
///
/// # Errors
/// When the file cannot be written; it has the former or the new content then.
pub fn replace_secret_file(path: &Path, content: &[u8], reached: &dyn Fn(&str)) -> io::Result<()> {
    reached("key: before the new file");
    let staged = stage_bytes(path, content)?;
    reached("key: new file synced");
    staged.persist(path).map_err(|failed| failed.error)?;
    reached("key: renamed");
    sync_directory(path)?;
    reached("key: directory synced");
    Ok(())
}

fn stage(path: &Path, content: &str) -> io::Result<tempfile::NamedTempFile> {
    stage_bytes(path, content.as_bytes())
}

fn stage_bytes(path: &Path, content: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let mut staged = tempfile::Builder::new()
        .prefix(".key-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(directory_of(path))?;
    staged.write_all(content)?;
    staged.as_file().sync_all()?;
    Ok(staged)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// The time of now, to the second.
fn this_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn lines(in_force: &KeyVersion, accepted: &[KeyVersion]) -> Zeroizing<String> {
    // Reserved at once: a growing string would leave copies of keys in freed memory.
    let mut text = Zeroizing::new(String::with_capacity(MAX_KEY_FILE_BYTES as usize));
    for version in std::iter::once(in_force).chain(accepted) {
        text.push_str(&Zeroizing::new(hex::encode(version.bytes())));
        for (name, time) in [(" made=", version.made), (" until=", version.until)] {
            if let Some(time) = time {
                text.push_str(name);
                text.push_str(&time.to_string());
            }
        }
        text.push('\n');
    }
    text
}

/// The reason why the master key cannot be used.
#[derive(Debug, Error)]
pub enum MasterKeyError {
    /// The file exists but cannot be read.
    #[error("cannot read the key file {path:?}; it must be readable by the user that runs shoal")]
    Unreadable {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, a device or a pipe.
    #[error("the key {path:?} is not a regular file; give the path of a file")]
    NotAFile {
        /// The key file.
        path: PathBuf,
    },
    /// Group or others have access to the file.
    #[error("the key file {path:?} has mode {mode:04o} and is open to others; run: chmod 600 {path:?}")]
    ReadableByOthers {
        /// The key file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file does not contain 64 hex digits.
    #[error(
        "the key file {path:?} ({length} bytes) does not contain 64 hex digits; put its copy back. If the key is lost, make \
         a new one with: openssl rand -hex 32; then every sealed credential must be entered again"
    )]
    FileNotAKey {
        /// The key file.
        path: PathBuf,
        /// The size of the file in bytes; at most 4096 are counted.
        length: usize,
    },
    /// The key of a database that exists is gone.
    #[error(
        "there is no key file {path:?}, and what the database {database:?} has sealed (BMC passwords, recipes, signing key) opens with \
         its former key only; put the copy of the key file back: only a backup made with `--with-master-key` has it \
         (`data/master.key`). If the key is lost, make a new one with: (umask 077; openssl rand -hex 32 > {path:?}); then every sealed credential must be entered again"
    )]
    Lost {
        /// The key file.
        path: PathBuf,
        /// The file of the database.
        database: PathBuf,
    },
    /// The text is not 64 hex digits.
    #[error(
        "a key is 64 hex digits, former ones may follow it; {length} bytes were given; make one with: openssl rand -hex 32"
    )]
    NotAKey {
        /// The length of the text in bytes.
        length: usize,
    },
    /// The file could not be written.
    #[error("cannot write the key file {path:?}; its directory must exist and be writable")]
    Create {
        /// The key file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The operating system returned no random bytes at the first start.
    #[error("cannot make a key")]
    Random(#[from] NoRandomness),
}
