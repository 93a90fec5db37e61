//! The plan of an image: every address known, nothing copied.
//!
//! ```text
//! Tree --order.rs--> nodes in byte-wise order --hierarchy.rs--> identifiers, path-table order (primary, Joliet)
//!      --layout.rs--> addresses --emit.rs--> metadata sectors --bytes.rs--> segments, read_exact_at, write_to
//!
//! image:  | 16 zero sectors | descriptors, path tables, directories, continuations, boot catalog | files | zeros |
//!                           '------------------------- metadata, in memory ----------------------'
//! ```
//!
//! Invariants: planning reads no content, only lengths; what is in memory is the metadata and one small piece per
//! file; gaps between pieces are zeros; the same tree and options give the same bytes.

mod assembled;
mod bytes;
mod emit;
mod hierarchy;
mod layout;
mod order;

use std::ops::Range;
use std::sync::Arc;

use crate::ecma119::Hierarchy;
use crate::error::PlanError;
use crate::options::Options;
use crate::source::ReadAt;
use crate::tree::{Content, Tree};

use order::Nodes;

pub(crate) use assembled::NewPiece;
pub use bytes::{Segment, SegmentData};

/// An image of which every byte is decided.
pub struct Plan {
    nodes: Nodes,
    metadata: Vec<u8>,
    /// Without overlap, in the order of their offsets, none empty.
    pieces: Vec<Piece>,
    len: u64,
}

/// Bytes at a place in the image.
struct Piece {
    offset: u64,
    len: u64,
    part: Part,
    body: Body,
}

enum Body {
    /// A range of `Plan::metadata`.
    Metadata(Range<usize>),
    /// The content of a file: an index into `Nodes::files`.
    File(usize),
    /// All bytes of a source.
    Source(Arc<dyn ReadAt>),
}

/// What a segment of an image is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Sectors 0 to 15.
    SystemArea,
    /// The descriptor of a hierarchy.
    VolumeDescriptor(Hierarchy),
    /// The descriptor that leads to the boot catalog.
    BootRecord,
    /// The end of the descriptors.
    Terminator,
    /// A little-endian path table.
    PathTableL(Hierarchy),
    /// A big-endian path table.
    PathTableM(Hierarchy),
    /// A directory, by its number in the path table.
    Directory(Hierarchy, u32),
    /// Rock Ridge entries that did not fit into their records.
    Continuation,
    /// What firmware can boot.
    BootCatalog,
    /// The content of a file, by its number: see [`Plan::file_path`].
    File(usize),
    /// Bytes of the image that a splice adds to.
    Original,
    /// The backup of a GUID Partition Table.
    BackupGpt,
    /// Zeros to the end of a sector or of the image.
    Padding,
}

impl Plan {
    /// Plans the image of a tree.
    ///
    /// # Errors
    /// When the tree or the options ask for something the formats cannot hold; the error names the path.
    pub fn new(tree: &Tree, options: &Options) -> Result<Plan, PlanError> {
        let nodes = Nodes::new(tree);
        let layout = layout::Layout::new(&nodes, options)?;
        let (metadata, pieces) = emit::emit(&nodes, options, &layout);
        Ok(Plan { nodes, metadata, pieces, len: u64::from(layout.sectors) * crate::SECTOR_SIZE })
    }

    /// The length of the image in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an image always has descriptors")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The path of a [`Part::File`], if there is one with this number.
    pub fn file_path(&self, number: usize) -> Option<String> {
        (number < self.nodes.files.len()).then(|| self.nodes.file_path(number))
    }

    fn content(&self, file: usize) -> &Content {
        &self.nodes.files[file].content
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Plan")
            .field("len", &self.len)
            .field("directories", &self.nodes.directories.len())
            .field("files", &self.nodes.files.len())
            .finish_non_exhaustive()
    }
}
