//! ISO 9660 images for machines that boot from the network: a deterministic writer, a reader and a checker.
//!
//! ```text
//!                 ImageOptions
//!                    |
//!  Tree  ---------->ImagePlan -----> segments (metadata bytes | zero fill | range of a source)
//!  (names, contents,  |                |-> write_to(any Write), write_to_file(a file)
//!   links; built or   |                `-> read_exact_at(any offset)     (ImagePlan implements ReadAt)
//!   scanned)          |
//!                     |
//!                     `--> identical bytes for identical input, on every machine
//!
//!  ReadAt + files --------> Splice -> ImagePlan (references the original's bytes; files in /task of every tree)
//!
//!  ReadAt -> Image -> Namespace (UDF > Rock Ridge > Joliet > plain) -> lookup, list, walk, open, extents, boot images
//!
//!  Image::extract -> a directory of the host: nothing outside of it, nothing overwritten
//!
//!  ReadAt -> check -> CheckReport: findings (offset, rule, severity, message) that readers do not report
//! ```
//!
//! A [`Tree`] holds the files, directories and links of an image; [`ImageOptions`] hold its label, date and boot
//! images. [`ImagePlan::new`] turns both into a layout in which every address is known. Planning copies nothing and
//! reads no file content, except a small boot file that gets a boot info table. An image therefore need not be stored:
//! a program streams it, hashes it or serves ranges of it from its plan.
//!
//! Invariants: memory grows with the metadata, never with the contents. No clock, user, host, locale or directory order
//! affects the bytes. A limit of a format is an error that names the path, never a silently different image. Reader and
//! checker treat their input as hostile: no recursion, no allocation from a claimed size, and a bound on every loop and
//! on the bytes that a call reads. [`check()`] tests an image against every [`Rule`] of the formats and finds nothing
//! in images that this crate writes; [`check_names`] finds names in a tree that some readers do not distinguish.
//!
//! [`Image::extract`] writes the files of an image to a directory. It never leaves that directory, whatever names and links
//! a hostile image has, and reports what it cannot extract instead of ending half way. Names that are not text are escaped
//! reversibly ([`escape_name`]), so every entry of an image can be shown and found.
//!
//! [`Splice::plan`] adds files to an existing image, for machines that accept only one medium: boot records, partition
//! tables and every extent of the original stay valid, and planning reads only kilobytes of it.
//!
//! A hybrid image ([`Hybrid`]) is a disk image too: it has the partition tables of [`partition`] and boots from a USB
//! stick as well as from a CD.
//!
//! Not supported: writing UDF, access policy, asynchronous interfaces.
//!
//! Specifications: ECMA-119 (ISO 9660), the Joliet Specification, SUSP 1.12 and RRIP 1.12 (Rock Ridge), El Torito 1.0,
//! UEFI 2.10 section 5 (partition tables), ECMA-167 and OSTA UDF 1.02 to 2.60 (read), zisofs (read).
//!
//! ```
//! use iso9660::{Image, ImageOptions, ImagePlan, Profile, ReadAt, Tree};
//!
//! let mut tree = Tree::new();
//! tree.add_file("user-data", "#cloud-config\n")?;
//! tree.add_file("meta-data", "instance-id: 1\n")?;
//! let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "CIDATA", 1_700_000_000))?;
//! assert_eq!(plan.len(), 1 << 20);
//!
//! let image = Image::open(plan)?;
//! assert_eq!(image.volume_id(), "CIDATA");
//! assert_eq!(image.read("user-data", 4096)?, b"#cloud-config\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

/// The examples of the README, which run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Defines the `with_` methods of an options type.
macro_rules! setters {
    ($($setter:ident $field:ident: $type:ty;)*) => {$(
        #[doc = concat!("Returns the options with another value of [`Self::", stringify!($field), "`].")]
        #[must_use]
        pub fn $setter(mut self, $field: $type) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}

mod check;
mod ecma119;
mod eltorito;
mod error;
mod escape;
mod extract;
#[doc(hidden)]
pub mod fuzz;
mod image;
mod joliet;
mod kernel_copy;
mod options;
pub mod partition;
mod plan;
mod rockridge;
mod runs;
mod scan;
mod source;
mod splice;
mod tree;
mod udf;
mod zisofs;

pub use check::{
    CheckOptions, CheckReport, Counts, Finding, NameFinding, Rule, Severity, check, check_names,
};
pub use ecma119::Hierarchy;
pub use eltorito::{BootMedia, Platform};
pub use error::{ContentError, ExtractError, PlanError, ReadError, ScanError, SkipReason};
pub use escape::escape_name;
pub use extract::{ExtractEvent, ExtractOptions, Extracted};
pub use image::{
    BootCatalog, BootEntry, BootImage, Entry, EntryKind, Extent, FileReader, Image, Namespace, ReadLimits,
    Volume,
};
pub use options::{
    BiosBoot, Boot, DeepDirectories, Hybrid, ImageOptions, InterchangeLevel, JolietNames, Profile, UefiBoot,
};
pub use plan::{ImagePlan, Part, Segment, SegmentData};
pub use scan::ScannedFile;
pub use source::{FileRange, FileSource, ReadAt, SourceCursor, Window};
pub use splice::{
    ExistingDirectory, PartitionTable, Splice, SpliceError, SpliceNote, SpliceOptions, Spliced,
};
pub use tree::{Content, Tree};

/// The size of a logical sector and of a logical block in bytes. Other sizes are not in use and not supported.
pub const SECTOR_SIZE: u64 = 2048;
