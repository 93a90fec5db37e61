//! Credential references and their resolver.
//!
//! ```text
//! sealed:v1:…   the credential in the database, sealed with the master key for its server
//! env:NAME      an environment variable of the controller
//! file:/PATH    a file on the controller's machine; the path is absolute
//! ```
//!
//! The column `bmc_password` of a server contains such a reference and nothing else. A reference is resolved when a step
//! starts, not when it is stored, so that the next step uses a rotated secret. The error for a text that is not a
//! reference does not repeat the text, because the text is most likely the password.
//!
//! See docs/operating.md.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use super::key::{Key, KeyRing};
use super::seal::{OpenError, SealError, open, seal};
use super::source::{SecretError, Unfit, env_name, file_path, read_env, read_file, secret_text};

/// The purpose of the subkey for sealing.
pub(super) const SEAL_PURPOSE: &str = "seal";

/// A reference to a credential. `Display` returns the text to store, `Debug` a text that may be logged.
#[derive(Clone, Eq, PartialEq)]
pub enum CredentialRef {
    /// The sealed credential with its prefix.
    Sealed(String),
    /// An environment variable of the controller.
    Env(String),
    /// A file on the controller's machine.
    File(PathBuf),
}

impl CredentialRef {
    /// The kind of reference: `sealed`, `env` or `file`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sealed(_) => "sealed",
            Self::Env(_) => "env",
            Self::File(_) => "file",
        }
    }
}

impl FromStr for CredentialRef {
    type Err = CredentialRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("sealed:") {
            return Ok(Self::Sealed(text.to_owned()));
        }
        if let Some(name) = text.strip_prefix("env:") {
            return env_name(name).map(Self::Env).ok_or(CredentialRefError::BadVariable);
        }
        if let Some(path) = text.strip_prefix("file:") {
            let path = file_path(path).filter(|path| path.is_absolute());
            return path.map(Self::File).ok_or(CredentialRefError::BadPath);
        }
        Err(CredentialRefError::NotAReference)
    }
}

impl fmt::Display for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed(text) => f.write_str(text),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed(_) => f.write_str("sealed:(redacted)"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path:?}"),
        }
    }
}

type VariableSource = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// Seals credentials and resolves references to them.
pub struct Resolver {
    key: Key,
    environment: Box<VariableSource>,
}

impl Resolver {
    /// A resolver that reads the environment variables of this process.
    pub fn new(master_key: &KeyRing) -> Self {
        Self::with_environment(master_key, |name| std::env::var_os(name))
    }

    /// A resolver that reads environment variables with `environment`.
    pub fn with_environment(
        master_key: &KeyRing,
        environment: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
    ) -> Self {
        Self { key: master_key.derive(SEAL_PURPOSE), environment: Box::new(environment) }
    }

    /// Seals a credential for `context` (the serial number of a server) and returns the reference to store.
    ///
    /// # Errors
    /// [`SealError`] when the secret is empty or too long, or the operating system returns no random bytes.
    pub fn seal(&self, context: &str, secret: &SecretString) -> Result<CredentialRef, SealError> {
        if secret.expose_secret().is_empty() {
            return Err(SealError::Empty);
        }
        seal(&self.key, context, secret.expose_secret().as_bytes()).map(CredentialRef::Sealed)
    }

    /// Returns the credential of a reference for `context`. Reads a small file in the case of `file:`.
    ///
    /// # Errors
    /// [`ResolveError`], which names the kind of reference and the variable or file, but never the content.
    pub fn resolve(&self, reference: &CredentialRef, context: &str) -> Result<SecretString, ResolveError> {
        match reference {
            CredentialRef::Sealed(text) => {
                secret_text(&open(&self.key, context, text)?).map_err(ResolveError::Unfit)
            }
            CredentialRef::Env(name) => Ok(read_env(&*self.environment, name)?),
            CredentialRef::File(path) => Ok(read_file(path)?),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// The reason why a text is not a credential reference.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CredentialRefError {
    /// The text has no known prefix.
    #[error("a credential reference begins with sealed:, env: or file:")]
    NotAReference,
    /// The text after `env:` is not the name of a variable.
    #[error("env: must be followed by the name of a variable (letters, digits and underscores)")]
    BadVariable,
    /// The text after `file:` is not an absolute path.
    #[error("file: must be followed by an absolute path")]
    BadPath,
}

/// The reason why a reference could not be resolved.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The sealed credential could not be opened.
    #[error(transparent)]
    Sealed(#[from] OpenError),
    /// The sealed credential was opened, but is not usable text.
    #[error("cannot use a sealed credential: it is {0}; enter the credential again")]
    Unfit(Unfit),
    /// The variable or file could not be read.
    #[error(transparent)]
    Source(#[from] SecretError),
}
