//! Why a registry did not do what was requested.

use std::io;
use std::path::PathBuf;

/// Why a registry of backups did not do what was requested. No text has credentials or a query.
#[derive(Debug, thiserror::Error)]
pub enum RemoteBackupError {
    /// There was no response.
    #[error(
        "{what}: {registry} does not respond; check the network, the name and the certificate authority (BACKUP_CA_FILE)"
    )]
    NoResponse {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The connection ended before the response, for example because the registry refuses a body without reading it.
    #[error("{what}: {registry} ended the connection before its response; its log has the reason")]
    Ended {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The registry took and sent nothing for a while.
    #[error(
        "{what}: {registry} took and sent no byte for {seconds} s; check the network, and the disk and the log of the registry"
    )]
    Silent {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
        /// The time without a byte.
        seconds: u64,
    },
    /// The login was refused.
    #[error(
        "{what}: {registry} refused the login; check BACKUP_REGISTRY_USER and BACKUP_REGISTRY_PASSWORD and the rights of the user"
    )]
    Login {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
    },
    /// The request was refused.
    #[error("{what}: {registry} responded with {status}{message}")]
    Refused {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
        /// The HTTP status.
        status: u16,
        /// The message of the registry, with a colon before it.
        message: String,
    },
    /// The response is not one of the specification.
    #[error("{what}: {registry} sent {reason}")]
    Unexpected {
        /// The operation.
        what: String,
        /// The registry.
        registry: String,
        /// The fault of the response, in words.
        reason: String,
    },
    /// There is no such backup.
    #[error("{registry} has no backup {name}")]
    NotFound {
        /// The repository.
        registry: String,
        /// The tag or digest.
        name: String,
    },
    /// A local file could not be used.
    #[error("{operation} {}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The settings cannot be used for a connection.
    #[error("set up the client of BACKUP_TARGET: {reason}")]
    Setup {
        /// The fault of the settings, in words.
        reason: String,
    },
}
