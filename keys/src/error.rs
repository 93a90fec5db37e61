//! The errors of the rotation of a key.

use thiserror::Error;

use secrets::{MasterKeyError, NoRandomness};
use store::StoreError;

/// The reason why a key was not rotated. A rotation that had begun can be continued.
#[derive(Debug, Error)]
pub enum RotateError {
    /// The key comes from a setting that the operator changes.
    #[error(
        "this key is given by a setting, so its owner replaces it; docs/operating.md, section Keys and credentials, has the steps"
    )]
    NotOurs,
    /// The setting MASTER_KEY has one version only.
    #[error(
        "the master key is given by MASTER_KEY: put a new key before the present one there (two words), restart the controller, \
         and run the command again"
    )]
    GivenMasterKey,
    /// The controller has no TLS listener.
    #[error("this controller has no TLS listener; set CONTROLLER_HTTPS_ADDR first")]
    NoTls,
    /// No report secret is configured.
    #[error("no shared report secret is in use; each job has its own token, which ends with the job")]
    NoReportSecret,
    /// Too many former versions are accepted.
    #[error(
        "too many former versions of this key are accepted; wait until one of them is removed (a report secret that \
         WEBHOOK_SECRET_OLD gives is removed with that setting)"
    )]
    TooMany,
    /// Records cannot be opened with the version that they name.
    #[error(
        "{records} records name a former version of the master key and cannot be opened with it: {places}; the former version \
         stays. Enter these credentials again or delete what they belong to, then run the command again"
    )]
    Unreadable {
        /// The number of these records.
        records: u64,
        /// The tables and columns of the records.
        places: String,
    },
    /// A key file could not be written.
    #[error(transparent)]
    File(#[from] MasterKeyError),
    /// A secret file could not be read or written.
    #[error("cannot replace the secret file {path}")]
    SecretFile {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The operating system returned no random bytes.
    #[error("cannot make a key")]
    Random(#[from] NoRandomness),
    /// The certificate could not be issued.
    #[error("cannot issue a certificate")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The work was not finished.
    #[error("the work was not finished; run the command again")]
    Busy,
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RotateError {
    /// Whether the state of the installation or its settings refuse the rotation, and not a fault.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotOurs
                | Self::GivenMasterKey
                | Self::NoTls
                | Self::NoReportSecret
                | Self::TooMany
                | Self::Unreadable { .. }
        )
    }
}
