//! Errors of a splice: the operation, the reason, and what to do.

use crate::error::{PlanError, ReadError};

/// The reason why a splice cannot be planned. Planning changes nothing and reads only metadata.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpliceError {
    /// The image has a UDF file system too.
    #[error(
        "splice: the image has a UDF tree, which Linux and Windows mount instead of ISO 9660 and which would not \
         show the added files; use an image without UDF, or attach the files as a second medium"
    )]
    Udf,
    /// The original is not a valid or supported image.
    #[error("splice: the original image cannot be used")]
    Original(#[from] ReadError),
    /// The original is shorter than its volume.
    #[error(
        "splice: the image has {len} bytes, its volume claims {claimed}; it is incomplete, download it again"
    )]
    Truncated {
        /// The length of the original in bytes.
        len: u64,
        /// The length in the volume descriptors, in bytes.
        claimed: u64,
    },
    /// Structures that the splice must change overlap.
    #[error("splice: the structures of the image overlap at byte {offset}; create the image again")]
    Overlap {
        /// The offset of the second structure.
        offset: u64,
    },
    /// Planning would exceed a limit.
    #[error("splice: more than {limit} {what}; raise the limit only for an image you trust")]
    Limit {
        /// The counted unit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A name of an added file cannot be represented in every tree.
    #[error("splice {name:?}: {rule}")]
    Name {
        /// The name that the caller passed.
        name: String,
        /// The rule that the name breaks, with a remedy.
        rule: &'static str,
    },
    /// The image already has the directory.
    #[error(
        "splice: the image already has {directory:?} in its {tree} tree; choose another directory, or allow it to be \
         replaced"
    )]
    Exists {
        /// The directory in the options.
        directory: String,
        /// The tree that has the directory.
        tree: &'static str,
    },
    /// A file of the options cannot be replaced.
    #[error("splice: replace {path:?} in the {tree} tree: {reason}")]
    Replace {
        /// The path that the caller passed.
        path: String,
        /// The tree in which the file cannot be replaced.
        tree: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// A file is too large for one extent.
    #[error("splice {path:?}: it has {length} bytes, one extent holds {limit}; split it")]
    TooLarge {
        /// The path inside the new image.
        path: String,
        /// The length of the file.
        length: u64,
        /// The longest file that can be added.
        limit: u64,
    },
    /// The new image would need more than 2^32 sectors.
    #[error("splice: the new image would pass 2^32 sectors, the limit of its 32-bit addresses; add less")]
    TooManySectors,
    /// A path table has no number for another directory.
    #[error(
        "splice: the {tree} tree has {limit} directories, the largest possible number; use an image with fewer directories"
    )]
    TooManyDirectories {
        /// The tree with the full path table.
        tree: &'static str,
        /// The largest number of directories.
        limit: usize,
    },
    /// A path or the date of the added files cannot be represented.
    #[error("splice: the added files cannot be represented")]
    Added(#[from] PlanError),
}
