//! The source of a secret setting: an environment variable, a file, or the text of the setting.
//!
//! ```text
//! env:NAME      the value of the variable, unchanged
//! file:PATH     the text of the file without one trailing newline; a regular file of at most 64 KiB
//! other text    the secret
//! ```
//!
//! An unset variable, an empty value and a missing file are errors: an empty secret would silently disable a check.
//! Errors name the variable or the file and never its content.
//!
//! See docs/operating.md.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use zeroize::Zeroizing;

/// The maximum length of a secret in bytes.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

/// The source of the value of a secret setting.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// An environment variable, `env:NAME`.
    Env(String),
    /// A file, `file:PATH`.
    File(PathBuf),
    /// The secret, written in the setting.
    Literal(SecretString),
}

impl SecretSource {
    /// Reads the secret. `environment` returns the value of a variable (`std::env::var_os` in production).
    ///
    /// # Errors
    /// [`SecretError`] when the variable or file cannot be read or its content cannot be a secret.
    pub fn load(&self, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<SecretString, SecretError> {
        match self {
            Self::Env(name) => read_env(environment, name),
            Self::File(path) => read_file(path),
            Self::Literal(secret) => Ok(secret.clone()),
        }
    }

    /// A text that may be logged: the reference, or `(redacted)` for a literal.
    pub fn describe(&self) -> String {
        match self {
            Self::Env(name) => format!("env:{name}"),
            Self::File(path) => format!("file:{}", path.display()),
            Self::Literal(_) => "(redacted)".to_owned(),
        }
    }
}

impl FromStr for SecretSource {
    type Err = SecretSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(name) = text.strip_prefix("env:") {
            return env_name(name).map(Self::Env).ok_or(SecretSourceError::BadVariable);
        }
        if let Some(path) = text.strip_prefix("file:") {
            return file_path(path).map(Self::File).ok_or(SecretSourceError::BadPath);
        }
        match text.len() {
            0 => Err(SecretSourceError::Empty),
            length if length > MAX_SECRET_BYTES => Err(SecretSourceError::TooLong),
            _ => Ok(Self::Literal(SecretString::from(text))),
        }
    }
}

/// The reason why a text is not the source of a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SecretSourceError {
    /// The text is empty.
    #[error("the secret is empty; omit the setting, or give the secret, env:NAME or file:PATH")]
    Empty,
    /// The text after `env:` is not the name of a variable.
    #[error("env: must be followed by the name of a variable (letters, digits and underscores)")]
    BadVariable,
    /// The text after `file:` is not a path.
    #[error("file: must be followed by the path of a file")]
    BadPath,
    /// The literal is longer than [`MAX_SECRET_BYTES`].
    #[error("the secret is longer than {MAX_SECRET_BYTES} bytes; give a shorter one")]
    TooLong,
}

/// The reason why a secret could not be read from its source.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The variable does not exist.
    #[error("cannot read env:{name}: the variable is not set; set it where shoal is started")]
    VariableUnset {
        /// The name of the variable.
        name: String,
    },
    /// The value of the variable cannot be a secret.
    #[error("cannot use env:{name}: its value is {problem}; set it to the secret where shoal is started")]
    VariableUnfit {
        /// The name of the variable.
        name: String,
        /// The problem of the value.
        problem: Unfit,
    },
    /// The file cannot be opened or read.
    #[error(
        "cannot read the secret file {path:?}; it must exist and be readable by the user that runs shoal"
    )]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, a device or a pipe.
    #[error(
        "cannot read the secret file {path:?}: it is not a regular file; give the path of a file that contains the secret"
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The content of the file cannot be a secret.
    #[error(
        "cannot use the secret file {path:?}: its content is {problem}; the file must contain the secret and nothing else"
    )]
    FileUnfit {
        /// The file.
        path: PathBuf,
        /// The problem of the content.
        problem: Unfit,
    },
}

/// The reason why a value cannot be a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Unfit {
    /// The value is empty.
    #[error("empty")]
    Empty,
    /// The value is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// The value is longer than [`MAX_SECRET_BYTES`].
    #[error("longer than {MAX_SECRET_BYTES} bytes")]
    TooLong,
}

/// The text after `env:`, if it is a valid name of a variable.
pub(super) fn env_name(name: &str) -> Option<String> {
    let mut characters = name.chars();
    let starts = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    let continues = characters.all(|next| next.is_ascii_alphanumeric() || next == '_');
    (starts && continues && name.len() <= 256).then(|| name.to_owned())
}

/// The text after `file:`, if it is a valid path.
pub(super) fn file_path(path: &str) -> Option<PathBuf> {
    (!path.is_empty() && path.len() <= 4096 && !path.contains('\0')).then(|| PathBuf::from(path))
}

/// Reads the secret in a variable.
pub(super) fn read_env(
    environment: &dyn Fn(&str) -> Option<OsString>,
    name: &str,
) -> Result<SecretString, SecretError> {
    let value = environment(name).ok_or_else(|| SecretError::VariableUnset { name: name.to_owned() })?;
    let value = Zeroizing::new(value.into_encoded_bytes());
    secret_text(&value).map_err(|problem| SecretError::VariableUnfit { name: name.to_owned(), problem })
}

/// Reads the secret in a file.
pub(super) fn read_file(path: &Path) -> Result<SecretString, SecretError> {
    let unreadable = |source| SecretError::FileUnreadable { path: path.to_owned(), source };
    // Checked before the open, because opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SecretError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unreadable)?;
    // The longest secret, a newline of two bytes, and one more byte to detect a content that is too long.
    let bound = MAX_SECRET_BYTES as u64 + 3;
    let mut content = Zeroizing::new(Vec::new());
    file.take(bound).read_to_end(&mut content).map_err(unreadable)?;
    secret_text(without_newline(&content))
        .map_err(|problem| SecretError::FileUnfit { path: path.to_owned(), problem })
}

/// Converts bytes to a secret, if they are text of an allowed length.
pub(super) fn secret_text(bytes: &[u8]) -> Result<SecretString, Unfit> {
    match bytes.len() {
        0 => Err(Unfit::Empty),
        length if length > MAX_SECRET_BYTES => Err(Unfit::TooLong),
        _ => str::from_utf8(bytes).map(SecretString::from).map_err(|_| Unfit::NotText),
    }
}

fn without_newline(content: &[u8]) -> &[u8] {
    content.strip_suffix(b"\r\n").or_else(|| content.strip_suffix(b"\n")).unwrap_or(content)
}

impl PartialEq for SecretSource {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Env(left), Self::Env(right)) => left == right,
            (Self::File(left), Self::File(right)) => left == right,
            (Self::Literal(left), Self::Literal(right)) => {
                super::same_secret(left.expose_secret(), right.expose_secret())
            }
            _ => false,
        }
    }
}

impl Eq for SecretSource {}
