//! What can go wrong in the store, one variant per failed operation. Nothing here speaks HTTP: the status and
//! the code a client sees are chosen in `http::error`, and paths never travel further than the log.

use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::digest::Digest;
use crate::name::Tag;

/// A failed operation of the registry's store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was being done, as a verb.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file system is full, or would be with what is being pushed.
    #[error("the registry is out of disk space: free some or enlarge the file system, then push again")]
    NoSpace,
    /// The manifest or tag is not in the repository.
    #[error("the repository has no such manifest: push it, or check the tag")]
    ManifestUnknown,
    /// The blob is not in the repository.
    #[error("the repository has no such blob: push it, or mount it from a repository that has it")]
    BlobUnknown,
    /// The repository does not exist.
    #[error("there is no such repository: push something to create it")]
    RepositoryUnknown,
    /// What was to be imported is none of what can be.
    #[error("this is not an OCI image layout or an archive of images: {0}")]
    NotAnArchive(String),
    /// What is being pushed does not fit into a quota.
    #[error(
        "the {limit} bytes that {repositories} may hold are used up: delete something and collect garbage"
    )]
    QuotaExceeded {
        /// The pattern of the repositories which share it.
        repositories: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Nothing may be changed at the moment.
    #[error("the registry is read-only: {0}")]
    ReadOnly(String),
    /// The content is pinned, or belongs to something that is.
    #[error("{digest} is pinned by {owner}: unpin it first")]
    Pinned {
        /// What was to be deleted.
        digest: Digest,
        /// Who relies on it.
        owner: String,
    },
    /// The manifest refers to content the repository does not have.
    #[error("the manifest refers to content the repository does not have: push {} first", .0.join(", "))]
    ReferencesUnknown(Vec<String>),
    /// What is stored no longer hashes to its name.
    #[error("the stored content of {0} is damaged: push it again to heal it")]
    Damaged(Digest),
    /// What was received does not hash to what was announced.
    #[error("the content hashes to {actual}, not to {expected}: nothing was stored, upload it again")]
    DigestMismatch {
        /// What the client announced.
        expected: Digest,
        /// What its bytes hash to.
        actual: Digest,
    },
    /// The tag exists, and may neither name something else nor go.
    #[error("the tag {0} exists and has to stay as it is: push under another tag")]
    TagKept(Tag),
    /// There is no such upload session in the repository: never begun, finished, cancelled or swept.
    #[error("there is no upload session {0}: begin a new one")]
    UploadUnknown(Uuid),
    /// Another request is sending data to the same session.
    #[error("another request is writing to upload session {0}: wait for it, or begin a new one")]
    UploadBusy(Uuid),
    /// All upload sessions are taken, or all turns to send a body.
    #[error("{0} uploads are under way, which is the limit: finish or cancel some, or come back later")]
    TooManyUploads(usize),
    /// A worker thread ended before its operation did: the process is stopping, or a bug.
    #[error("the operation was stopped before it ended: the process is going down, try again")]
    Stopped,
}

impl Error {
    /// Turns an I/O failure into an error which names the operation; a full disk is its own kind.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace,
            _ => Error::Io { operation, path, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_recognised_from_the_system_s_own_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        if let Ok(mut full) = full {
            let refused = std::io::Write::write_all(&mut full, b"x").unwrap_err();
            assert!(matches!(Error::io("write", Path::new("x"))(refused), Error::NoSpace));
        }
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(Error::io("write", Path::new("x"))(other), Error::Io { operation: "write", .. }));
    }
}
