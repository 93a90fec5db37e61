//! Backups in an OCI registry: each one is an artifact with a tag of its own.
//!
//! ```text
//!   manifest  artifactType application/vnd.shoal.backup.v1, the tag is the name of the backup
//!     config  application/vnd.shoal.backup.config.v1+json   backup.json
//!     layer   application/vnd.shoal.backup.files.v1.tar     SHA256SUMS and all small files
//!     layer   application/vnd.shoal.backup.file.v1          one large file each, its path in the title
//!
//!   push:  HEAD blob -- 404 --> POST, PUT    each layer, then the config
//!          GET each blob, and compare its digest          (all of it is read back before the tag exists)
//!          PUT manifest as the tag, GET it by its digest
//! ```
//!
//! A large file is a layer under its own digest, so that an image of the registry that many backups contain is stored and sent once.
//!
//! Invariants: a tag has a complete backup; no body is held in memory; a response is read up to a bound; a registry that
//! takes and sends nothing for a minute ends a request, and a slow one does not; credentials are sent to the
//! registry and to the token server that it names by HTTPS or on the same origin, never to another host, and are in no error.
//!
//! Specification: OCI distribution 1.1, OCI image 1.1 (artifacts), RFC 9110 and the token flow of the distribution project.

mod artifact;
mod client;
mod error;
mod login;
mod pack;
mod pull;
mod push;
mod send_watch;
#[cfg(test)]
mod slow_tests;

pub use error::RemoteBackupError;

pub(super) use client::RemoteRegistry;
pub(super) use pack::{Packed, pack};
