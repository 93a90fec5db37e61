//! Errors: what was being done, what was wrong, what to do next.
//!
//! ```text
//! Tree::add_*, Plan::new   -> PlanError    the input cannot become a correct image (names the path and the limit)
//! Tree::graft              -> ScanError    a directory of this machine cannot become a tree
//! Plan reads and writes    -> SourceError  a source failed or changed (inside the io::Error)
//! Image                    -> ReadError    Invalid (where, which rule) | Unsupported | Limit | the caller's path | Io
//! ```

use std::io;
use std::path::PathBuf;

/// Why a tree with its options cannot become an image.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A path given to the tree is not a path inside an image.
    #[error("add {path:?} to the tree: {rule}")]
    Path {
        /// The path as it was given.
        path: String,
        /// The rule it breaks, with what to give instead.
        rule: &'static str,
    },
    /// A path was added twice.
    #[error("add {path:?} to the tree: it is there already; give every path once")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// A path goes through a file or a symbolic link.
    #[error(
        "add {path:?} to the tree: {file:?} is no directory, so nothing can be below it; rename one of them"
    )]
    BelowFile {
        /// The path.
        path: String,
        /// The part of it that is a file or a symbolic link.
        file: String,
    },
    /// A hard link was asked for to something that is not a file of the tree.
    #[error("link to {path:?} in the tree: there is no such file; add it first")]
    NoSuchFile {
        /// The path that should be a file.
        path: String,
    },
    /// A name is longer than a namespace can hold.
    #[error("plan {path:?}: its name has {length} {unit}, {namespace} holds {limit}; shorten it")]
    NameTooLong {
        /// The path.
        path: String,
        /// `Joliet`, `Rock Ridge` or `ISO 9660:1999`.
        namespace: &'static str,
        /// The length found.
        length: usize,
        /// The length allowed.
        limit: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// A character cannot be written in Joliet.
    #[error("plan {path:?}: Joliet cannot hold the character {character:?}; rename it or switch Joliet off")]
    OutsideJoliet {
        /// The path.
        path: String,
        /// The character.
        character: char,
    },
    /// Two names in a directory differ in their case only, which strict Joliet does not tell apart.
    #[error("plan {path:?}: in Joliet it is the same as {other:?}; rename one or allow long Joliet names")]
    SameInJoliet {
        /// The path.
        path: String,
        /// The path before it.
        other: String,
    },
    /// A path is longer than strict Joliet allows.
    #[error(
        "plan {path:?}: it has {length} characters, strict Joliet allows {limit}; allow long Joliet names"
    )]
    JolietPathTooLong {
        /// The path.
        path: String,
        /// The length found.
        length: usize,
        /// The length allowed.
        limit: usize,
    },
    /// A symbolic link cannot be written.
    #[error("plan {path:?}: only Rock Ridge can hold a symbolic link; switch it on or leave the link out")]
    SymlinkWithoutRockRidge {
        /// The path of the link.
        path: String,
    },
    /// A directory is nested too deep (ECMA-119 6.8.2.1).
    #[error(
        "plan {path:?}: it is on level {level} of directories, ISO 9660 allows {limit}; flatten the tree, or \
         relocate deep directories with Rock Ridge"
    )]
    TooDeep {
        /// The path of the directory.
        path: String,
        /// Its level; the root is level 1.
        level: usize,
        /// The deepest level allowed.
        limit: usize,
    },
    /// The tree has a directory where deep directories are moved to.
    #[error("plan {path:?}: deep directories are moved to a directory of this name; rename it")]
    RelocationName {
        /// The path.
        path: String,
    },
    /// A path of ISO 9660 identifiers is too long (ECMA-119 6.8.2.1).
    #[error(
        "plan {path:?}: its ISO 9660 path takes {length} bytes, {limit} are allowed; shorten its directories"
    )]
    PathTooLong {
        /// The path.
        path: String,
        /// The length found.
        length: usize,
        /// The length allowed.
        limit: usize,
    },
    /// There are more directories than the 16-bit parent numbers of a path table can name.
    #[error(
        "plan the path tables: the tree has {count} directories, at most {limit} can be numbered; merge some"
    )]
    TooManyDirectories {
        /// The number of directories, the root included.
        count: usize,
        /// The number allowed.
        limit: usize,
    },
    /// The image would need more sectors than 32-bit addresses can name, or a directory more bytes.
    #[error(
        "plan {path:?}: the image would pass 2^32 sectors, which its 32-bit addresses cannot name; split it"
    )]
    TooLarge {
        /// The path at which the limit was passed.
        path: String,
    },
    /// A file is longer than an interchange level below 3 allows.
    #[error(
        "plan {path:?}: its {length} bytes take several pieces, which levels 1 and 2 do not allow; use level 3"
    )]
    NeedsLevelThree {
        /// The path.
        path: String,
        /// The length of the file.
        length: u64,
    },
    /// A text field of the volume descriptors cannot hold a value.
    #[error("plan the volume descriptors: {field} {value:?}: {rule}")]
    Text {
        /// The option.
        field: &'static str,
        /// Its value.
        value: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// The epoch lies outside the years that a directory record can hold.
    #[error(
        "plan the dates: epoch {epoch} is outside the years 1900 to 2155 that a directory record can hold"
    )]
    Epoch {
        /// Seconds since 1970, UTC.
        epoch: i64,
    },
    /// The boot options do not fit the profile or the tree.
    #[error("plan the boot catalog: {path:?}: {rule}")]
    Boot {
        /// The path of the boot image, empty when none is named.
        path: String,
        /// The rule broken.
        rule: &'static str,
    },
    /// The BIOS boot file could not be read, so that it cannot get its boot info table.
    #[error("plan the boot info table of {path:?}: {reason}")]
    BootFile {
        /// The path of the boot file.
        path: String,
        /// What its source said.
        reason: String,
    },
    /// The boot code of a hybrid image does not fit.
    #[error("plan the partition tables: {rule}")]
    Hybrid {
        /// The rule broken.
        rule: &'static str,
    },
}

