//! Errors: the operation, the reason, and what to do.
//!
//! ```text
//! Tree::add_*, ImagePlan::new   -> PlanError     the input cannot become an image (names the path and the limit)
//! Tree::graft                   -> ScanError     a directory of the host cannot become a tree
//! reads and writes of a plan    -> ContentError  a source failed or changed (inside the io::Error)
//! Image                         -> ReadError     Invalid (offset, rule) | Unsupported | Limit | caller's path | Io
//! ```

use std::io;
use std::path::PathBuf;

/// The reason why a tree with its options cannot become an image.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A path given to the tree is not a path inside an image.
    #[error("add {path:?} to the tree: {rule}")]
    Path {
        /// The path that the caller passed.
        path: String,
        /// The rule that the path breaks, with a remedy.
        rule: &'static str,
    },
    /// A path was added twice.
    #[error("add {path:?} to the tree: the tree has it already; add every path once")]
    Duplicate {
        /// The path.
        path: String,
    },
    /// A path goes through a file or a symbolic link.
    #[error("add {path:?} to the tree: {file:?} is not a directory; rename one of them")]
    BelowFile {
        /// The path.
        path: String,
        /// The part of the path that is a file or a symbolic link.
        file: String,
    },
    /// The existing path of a hard link is not a file of the tree.
    #[error("link to {path:?} in the tree: there is no such file; add it first")]
    NoSuchFile {
        /// The existing path, which is not a file.
        path: String,
    },
    /// A name is longer than a namespace can hold.
    #[error("plan {path:?}: its name has {length} {unit}, {namespace} holds {limit}; shorten it")]
    NameTooLong {
        /// The path.
        path: String,
        /// The namespace: `Joliet`, `Rock Ridge` or `ISO 9660:1999`.
        namespace: &'static str,
        /// The length of the name.
        length: usize,
        /// The longest name of the namespace.
        limit: usize,
        /// The unit of both lengths.
        unit: &'static str,
    },
    /// A name has a character that Joliet cannot represent.
    #[error(
        "plan {path:?}: Joliet cannot represent the character {character:?}; rename the file or disable Joliet"
    )]
    OutsideJoliet {
        /// The path.
        path: String,
        /// The character.
        character: char,
    },
    /// Two names in a directory differ in case only, which strict Joliet does not allow.
    #[error("plan {path:?}: it differs from {other:?} in case only; rename one or allow long Joliet names")]
    SameInJoliet {
        /// The path.
        path: String,
        /// The path that was found first.
        other: String,
    },
    /// A path is longer than strict Joliet allows.
    #[error(
        "plan {path:?}: it has {length} characters, strict Joliet allows {limit}; allow long Joliet names"
    )]
    JolietPathTooLong {
        /// The path.
        path: String,
        /// The length of the path in characters.
        length: usize,
        /// The longest path.
        limit: usize,
    },
    /// The tree has a symbolic link, but Rock Ridge is disabled.
    #[error("plan {path:?}: only Rock Ridge can represent a symbolic link; enable it or remove the link")]
    SymlinkWithoutRockRidge {
        /// The path of the link.
        path: String,
    },
    /// A directory is below the deepest level (ECMA-119 6.8.2.1).
    #[error(
        "plan {path:?}: it is on level {level} of directories, ISO 9660 allows {limit}; flatten the tree, or \
         relocate deep directories with Rock Ridge"
    )]
    TooDeep {
        /// The path of the directory.
        path: String,
        /// The level of the directory; the root is level 1.
        level: usize,
        /// The deepest allowed level.
        limit: usize,
    },
    /// The tree has a directory with the name of the relocation directory.
    #[error("plan {path:?}: this name is reserved for relocated deep directories; rename it")]
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
        /// The length of the path in bytes.
        length: usize,
        /// The longest path.
        limit: usize,
    },
    /// The tree has more directories than the 16-bit parent numbers of a path table can address.
    #[error(
        "plan the path tables: the tree has {count} directories, at most {limit} are allowed; merge some"
    )]
    TooManyDirectories {
        /// The number of directories, including the root.
        count: usize,
        /// The largest number of directories.
        limit: usize,
    },
    /// The image would need more than 2^32 sectors, or a directory more than 2^32 bytes.
    #[error("plan {path:?}: the image would pass 2^32 sectors, the limit of its 32-bit addresses; split it")]
    TooLarge {
        /// The path at which the limit was passed.
        path: String,
    },
    /// A file is longer than an interchange level below 3 allows.
    #[error(
        "plan {path:?}: its {length} bytes need several sections, which levels 1 and 2 do not allow; use level 3"
    )]
    NeedsLevelThree {
        /// The path.
        path: String,
        /// The length of the file.
        length: u64,
    },
    /// A text field of the volume descriptors cannot hold the value.
    #[error("plan the volume descriptors: {field} {value:?}: {rule}")]
    Text {
        /// The name of the option.
        field: &'static str,
        /// The value of the option.
        value: String,
        /// The rule that the value breaks.
        rule: &'static str,
    },
    /// The epoch is outside the years that a directory record can represent.
    #[error(
        "plan the dates: epoch {epoch} is outside the years 1900 to 2155 that a directory record can represent"
    )]
    Epoch {
        /// Seconds since 1970, UTC.
        epoch: i64,
    },
    /// The boot options conflict with the profile or with the tree.
    #[error("plan the boot catalog: {path:?}: {rule}")]
    Boot {
        /// The path of the boot file; empty when the options name none.
        path: String,
        /// The rule that the options break.
        rule: &'static str,
    },
    /// The BIOS boot file could not be read to compute its boot info table.
    #[error("plan the boot info table of {path:?}: {reason}")]
    BootFile {
        /// The path of the boot file.
        path: String,
        /// The error text of the source.
        reason: String,
    },
    /// The options of the hybrid image conflict, or the boot code is too long.
    #[error("plan the partition tables: {rule}")]
    Hybrid {
        /// The rule that the options break.
        rule: &'static str,
    },
}

