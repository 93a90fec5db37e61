//! Why files cannot be added to an image: what was being done, what was wrong, what to do next.

use crate::error::{PlanError, ReadError};

/// Why a splice cannot be planned. Nothing was changed; nothing was read but metadata.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpliceError {
    /// The image has a UDF file system too.
    #[error(
        "splice: the image has a UDF tree, which Linux and Windows mount instead of ISO 9660 and which would not \
         show the added files; use an image without UDF, or attach the files as a second medium"
    )]
    Udf,
    /// The original is not an image that can be understood.
    #[error("splice: the original image cannot be used")]
    Original(#[from] ReadError),
    /// The original ends before its volume does.
    #[error(
        "splice: the image has {len} bytes, its volume claims {claimed}; fetch it again, it is not complete"
    )]
    Truncated {
        /// The bytes there are.
        len: u64,
        /// The bytes the descriptors promise.
        claimed: u64,
    },
    /// Structures that must be changed lie over each other.
    #[error("splice: the structures of the image overlap at byte {offset}; make the image again")]
    Overlap {
        /// Where the second one begins.
        offset: u64,
    },
    /// Planning would need more than the caller allows.
    #[error("splice: more than {limit} {what}; raise the limit only for an image you trust")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A name given to the splice is not one that every tree can hold.
    #[error("splice {name:?}: {rule}")]
    Name {
        /// The name as it was given.
        name: String,
        /// The rule it breaks, with what to give instead.
        rule: &'static str,
    },
    /// The image has the directory already.
    #[error(
        "splice: the image has a {directory:?} of its own in its {tree} tree; choose another directory, or let it be \
         replaced"
    )]
    Exists {
        /// The directory of the options.
        directory: String,
        /// The tree it was found in.
        tree: &'static str,
    },
    /// What the options want replaced cannot be.
    #[error("splice: replace {path:?} in the {tree} tree: {reason}")]
    Replace {
        /// The path as it was given.
        path: String,
        /// The tree in question.
        tree: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// A file is too large for one extent.
    #[error("splice {path:?}: it has {length} bytes, one extent holds {limit}; split it")]
    TooLarge {
        /// The path inside the new image.
        path: String,
        /// The length of the file.
        length: u64,
        /// The longest that can be added.
        limit: u64,
    },
    /// The new image would need more sectors than 32-bit addresses can name.
    #[error(
        "splice: the new image would pass 2^32 sectors, which its 32-bit addresses cannot name; add less"
    )]
    TooManySectors,
    /// The path tables are full.
    #[error("splice: the {tree} tree has {limit} directories already, which is all that can be numbered")]
    TooManyDirectories {
        /// The tree that is full.
        tree: &'static str,
        /// The number allowed.
        limit: usize,
    },
    /// A path cannot be written, or the epoch cannot.
    #[error("splice: the added files cannot be written")]
    Added(#[from] PlanError),
}