/// Why a directory of this machine cannot become a tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// It, or something in it, cannot be read, or vanished during the scan.
    #[error("scan {}: cannot read it", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what an image can hold.
    #[error("scan {}: {kind}; leave it out of the directory", path.display())]
    Kind {
        /// Where.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// A name, or the target of a symbolic link, is not UTF-8.
    #[error("scan {path:?}: its name or target is not UTF-8; rename it")]
    Name {
        /// Where.
        path: PathBuf,
    },
    /// It cannot be added to the tree.
    #[error(transparent)]
    Tree(#[from] PlanError),
}

/// A source did not deliver the bytes that a plan promised. Travels inside the [`io::Error`] of a plan's reads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source has another length than when the plan was made.
    #[error(
        "read {path:?} for the image: it had {planned} bytes when planned and has {found} now; plan again"
    )]
    LengthChanged {
        /// The path inside the image.
        path: String,
        /// The length planned.
        planned: u64,
        /// The length found.
        found: u64,
    },
    /// The source could not be read.
    #[error("read {path:?} for the image: {length} bytes at {offset}")]
    Read {
        /// The path inside the image.
        path: String,
        /// The offset inside the source.
        offset: u64,
        /// The number of bytes wanted.
        length: usize,
        /// What the source said.
        source: io::Error,
    },
}

impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> io::Error {
        let kind = match &error {
            SourceError::LengthChanged { .. } => io::ErrorKind::InvalidData,
            SourceError::Read { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Why something cannot be read from an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The image breaks a rule of its format.
    #[error("read the image: invalid at byte {offset}: {rule}; make or fetch the image again")]
    Invalid {
        /// Where, in bytes from the start of the image.
        offset: u64,
        /// The rule that does not hold.
        rule: &'static str,
    },
    /// The image may be right but uses something this reader does not know.
    #[error("read the image: unsupported at byte {offset}: {feature}")]
    Unsupported {
        /// Where, in bytes from the start of the image.
        offset: u64,
        /// What is not supported.
        feature: &'static str,
    },
    /// A budget of [`crate::Limits`] was used up.
    #[error("read the image: more than {limit} {what}; raise the limit only for an image you trust")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The path does not exist in the chosen namespace.
    #[error("look up {path:?}: there is no such file or directory in the image")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path names a file where a directory is needed.
    #[error("look up {path:?}: it is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// The path does not name a regular file.
    #[error("open {path:?}: it is not a regular file")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// The file is larger than the caller allows.
    #[error("read {path:?}: it has {length} bytes, {limit} are allowed; open it and read ranges instead")]
    TooLarge {
        /// The path.
        path: String,
        /// The length of the file.
        length: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// The image does not have the namespace asked for.
    #[error("open the image: it has no {namespace} namespace")]
    NoNamespace {
        /// The namespace.
        namespace: crate::Namespace,
    },
    /// The medium failed.
    #[error("read the image: {length} bytes at {offset}")]
    Io {
        /// Where, in bytes from the start of the image.
        offset: u64,
        /// The number of bytes wanted.
        length: usize,
        /// What the source said.
        source: io::Error,
    },
}

impl ReadError {
    /// The error of a read from the medium. A budget that ran out, or a broken file inside the image, travels inside
    /// the [`io::Error`] of the layer that noticed it and comes out here as itself.
    pub(crate) fn io(offset: u64, length: usize, error: io::Error) -> ReadError {
        match error.downcast::<ReadError>() {
            Ok(error) => error,
            Err(source) => ReadError::Io { offset, length, source },
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Io { source, .. } => source,
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}
