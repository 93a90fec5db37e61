//! Secrets that live outside: an environment variable, a file, or the setting's own text.
//!
//! ```text
//! env:NAME      the variable's value as it is
//! file:PATH     the file's text without one trailing newline; a regular file of at most 64 KiB
//! other text    the secret itself
//! ```
//!
//! An unset variable, an empty value and a missing file are errors: a secret that is silently empty would switch a
//! check off. Errors name the variable or the file and never what stands in it.
//!
//! DESIGN section 11.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;
use zeroize::Zeroizing;

/// No secret is longer.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

/// Where the value of a secret setting comes from.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// `env:NAME`.
    Env(String),
    /// `file:PATH`.
    File(PathBuf),
    /// The secret itself.
    Literal(SecretString),
}

impl SecretSource {
    /// Reads the secret; `environment` answers for the variables (`std::env::var_os` in production).
    ///
    /// # Errors
    /// [`SourceError`] when there is nothing to read or what is there cannot be a secret.
    pub fn load(&self, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<SecretString, SourceError> {
        match self {
            Self::Env(name) => read_env(environment, name),
            Self::File(path) => read_file(path),
            Self::Literal(secret) => Ok(secret.clone()),
        }
    }

    /// What may be shown of it: the reference, or that there is a literal.
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

/// Why a text does not say where a secret is.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SecretSourceError {
    /// Nothing was given.
    #[error("the secret is empty; leave the setting out, or give the secret, env:NAME or file:PATH")]
    Empty,
    /// What follows `env:` cannot be a variable.
    #[error("env: must be followed by the name of a variable (letters, digits and underscores)")]
    BadVariable,
    /// What follows `file:` cannot be a path.
    #[error("file: must be followed by the path of a file")]
    BadPath,
    /// The literal is longer than any secret.
    #[error("the secret is longer than {MAX_SECRET_BYTES} bytes; give a shorter one")]
    TooLong,
}

/// Why a secret could not be read from where it lives.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The variable does not exist.
    #[error("cannot read env:{name}: the variable is not set; set it where shoal is started")]
    VariableUnset {
        /// The variable.
        name: String,
    },
    /// The variable's value cannot be a secret.
    #[error("cannot use env:{name}: its value is {problem}; set it to the secret where shoal is started")]
    VariableUnfit {
        /// The variable.
        name: String,
        /// What is wrong with the value.
        problem: Unfit,
    },
    /// The file cannot be opened or read.
    #[error("cannot read the secret file {path:?}; it must exist and be readable by the user who runs shoal")]
    FileUnreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The path leads to a directory, a device or a pipe.
    #[error(
        "cannot read the secret file {path:?}: it is not a regular file; name a file with the secret in it"
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file's content cannot be a secret.
    #[error(
        "cannot use the secret file {path:?}: its content is {problem}; write the secret, and only it, there"
    )]
    FileUnfit {
        /// The file.
        path: PathBuf,
        /// What is wrong with the content.
        problem: Unfit,
    },
}

/// Why a value cannot be a secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Unfit {
    /// There is nothing.
    #[error("empty")]
    Empty,
    /// It is not UTF-8.
    #[error("not UTF-8 text")]
    NotText,
    /// It is longer than [`MAX_SECRET_BYTES`].
    #[error("longer than {MAX_SECRET_BYTES} bytes")]
    TooLong,
}

/// The name behind `env:`, if it can be one.
pub(super) fn env_name(name: &str) -> Option<String> {
    let mut characters = name.chars();
    let starts = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    let goes_on = characters.all(|next| next.is_ascii_alphanumeric() || next == '_');
    (starts && goes_on && name.len() <= 256).then(|| name.to_owned())
}

/// The path behind `file:`, if it can be one.
pub(super) fn file_path(path: &str) -> Option<PathBuf> {
    (!path.is_empty() && path.len() <= 4096 && !path.contains('\0')).then(|| PathBuf::from(path))
}

/// The secret in a variable.
pub(super) fn read_env(
    environment: &dyn Fn(&str) -> Option<OsString>,
    name: &str,
) -> Result<SecretString, SourceError> {
    let value = environment(name).ok_or_else(|| SourceError::VariableUnset { name: name.to_owned() })?;
    let value = Zeroizing::new(value.into_encoded_bytes());
    secret_text(&value).map_err(|problem| SourceError::VariableUnfit { name: name.to_owned(), problem })
}

/// The secret in a file.
pub(super) fn read_file(path: &Path) -> Result<SecretString, SourceError> {
    let unreadable = |source| SourceError::FileUnreadable { path: path.to_owned(), source };
    // Opening a pipe would wait for its other end, so the kind is asked before the open.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(SourceError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(unreadable)?;
    // One newline more than a secret may have, and one byte more to see that there is too much.
    let bound = MAX_SECRET_BYTES as u64 + 3;
    let mut content = Zeroizing::new(Vec::new());
    file.take(bound).read_to_end(&mut content).map_err(unreadable)?;
    secret_text(without_newline(&content))
        .map_err(|problem| SourceError::FileUnfit { path: path.to_owned(), problem })
}

/// Turns bytes into a secret, if they are text of a sensible length.
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
