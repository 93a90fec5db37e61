//! The errors of a build of an image, and of a fetch of packages.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The reason of a failure, in words for the operator: what happened and what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of this machine cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An input file is damaged, or of another kind.
    #[error("{}: {reason}", file.display())]
    Input {
        /// The file.
        file: PathBuf,
        /// The problem of the file.
        reason: String,
    },
    /// The inputs do not suffice for an image.
    #[error("{0}")]
    Incomplete(String),
    /// The image cannot be laid out.
    #[error("cannot lay out the image: {0}")]
    Layout(#[from] iso9660::PlanError),
    /// A signed index of packages is not valid.
    #[error("{what}: {reason}")]
    Index {
        /// The URL or file.
        what: String,
        /// The problem of the index.
        reason: String,
    },
    /// A download failed.
    #[error("cannot download {url}: {reason}")]
    Download {
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
}

impl Error {
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    pub(crate) fn input(file: &Path, reason: impl ToString) -> Self {
        Self::Input { file: file.to_owned(), reason: reason.to_string() }
    }

    pub(crate) fn index(what: &str, reason: impl ToString) -> Self {
        Self::Index { what: what.to_owned(), reason: reason.to_string() }
    }
}
