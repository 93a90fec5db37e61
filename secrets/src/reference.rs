//! References to credentials, and the one resolver that follows them.
//!
//! ```text
//! sealed:v1:…   in the database itself, sealed under the master key for its server
//! env:NAME      in the controller's environment
//! file:/PATH    in a file of the controller's machine; the path is absolute
//! ```
//!
//! A server's `bmc_password` column holds such a reference and nothing else. It is followed when a step starts, not
//! when it is stored, so that a rotated secret is picked up by the next step. What is not a reference is refused
//! without being repeated, because it is most likely the password.
//!
//! DESIGN section 11.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};
use thiserror::Error;

use super::key::{Key, MasterKey};
use super::seal::{OpenError, SealError, open, seal};
use super::source::{SourceError, Unfit, env_name, file_path, read_env, read_file, secret_text};

/// What the subkey for sealing is derived for.
const SEAL_PURPOSE: &str = "seal";

/// Where a credential is. `Display` gives the text to store, `Debug` one that may be logged.
#[derive(Clone, Eq, PartialEq)]
pub enum CredentialRef {
    /// The sealed credential itself, with its prefix.
    Sealed(String),
    /// A variable of the controller's environment.
    Env(String),
    /// A file of the controller's machine.
    File(PathBuf),
}

impl CredentialRef {
    /// `sealed`, `env` or `file`.
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

type Environment = dyn Fn(&str) -> Option<OsString> + Send + Sync;

/// Seals credentials and follows references to them.
pub struct Resolver {
    key: Key,
    environment: Box<Environment>,
}

impl Resolver {
    /// A resolver over the environment of this process.
    pub fn new(master_key: &MasterKey) -> Self {
        Self::with_environment(master_key, |name| std::env::var_os(name))
    }

    /// A resolver over a given environment.
    pub fn with_environment(
        master_key: &MasterKey,
        environment: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static,
    ) -> Self {
        Self { key: master_key.derive(SEAL_PURPOSE), environment: Box::new(environment) }
    }

    /// Seals a credential that belongs to `context` (a server's serial) and gives the reference to store.
    ///
    /// # Errors
    /// [`SealError`] when the secret is too long or the operating system has no randomness.
    pub fn seal(&self, context: &str, secret: &SecretString) -> Result<CredentialRef, SealError> {
        seal(&self.key, context, secret.expose_secret().as_bytes()).map(CredentialRef::Sealed)
    }

    /// Follows a reference that belongs to `context`. Reads a small file in the case of `file:`.
    ///
    /// # Errors
    /// [`ResolveError`] names the kind of reference and the variable or file, never what stands there.
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

/// Why a text is not a reference to a credential.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum CredentialRefError {
    /// No known prefix.
    #[error("a credential reference begins with sealed:, env: or file:")]
    NotAReference,
    /// What follows `env:` cannot be a variable.
    #[error("env: must be followed by the name of a variable (letters, digits and underscores)")]
    BadVariable,
    /// What follows `file:` is not an absolute path.
    #[error("file: must be followed by an absolute path")]
    BadPath,
}

/// Why a reference led to no credential.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// A sealed one did not open.
    #[error(transparent)]
    Sealed(#[from] OpenError),
    /// A sealed one opened, but not to a usable text.
    #[error("cannot use a sealed credential: it is {0}; enter the credential again")]
    Unfit(Unfit),
    /// The variable or file gave nothing.
    #[error(transparent)]
    Source(#[from] SourceError),
}
