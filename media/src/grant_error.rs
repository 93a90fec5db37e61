//! The errors of a token that opens no grant, and the status that a BMC receives for each.

use http::StatusCode;

use super::body::ImageDigest;
use super::grant_store::GrantStoreUnavailable;
use super::library::LibraryError;
use super::spliced::SplicedError;
use super::task_image_error::TaskImageError;

/// The reason why a token opens no grant.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// No grant has this token.
    #[error("open media grant: no such grant")]
    Unknown,
    /// The grant ended with its job.
    #[error("open media grant: it ended with its job")]
    Ended,
    /// The image could not be made before. The event of the first failure has the reason.
    #[error("open media grant: its image could not be made before; the events of its job have the reason")]
    StillRefused,
    /// The image does not have the recorded digest.
    #[error(
        "open media grant: the image now hashes to {found}, the grant was issued for {expected}; the job needs a new image"
    )]
    Changed {
        /// The recorded digest.
        expected: ImageDigest,
        /// The digest of the present image.
        found: ImageDigest,
    },
    /// The task image cannot be rebuilt.
    #[error("open media grant: rebuild the task image")]
    Task(#[source] TaskImageError),
    /// The spliced image cannot be rebuilt.
    #[error("open media grant: rebuild the spliced image")]
    Spliced(#[source] SplicedError),
    /// A content of the OS image is gone.
    #[error("open media grant: open the OS image: {0}; the job needs a new image")]
    OsImage(String),
    /// The firmware file is gone.
    #[error("open media grant: open the firmware file: {0}; add it again with `shoal firmware add`")]
    Firmware(String),
    /// The maintenance image cannot be opened.
    #[error("open media grant: open the maintenance image")]
    Library(#[source] LibraryError),
    /// The grant store does not respond.
    #[error("open media grant: the grant store does not respond; the BMC can try again")]
    Unavailable(#[source] GrantStoreUnavailable),
}

impl GrantError {
    /// The status that a BMC receives: 404 without a right to read, 410 when the image can never be served again, 503 when
    /// it may be served later.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown | Self::Ended => StatusCode::NOT_FOUND,
            Self::StillRefused
            | Self::Changed { .. }
            | Self::Task(_)
            | Self::Spliced(_)
            | Self::OsImage(_)
            | Self::Firmware(_) => StatusCode::GONE,
            Self::Library(LibraryError::Missing { .. } | LibraryError::Changed { .. }) => StatusCode::GONE,
            Self::Library(_) | Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
