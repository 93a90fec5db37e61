//! Errors of the library of maintenance images.
//!
//! Invariants: each text names the operation and what to do next; a URL is shown without user, password and query. An
//! [`ImportError`] can be cloned, because all callers that wait for one import receive its error.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::body::ImageDigest;
use super::super::outgoing::{AddressRefused, FileRefused};

/// The reason why an image was not imported.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImportError {
    /// The location is neither a path nor a URL.
    #[error(
        "import maintenance image: the location is malformed; give an absolute path, a file: or http(s): URL, or oci:REPOSITORY:TAG"
    )]
    Malformed,
    /// The library does not import from this scheme.
    #[error(
        "import maintenance image: the scheme {scheme}: is not supported; give an absolute path, a file: or http(s): URL, or oci:REPOSITORY:TAG"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The name of an image in the registry of the controller is malformed.
    #[error(
        "import maintenance image: oci: names an image of the controller's own registry; give oci:REPOSITORY:TAG or oci:REPOSITORY@sha256:…, without a host"
    )]
    OwnName,
    /// The registry of the controller does not have the image, or cannot give it.
    #[error("import maintenance image: {name}: {reason}")]
    Own {
        /// The name of the image, as `oci:REPOSITORY:TAG`.
        name: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The policy refuses the address of the web server, or of a redirect.
    #[error("import maintenance image: {url} is refused")]
    Address {
        /// The URL.
        url: String,
        /// The refused address.
        #[source]
        source: AddressRefused,
    },
    /// The policy refuses the local file.
    #[error("import maintenance image: {path} is refused")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason of the refusal.
        #[source]
        source: FileRefused,
    },
    /// A local file cannot be read.
    #[error(
        "import maintenance image: read {path}; check that it exists and that the user of shoal can read it"
    )]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The path is a directory, a device or a pipe.
    #[error("import maintenance image: {path} is not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A local file changed while it was copied.
    #[error(
        "import maintenance image: {path} changed while it was read; import it again when it is complete"
    )]
    ChangedFile {
        /// The file.
        path: PathBuf,
    },
    /// The web server responded with an error status.
    #[error(
        "import maintenance image: {url} responded with status {status}; check the URL with another client"
    )]
    Status {
        /// The URL.
        url: String,
        /// The status code.
        status: u16,
    },
    /// The transfer from the web server was never completed.
    #[error(
        "import maintenance image: fetch {url} failed after {attempts} attempts; check that the controller can reach it"
    )]
    Fetch {
        /// The URL.
        url: String,
        /// The number of attempts.
        attempts: u32,
        /// The last failure.
        #[source]
        source: Arc<FetchFailure>,
    },
    /// The import was not complete at its deadline.
    #[error(
        "import maintenance image: not complete after {hours} hours; copy the file to a faster source and import it again"
    )]
    Deadline {
        /// The deadline in hours.
        hours: u64,
    },
    /// The image is too large.
    #[error("import maintenance image: it has more than {limit} bytes, the limit; use a smaller image")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not an ISO 9660 image.
    #[error(
        "import maintenance image: no ISO 9660 volume in it (no CD001 at sector 16); give a bootable .iso file"
    )]
    NotAnImage,
    /// The library's own directory cannot be written.
    #[error("import maintenance image: {operation} in the image library; check space and permissions there")]
    Store {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// Too many imports are in progress.
    #[error("import maintenance image: {waiting} imports are in progress; try again when one is done")]
    Busy {
        /// The number of imports in progress.
        waiting: usize,
    },
    /// The task of the import ended without a result.
    #[error("import maintenance image: the import was interrupted; start it again")]
    Interrupted,
}

impl ImportError {
    pub(super) fn store(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Store { operation, source: Arc::new(source) }
    }
}

/// The reason why one attempt to fetch an image failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchFailure {
    /// The connection failed, the protocol was violated or a timeout passed.
    #[error("transfer from the web server")]
    Transfer(#[source] reqwest::Error),
    /// The web server responded with a status that may be temporary.
    #[error("the web server responded with status {0}")]
    Status(u16),
    /// The response to a range request does not start at the requested offset.
    #[error("the web server sent another range than the requested one")]
    Range,
    /// The response has fewer bytes than announced.
    #[error("the web server sent only {got} of {announced} bytes")]
    Short {
        /// The number of received bytes.
        got: u64,
        /// The number of announced bytes.
        announced: u64,
    },
}

/// The reason why the library or one of its images cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LibraryError {
    /// The directory of the library cannot be used.
    #[error(
        "open image library: {operation} {path}; check that the user of shoal can write to the directory"
    )]
    Directory {
        /// The operation that failed.
        operation: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The HTTP client could not be created.
    #[error("open image library: create an HTTP client from the TLS configuration")]
    Client(#[source] Arc<reqwest::Error>),
    /// The trusted certificates cannot be parsed.
    #[error("open image library: read the trusted certificates: {reason}; give PEM certificates")]
    Certificates {
        /// The problem of the certificates.
        reason: String,
    },
    /// The library has no image with this digest.
    #[error("open maintenance image: {digest} is not in the library; import it again")]
    Missing {
        /// The digest of the missing image.
        digest: ImageDigest,
    },
    /// The content of the file does not have the digest in its name.
    #[error(
        "open maintenance image: the file named {expected} hashes to {found}; remove it and import the image again"
    )]
    Changed {
        /// The digest in the file name.
        expected: ImageDigest,
        /// The digest of the content.
        found: ImageDigest,
    },
    /// The file cannot be read.
    #[error("open maintenance image: read {digest}; check the disk and the permissions of the image library")]
    Read {
        /// The digest of the image.
        digest: ImageDigest,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
}
