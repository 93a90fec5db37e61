//! What can go wrong with maintenance images.
//!
//! Invariants: a text names the operation and what to do next; a URL is shown without user, password and query. The
//! errors of an import can be cloned, because everybody who waits for one import gets the same answer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::body::ImageDigest;

/// Why an image was not imported.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImportError {
    /// The location is not one.
    #[error(
        "import maintenance image: the location cannot be read; give a path, a file: URL or an http(s): URL"
    )]
    Malformed,
    /// A scheme that is fetched elsewhere or nowhere.
    #[error(
        "import maintenance image: {scheme}: is not imported here; give a path, a file: URL or an http(s): URL"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A local file cannot be read.
    #[error("import maintenance image: read {path}; check that it exists and may be read by this user")]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// A local file is a directory, a device or a pipe.
    #[error("import maintenance image: {path} is not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A local file was written while it was copied.
    #[error(
        "import maintenance image: {path} changed while it was read; import it again when it is complete"
    )]
    ChangedFile {
        /// The file.
        path: PathBuf,
    },
    /// The web server answered with a refusal.
    #[error("import maintenance image: {url} answered {status}; check the URL with another client")]
    Status {
        /// The URL.
        url: String,
        /// The status code.
        status: u16,
    },
    /// The web server could not be read to the end.
    #[error(
        "import maintenance image: fetch {url}, given up after {attempts} attempts; check that it can be reached"
    )]
    Fetch {
        /// The URL.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        #[source]
        source: Arc<FetchFailure>,
    },
    /// The import took too long altogether.
    #[error(
        "import maintenance image: not complete after {hours} hours; bring the file nearer and import it again"
    )]
    Deadline {
        /// The limit.
        hours: u64,
    },
    /// More bytes than an image may have.
    #[error("import maintenance image: it has more than {limit} bytes, the limit; use a smaller image")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// Not an ISO 9660 image.
    #[error(
        "import maintenance image: no ISO 9660 volume in it (no CD001 at sector 16); give a bootable .iso file"
    )]
    NotAnImage,
    /// The library's own directory cannot be written.
    #[error("import maintenance image: {operation} in the image library; check space and permissions there")]
    Store {
        /// What was done.
        operation: &'static str,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// Too many imports wait already.
    #[error("import maintenance image: {waiting} imports are in progress; try again when one is done")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// The task that did the work ended without a result.
    #[error("import maintenance image: the import was interrupted; start it again")]
    Interrupted,
}

impl ImportError {
    pub(super) fn store(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Store { operation, source: Arc::new(source) }
    }
}

/// Why one attempt to fetch an image ended early.
#[derive(Debug, thiserror::Error)]
pub enum FetchFailure {
    /// The connection, the protocol or a time limit.
    #[error("transfer from the web server")]
    Transfer(#[source] reqwest::Error),
    /// An answer that another attempt may improve.
    #[error("the web server answered {0}")]
    Status(u16),
    /// An answer to a range request that is none.
    #[error("the web server continued at another place than it was asked to")]
    Range,
    /// Fewer bytes than announced.
    #[error("the web server ended after {got} of {announced} bytes")]
    Short {
        /// Bytes that came.
        got: u64,
        /// Bytes that should have.
        announced: u64,
    },
}

/// Why the library or one of its images cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LibraryError {
    /// The directory cannot be used.
    #[error("open image library: {operation} {path}; check that the directory is writable by this user")]
    Directory {
        /// What was done.
        operation: &'static str,
        /// With which path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// No HTTP client could be made.
    #[error("open image library: make an HTTP client from the given TLS configuration")]
    Client(#[source] Arc<reqwest::Error>),
    /// The certificates given as trusted cannot be used.
    #[error("open image library: read the trusted certificates: {reason}; give PEM certificates")]
    Certificates {
        /// What is wrong with them.
        reason: String,
    },
    /// No such image.
    #[error("open maintenance image: {digest} is not in the library; import it again")]
    Missing {
        /// The image.
        digest: ImageDigest,
    },
    /// The file no longer is what its name says.
    #[error(
        "open maintenance image: the file named {expected} hashes to {found}; remove it and import the image again"
    )]
    Changed {
        /// Its name.
        expected: ImageDigest,
        /// Its content.
        found: ImageDigest,
    },
    /// The file cannot be read.
    #[error("open maintenance image: read {digest}; check the disk and the permissions of the image library")]
    Read {
        /// The image.
        digest: ImageDigest,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
}
