//! The plan of an image: all addresses assigned, no content copied.
//!
//! ```text
//! Tree --order.rs--> nodes in byte-wise order --hierarchy.rs--> identifiers, path-table order (primary, Joliet)
//!      --layout.rs--> addresses --emit.rs--> metadata sectors --bytes.rs--> segments, read_exact_at, write_to
//!
//! image:  | system area | descriptors, path tables, directories, continuations, boot catalog | files | zeros, backup |
//!                       '------------------------- metadata, in memory ----------------------'
//! ```
//!
//! Invariants: planning reads only the lengths of contents, except a boot file that gets a boot info table. Memory
//! holds the metadata and a few numbers per file. Gaps between pieces are zeros. Equal trees and options result in
//! equal bytes.

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

/// An image whose bytes are all determined.
pub struct ImagePlan {
    nodes: Nodes,
    metadata: Vec<u8>,
    /// The pieces before the files, in the order of their offsets.
    front: Vec<Piece>,
    /// The files that have their own bytes, in the order of their addresses.
    files: Vec<u32>,
    /// The first sector of every file.
    sectors: Vec<u32>,
    /// The piece after the files.
    back: Option<Piece>,
    /// The boot file with a boot info table, and its content with the table.
    patched: Option<(u32, Content)>,
    len: u64,
}

/// A non-empty range of the image with its bytes.
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

/// The part of an image that a segment belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Sectors 0 to 15: partition tables, if the image has any, and zeros.
    SystemArea,
    /// The volume descriptor of a hierarchy.
    VolumeDescriptor(Hierarchy),
    /// The boot record, which points to the boot catalog.
    BootRecord,
    /// The terminator of the volume descriptors.
    Terminator,
    /// A little-endian path table.
    PathTableL(Hierarchy),
    /// A big-endian path table.
    PathTableM(Hierarchy),
    /// A directory, by its number in the path table.
    Directory(Hierarchy, u32),
    /// A continuation area: Rock Ridge entries that did not fit in their records.
    Continuation,
    /// The El Torito boot catalog.
    BootCatalog,
    /// The content of a file, by its number: see [`ImagePlan::file_path`].
    File(usize),
    /// Bytes of the original image of a splice.
    Original,
    /// Zeros up to the end of a sector or of the image.
    Padding,
    /// The backup of a GPT.
    BackupPartitionTable,
}

impl ImagePlan {
    /// Plans the image of a tree.
    ///
    /// # Errors
    /// [`PlanError`] when the formats cannot represent the tree or the options; the error names the path.
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

    /// Returns the length of the image in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an image always has descriptors")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns the path of a [`Part::File`], if a file has this number.
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
