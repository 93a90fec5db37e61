//! A plan of pieces that somebody else laid out: the splice.
//!
//! ```text
//! pieces in order:  source | bytes | (zeros) | bytes | source | ... | file | file       no overlap; gaps are zeros
//! ```

use std::sync::Arc;

use crate::source::ReadAt;
use crate::tree::Tree;

use super::order::Nodes;
use super::{Body, Part, Piece, Plan};

/// A piece of an image.
pub(crate) struct NewPiece {
    pub(crate) offset: u64,
    part: Part,
    body: NewBody,
}

enum NewBody {
    Bytes(Vec<u8>),
    Source(Arc<dyn ReadAt>),
}

impl NewPiece {
    pub(crate) fn bytes(offset: u64, part: Part, bytes: Vec<u8>) -> NewPiece {
        NewPiece { offset, part, body: NewBody::Bytes(bytes) }
    }

    pub(crate) fn source(offset: u64, part: Part, source: Arc<dyn ReadAt>) -> NewPiece {
        NewPiece { offset, part, body: NewBody::Source(source) }
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.body {
            NewBody::Bytes(bytes) => bytes.len() as u64,
            NewBody::Source(source) => source.len(),
        }
    }
}

impl Plan {
    /// The plan of an image of `len` bytes that has these pieces, in the order of their offsets, and the files of a tree,
    /// which come after them at the offsets that `place` says for their paths.
    pub(crate) fn assembled(
        tree: &Tree,
        pieces: Vec<NewPiece>,
        place: impl Fn(&str) -> Option<u64>,
        len: u64,
    ) -> Plan {
        let nodes = Nodes::new(tree);
        let mut metadata = Vec::new();
        let mut laid: Vec<Piece> = Vec::with_capacity(pieces.len() + nodes.files.len());
        for piece in pieces {
            let (offset, len, part) = (piece.offset, piece.len(), piece.part);
            let body = match piece.body {
                NewBody::Bytes(bytes) => {
                    let start = metadata.len();
                    metadata.extend_from_slice(&bytes);
                    Body::Metadata(start..metadata.len())
                }
                NewBody::Source(source) => Body::Source(source),
            };
            laid.push(Piece { offset, len, part, body });
        }
        let files = (0..nodes.files.len()).filter_map(|file| {
            let (offset, len) = (place(&nodes.file_path(file))?, nodes.files[file].len);
            (len > 0).then_some(Piece { offset, len, part: Part::File(file), body: Body::File(file) })
        });
        laid.extend(files);
        laid.sort_by_key(|piece| piece.offset);
        debug_assert!(laid.windows(2).all(|pair| pair[0].offset + pair[0].len <= pair[1].offset));
        Plan { nodes, metadata, pieces: laid, len }
    }
}
