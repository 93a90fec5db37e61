//! The errors of task images, and the limits that the errors name.

use iso9660::PlanError;

use super::body::ImageDigest;

/// The maximum size of all files of a task image together, in bytes.
pub const TASK_FILES_MAX: usize = 20 << 20;
/// The version of recorded inputs with an OS image.
pub(super) const OS_IMAGE_FORMAT: u32 = 2;

/// The reason why a task image cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TaskImageError {
    /// A file name is not in the list.
    #[error("plan task image: {name:?} is not a file of task images")]
    UnknownFile {
        /// The name.
        name: String,
    },
    /// A file name is given twice.
    #[error("plan task image: {name} is given twice")]
    DuplicateFile {
        /// The name.
        name: String,
    },
    /// A required file is missing.
    #[error("plan task image: {name} is missing")]
    MissingFile {
        /// The name.
        name: &'static str,
    },
    /// The files together are too large.
    #[error(
        "plan task image: the files have {bytes} bytes, the limit is {TASK_FILES_MAX}; shorten user data or answer files"
    )]
    TooLarge {
        /// The size of all files together.
        bytes: usize,
    },
    /// The label is not one of [`MEDIA_LABELS`](super::task_image::MEDIA_LABELS).
    #[error("plan task image: media_label {label:?} is not CIDATA, CONFIG-2 or OEMDRV")]
    Label {
        /// The label.
        label: String,
    },
    /// The layout of the volume failed.
    #[error("plan task image: lay out the volume")]
    Layout(#[source] PlanError),
    /// The planned image could not be hashed.
    #[error("plan task image: hash the planned image")]
    Hash(#[source] std::io::Error),
    /// The inputs could not be serialised.
    #[error("record task image: write its inputs")]
    Encode(#[source] serde_json::Error),
    /// The recorded inputs are malformed.
    #[error(
        "read the inputs of a task image: {reason}; the image cannot be served and the job needs a new image"
    )]
    Inputs {
        /// The problem of the inputs.
        reason: String,
    },
    /// The recorded inputs have another version.
    #[error(
        "read the inputs of a task image: they have format {found} and this version reads up to {OS_IMAGE_FORMAT}; serve the image with the version that recorded it"
    )]
    Format {
        /// The format of the recorded inputs.
        found: u32,
    },
    /// The files of the OS image are not adjacent.
    #[error(
        "plan task image: the files of the OS image are not adjacent; report it with the recipe (without its secrets)"
    )]
    Scattered,
    /// The image has an OS image, which must be opened first.
    #[error("rebuild task image: it has an OS image whose contents are not open")]
    OsImageClosed,
    /// The inputs no longer give the recorded bytes.
    #[error(
        "rebuild task image: its bytes hash to {found} and the grant was issued for {expected}; the image is not served"
    )]
    Changed {
        /// The recorded digest.
        expected: ImageDigest,
        /// The digest of the rebuilt image.
        found: ImageDigest,
    },
}