/// The reason why a directory of the host cannot become a tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// A directory or file could not be read, or vanished during the scan.
    #[error("scan {}: cannot read it", path.display())]
    Read {
        /// The path on the host.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path is of a file type that an image cannot hold.
    #[error("scan {}: it is {found}; remove it from the directory", path.display())]
    FileType {
        /// The path on the host.
        path: PathBuf,
        /// The file type found.
        found: &'static str,
    },
    /// A name, or the target of a symbolic link, is not UTF-8.
    #[error("scan {path:?}: its name or its target is not UTF-8; rename it")]
    Name {
        /// The path on the host.
        path: PathBuf,
    },
    /// The entry cannot be added to the tree.
    #[error(transparent)]
    Tree(#[from] PlanError),
}

/// A source did not deliver the bytes that the plan expects. This error is inside the [`io::Error`] of a plan's reads.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// The length of the source has changed since planning.
    #[error(
        "read {path:?} for the image: it had {planned} bytes at planning and has {found} now; plan again"
    )]
    LengthChanged {
        /// The path inside the image.
        path: String,
        /// The length at planning.
        planned: u64,
        /// The length at reading.
        found: u64,
    },
    /// The source could not be read.
    #[error("read {path:?} for the image: cannot read {length} bytes at offset {offset}")]
    Read {
        /// The path inside the image.
        path: String,
        /// The offset inside the source.
        offset: u64,
        /// The number of requested bytes.
        length: usize,
        /// The error of the source.
        source: io::Error,
    },
}

impl From<ContentError> for io::Error {
    fn from(error: ContentError) -> io::Error {
        let kind = match &error {
            ContentError::LengthChanged { .. } => io::ErrorKind::InvalidData,
            ContentError::Read { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// The reason why an image, or something in it, cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The image breaks a rule of its format.
    #[error("the image breaks a rule at byte {offset}: {rule}; create or download the image again")]
    Invalid {
        /// The offset in bytes from the start of the image.
        offset: u64,
        /// The rule that the image breaks.
        rule: &'static str,
    },
    /// The image uses a feature that this reader does not support; it may be correct.
    #[error("read the image: unsupported at byte {offset}: {feature}")]
    Unsupported {
        /// The offset in bytes from the start of the image.
        offset: u64,
        /// The unsupported feature.
        feature: &'static str,
    },
    /// A budget of [`crate::ReadLimits`] is exhausted.
    #[error("read the image: more than {limit} {what}; raise the limit only for an image you trust")]
    Limit {
        /// The counted unit.
        what: &'static str,
        /// The limit of the budget.
        limit: u64,
    },
    /// The path does not exist in the chosen namespace.
    #[error("look up {path:?}: there is no such file or directory in the image")]
    NotFound {
        /// The path.
        path: String,
    },
    /// The path names a file, but the operation requires a directory.
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
    /// The file is longer than the caller allows.
    #[error("read {path:?}: it has {length} bytes, {limit} are allowed; open it and read ranges instead")]
    TooLarge {
        /// The path.
        path: String,
        /// The length of the file.
        length: u64,
        /// The caller's limit.
        limit: u64,
    },
    /// The image does not have the requested namespace.
    #[error("open the image: it has no {namespace} namespace")]
    NoNamespace {
        /// The requested namespace.
        namespace: crate::Namespace,
    },
    /// The medium failed.
    #[error("read the image: cannot read {length} bytes at offset {offset}")]
    Io {
        /// The offset in bytes from the start of the image.
        offset: u64,
        /// The number of requested bytes.
        length: usize,
        /// The error of the source.
        source: io::Error,
    },
}

impl ReadError {
    /// Converts the error of a read from the medium. An exhausted budget and a broken file inside the image arrive as a
    /// [`ReadError`] inside the [`io::Error`]; this function unwraps them.
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

/// The reason why an extraction ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The path does not exist in the image, or the image cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The files do not fit: the file system has too little space, or the options allow fewer bytes.
    #[error(
        "extract to {}: the files need {needed} bytes and only {available} are available; extract to another disk, or \
         fewer files",
        directory.display()
    )]
    Space {
        /// The output directory.
        directory: PathBuf,
        /// The sum of the lengths of all files.
        needed: u64,
        /// The free or allowed bytes.
        available: u64,
    },
    /// The host refused to create or write a file.
    #[error("extract to {}: {source}; what was extracted before is complete", path.display())]
    Write {
        /// The path on the host.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The reason why one entry is not extracted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// The entry is a device, a pipe or a socket.
    #[error("it is not a file, directory or link")]
    FileType,
    /// The entry is a link, and the options exclude links.
    #[error("links are not extracted")]
    Unwanted,
    /// A file of this name exists: the image has the name twice, or the directory had it before.
    #[error("a file of this name exists and is not overwritten; extract to an empty directory")]
    Exists,
    /// The file system does not allow the name.
    #[error("the file system does not allow its name")]
    Name,
    /// The target of the link is empty or has a zero byte.
    #[error("the target of the link is empty or has a zero byte")]
    Target,
    /// The directory of the entry was not extracted, or is a link.
    #[error("its directory was not extracted")]
    Directory,
    /// The entry cannot be read from the image.
    #[error("{0}")]
    Unreadable(ReadError),
}
