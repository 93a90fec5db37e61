//! The plan of an image: every address known, nothing copied.
//!
//! ```text
//! Tree --order.rs--> nodes in byte-wise order --hierarchy.rs--> identifiers, path-table order (primary, Joliet)
//!      --layout.rs--> addresses --emit.rs--> metadata sectors --bytes.rs--> segments, read_exact_at, write_to
//!
//! image:  | system area | descriptors, path tables, directories, continuations, boot catalog | files | zeros, backup |
//!                       '------------------------- metadata, in memory ----------------------'
//! ```
//!
//! Invariants: planning reads no content, only lengths, but for a boot file that gets a table; what is in memory is the
//! metadata and a few numbers per file; gaps between pieces are zeros; the same tree and options give the same bytes.

mod boot;
mod bytes;
mod emit;
mod hierarchy;
mod hybrid;
mod layout;
mod order;
mod overlay_plan;

use std::ops::Range;
use std::sync::Arc;

use crate::ecma119::Hierarchy;
use crate::error::PlanError;
use crate::options::ImageOptions;
use crate::source::ReadAt;
use crate::tree::{Content, Tree};

use order::{Child, Nodes};

pub use bytes::{Segment, SegmentData};
pub(crate) use overlay_plan::NewPiece;

/// An image of which every byte is decided.
pub struct ImagePlan {
    nodes: Nodes,
    metadata: Vec<u8>,
    /// What comes before the files, in the order of its offsets.
    front: Vec<Piece>,
    /// The files that have bytes of their own, in the order of their addresses.
    files: Vec<u32>,
    /// The first sector of every file.
    sectors: Vec<u32>,
    /// What comes after the files.
    back: Option<Piece>,
    /// The file that has a boot info table, with its content.
    patched: Option<(u32, Content)>,
    len: u64,
}

/// Bytes at a place in the image, never none.
struct Piece {
    offset: u64,
    part: Part,
    body: Body,
}

enum Body {
    /// A range of `ImagePlan::metadata`.
    Metadata(Range<usize>),
    /// All bytes of a source.
    Source(Arc<dyn ReadAt>),
}

/// What a segment of an image is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Sectors 0 to 15: partition tables, if any, and zeros.
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
    /// The content of a file, by its number: see [`ImagePlan::file_path`].
    File(usize),
    /// Bytes of the image that a splice adds to.
    Original,
    /// Zeros to the end of a sector or of the image.
    Padding,
    /// The second copy of a GPT.
    BackupPartitionTable,
}

impl ImagePlan {
    /// Plans the image of a tree.
    ///
    /// # Errors
    /// When the tree or the options ask for something the formats cannot hold; the error names the path.
    pub fn new(tree: &Tree, options: &ImageOptions) -> Result<ImagePlan, PlanError> {
        let nodes = Nodes::new(tree)?;
        let boot = boot::boot_files(&nodes, options)?;
        hybrid::check(options, &boot)?;
        let layout = layout::Layout::new(&nodes, options, &boot)?;
        let patched = boot::with_info_table(&nodes, &boot, &layout.files)?;
        let (mut metadata, mut front) = emit::emit(&nodes, options, &layout)?;
        let len = u64::from(layout.sectors) * crate::SECTOR_SIZE;
        let mut back = None;
        if let Some(hybrid) = &options.hybrid {
            let (start, end) = hybrid::tables(hybrid, &nodes, &layout, &boot, &metadata);
            let mut keep = |bytes: Vec<u8>| {
                let before = metadata.len();
                metadata.extend_from_slice(&bytes);
                Body::Metadata(before..metadata.len())
            };
            front.insert(0, Piece { offset: 0, part: Part::SystemArea, body: keep(start) });
            if !end.is_empty() {
                let (offset, part) = (len - end.len() as u64, Part::BackupPartitionTable);
                back = Some(Piece { offset, part, body: keep(end) });
            }
        }
        let has_bytes = |file: &u32| nodes.owner(*file) == *file && nodes.files[*file as usize].len > 0;
        let files = (0..).take(nodes.files.len()).filter(has_bytes).collect();
        let patched = patched.map(|(file, bytes)| (file, Content::from(bytes)));
        Ok(ImagePlan { nodes, metadata, front, files, sectors: layout.files, back, patched, len })
    }

    /// The length of the image in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an image always has descriptors")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The path of a [`Part::File`], if there is one with this number.
    pub fn file_path(&self, number: usize) -> Option<String> {
        let number =
            u32::try_from(number).ok().filter(|number| (*number as usize) < self.nodes.files.len())?;
        Some(self.nodes.path(Child::File(number)))
    }

    fn content(&self, file: u32) -> &Content {
        match &self.patched {
            Some((patched, content)) if self.nodes.owner(*patched) == file => content,
            _ => self.nodes.content(file),
        }
    }
}

impl std::fmt::Debug for ImagePlan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ImagePlan")
            .field("len", &self.len)
            .field("directories", &self.nodes.directories.len())
            .field("files", &self.nodes.files.len())
            .finish_non_exhaustive()
    }
}
