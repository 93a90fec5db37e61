//! Errors of the store, one variant per kind. They know nothing of HTTP: `http::error` chooses the status and the code,
//! and paths appear in the log only.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::digest::Digest;
use crate::name::{RepositoryName, Tag};

/// A failed operation of the registry's store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The file system is full, or would be with the content being pushed.
    #[error("the registry is out of disk space: free some space or enlarge the file system, then push again")]
    NoSpace,
    /// The manifest or tag is not in the repository.
    #[error("the repository has no such manifest: push it, or check the tag")]
    ManifestUnknown,
    /// The blob is not in the repository.
    #[error("the repository has no such blob: push it, or mount it from a repository that has it")]
    BlobUnknown,
    /// The repository does not exist.
    #[error("the repository does not exist: a push creates it")]
    RepositoryUnknown,
    /// The source of an import is not supported.
    #[error("this is not an OCI image layout or an archive of images: {0}")]
    NotAnArchive(String),
    /// Different images of an import would get one tag.
    #[error(
        "the source has different images for the tag {tag}, {} and {}: save each into an archive of its own, and import it \
         into its own repository",
        .names[0], .names[1]
    )]
    AmbiguousTag {
        /// The tag.
        tag: Tag,
        /// The full names of two of the images.
        names: [String; 2],
    },
    /// The document is no manifest that the registry supports.
    #[error("the manifest is not valid: {0}")]
    InvalidManifest(String),
    /// The pushed content does not fit into a quota.
    #[error("the quota of {limit} bytes for {repositories} is used up: delete content and collect garbage")]
    QuotaExceeded {
        /// The pattern of the repositories that share the quota.
        repositories: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The registry is read-only.
    #[error("the registry is read-only: {0}")]
    ReadOnly(String),
    /// The content is pinned, or belongs to pinned content.
    #[error("{digest} is pinned by {owner}: unpin it first")]
    Pinned {
        /// The content that was to be deleted.
        digest: Digest,
        /// The owner of the pin.
        owner: String,
    },
    /// An image that was to be exported lacks content.
    #[error(
        "{repository}:{tag} cannot be exported, because its content {digest} is missing: push the image again"
    )]
    Incomplete {
        /// The repository.
        repository: RepositoryName,
        /// The tag of the image.
        tag: Tag,
        /// The digest of the missing content.
        digest: String,
    },
    /// The manifest refers to content the repository does not have.
    #[error("the manifest refers to content the repository does not have: push {} first", .0.join(", "))]
    ReferencesUnknown(Vec<String>),
    /// The stored content does not have the digest of its name.
    #[error("the stored content of {0} is corrupted: push it again to repair it")]
    Corrupted(Digest),
    /// The received content does not have the expected digest.
    #[error("the content hashes to {actual}, not to {expected}: nothing was stored, upload it again")]
    DigestMismatch {
        /// The digest the client sent.
        expected: Digest,
        /// The digest of the received bytes.
        actual: Digest,
    },
    /// The tag exists and must not be moved or deleted.
    #[error("the tag {0} exists and must not be changed: push under another tag")]
    TagKept(Tag),
    /// The tag names another manifest than the one that was to lose it.
    #[error("the tag {tag} names {digest} now: look at it again, then decide")]
    TagMoved {
        /// The tag.
        tag: Tag,
        /// The manifest that the tag names now.
        digest: Digest,
    },
    /// The content is below a tag that must not be changed.
    #[error("{digest} belongs to the tag {tag}, which must not be changed: it stays as long as the tag")]
    BelowTag {
        /// The content that was to be deleted or changed.
        digest: Digest,
        /// The tag.
        tag: Tag,
    },
    /// The manifest says another size of content than it has.
    #[error(
        "the manifest says that {digest} has {described} bytes, and it has {actual}: correct the size in the \
         descriptor, then push the manifest again"
    )]
    WrongSize {
        /// The content.
        digest: Digest,
        /// The size in the manifest.
        described: u64,
        /// The size of the content.
        actual: u64,
    },
    /// The repository has no such upload session: never started, finished, cancelled or swept.
    #[error("the upload session {0} does not exist: start a new one")]
    UploadUnknown(Uuid),
    /// Another request is writing to the session.
    #[error("another request is writing to upload session {0}: wait for it, or start a new one")]
    UploadBusy(Uuid),
    /// An administrator cancelled the upload session.
    #[error("an administrator cancelled the upload session {0}: start a new one")]
    UploadCancelled(Uuid),
    /// A limit of open upload sessions, or of concurrently received bodies, is reached.
    #[error("the limit of {limit} concurrent uploads {of} is reached: finish or cancel some, or retry later")]
    TooManyUploads {
        /// The limit.
        limit: usize,
        /// The group to which the limit applies.
        of: UploadLimit,
    },
    /// A blocking thread ended before its operation: the process is stopping, or a bug.
    #[error("the operation was stopped before its end because the process is stopping: retry")]
    Stopped,
}

/// The group to which a limit of uploads applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadLimit {
    /// All clients together.
    Registry,
    /// One user, or one address of anonymous callers.
    User,
    /// One repository.
    Repository,
}

impl fmt::Display for UploadLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UploadLimit::Registry => "of the registry",
            UploadLimit::User => "of one user",
            UploadLimit::Repository => "to one repository",
        })
    }
}

impl Error {
    /// Whether an import failed because of where it stores, not because of what it reads: the next image would fail too.
    pub(crate) fn is_of_target(&self) -> bool {
        matches!(
            self,
            Error::NoSpace
                | Error::QuotaExceeded { .. }
                | Error::ReadOnly(_)
                | Error::Io { .. }
                | Error::Stopped
        )
    }

    /// Converts an I/O error and adds the operation; a full disk is [`Error::NoSpace`].
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
    fn a_full_disk_is_recognised_from_the_error_of_the_system() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        if let Ok(mut full) = full {
            let refused = std::io::Write::write_all(&mut full, b"x").unwrap_err();
            assert!(matches!(Error::io("write", Path::new("x"))(refused), Error::NoSpace));
        }
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(Error::io("write", Path::new("x"))(other), Error::Io { operation: "write", .. }));
    }
}
