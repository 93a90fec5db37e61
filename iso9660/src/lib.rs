//! ISO 9660 images for machines that boot from the network: a deterministic writer and a careful reader.
//!
//! ```text
//!                 Options
//!                    |
//!  Tree  ---------->Plan -----> segments (metadata bytes | zero fill | range of a source)
//!  (names, contents,  |           |-> write_to(any Write), write_to_file(a file)
//!   links; built or   |           `-> read_exact_at(any offset)     (a Plan is itself a ReadAt)
//!   scanned)          |
//!                     |
//!                     `--> the same bytes for the same input, on every machine
//!
//!  ReadAt + files --------> Splice -> Plan      (the original's bytes referenced, the files under /task in every tree)
//!
//!  ReadAt -> Image -> Namespace (UDF > Rock Ridge > Joliet > plain) -> lookup, list, walk, open, extents, boot images
//!
//!  ReadAt -> check -> Report: findings (offset, rule, severity, message) of what no reader would mention
//! ```
//!
//! A [`Tree`] says what is in an image, [`Options`] say how it is labelled and dated. [`Plan::new`] turns both into a
//! layout in which every address is known; nothing is copied and no content is read until somebody asks for bytes (but
//! for a small boot file that gets a table of its own address).
//! An image is therefore never stored: it is streamed, hashed or served by range from its plan.
//!
//! Invariants: memory grows with the metadata, never with the contents; no clock, user, host, locale or directory
//! order reaches the bytes; every limit of the formats is an error that names the path, never a silently different
//! image. Reader and checker treat their input as hostile: no recursion, no allocation from a claimed size, every loop and
//! every call's reading bounded. [`check()`] holds an image to every [`Rule`] of the formats and has nothing to say about
//! images of ours; [`check_names`] finds names in a tree that some reader takes for one.
//!
//! [`Splice::plan`] adds files to an image that exists, for machines that take one medium only: boot records, partition
//! tables and every extent of the original stay valid, and planning reads kilobytes of it.
//!
//! An image may be a disk as well ([`Hybrid`]): then it has the partition tables of [`partition`], and boots from a USB
//! stick as it does from a CD.
//!
//! Not here: writing UDF, policy about who may read what, and anything asynchronous.
//!
//! Specifications: ECMA-119 (ISO 9660), the Joliet Specification, SUSP 1.12 and RRIP 1.12 (Rock Ridge), El Torito 1.0,
//! UEFI 2.10 section 5 (partition tables), ECMA-167 and OSTA UDF 1.02 to 2.60 (read), zisofs (read).
//!
//! ```
//! use iso9660::{Image, Options, Plan, Profile, ReadAt, Tree};
//!
//! let mut tree = Tree::new();
//! tree.add_file("user-data", "#cloud-config\n")?;
//! tree.add_file("meta-data", "instance-id: 1\n")?;
//! let plan = Plan::new(&tree, &Options::new(Profile::Task, "CIDATA", 1_700_000_000))?;
//! assert_eq!(plan.len(), 1 << 20);
//!
//! let image = Image::open(plan)?;
//! assert_eq!(image.volume_id(), "CIDATA");
//! assert_eq!(image.read("user-data", 4096)?, b"#cloud-config\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod ecma119;
mod eltorito;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod image;
mod joliet;
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

pub use check::{CheckOptions, Counts, Finding, NameFinding, Report, Rule, Severity, check, check_names};
pub use ecma119::Hierarchy;
pub use eltorito::{BootMedia, Platform};
pub use error::{PlanError, ReadError, ScanError, SourceError};
pub use image::{
    BootEntry, BootImage, Entry, EntryKind, Extent, FileReader, Image, Limits, Namespace, Volume,
};
pub use options::{BiosBoot, Boot, Depth, Hybrid, JolietNames, Level, Options, Profile, UefiBoot};
pub use plan::{Part, Plan, Segment, SegmentData};
pub use scan::ScannedFile;
pub use source::{FileRange, FileSource, ReadAt, Window};
pub use splice::{Existing, Note, PartitionTable, Splice, SpliceError, SpliceOptions, Spliced};
pub use tree::{Content, Tree};

/// The size of a logical sector and of a logical block: the only one in use, and the only one supported.
pub const SECTOR_SIZE: u64 = 2048;
