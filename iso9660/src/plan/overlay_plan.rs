//! A plan whose pieces the splice has laid out.
//!
//! ```text
//! front:  source | bytes | (zeros) | bytes | source ...   files:  file | file ...   back:  bytes      gaps are zeros
//! ```

use std::sync::Arc;

use crate::error::PlanError;
use crate::source::ReadAt;
use crate::tree::Tree;

use super::order::{Child, Nodes};
use super::{Body, ImagePlan, Part, Piece};

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

    fn keep(self, metadata: &mut Vec<u8>) -> Piece {
        let body = match self.body {
            NewBody::Bytes(bytes) => {
                let start = metadata.len();
                metadata.extend_from_slice(&bytes);
                Body::Metadata(start..metadata.len())
            }
            NewBody::Source(source) => Body::Source(source),
        };
        Piece { offset: self.offset, part: self.part, body }
    }
}

impl ImagePlan {
    /// Returns the plan of an image of `len` bytes: non-empty pieces in the order of their offsets, then the files of a
    /// tree in the sectors that `place` returns for their paths, then optionally one more piece.
    pub(crate) fn assembled(
        tree: &Tree,
        front: Vec<NewPiece>,
        place: impl Fn(&str) -> u32,
        back: Option<NewPiece>,
        len: u64,
    ) -> Result<ImagePlan, PlanError> {
        let nodes = Nodes::new(tree)?;
        let mut metadata = Vec::new();
        let front: Vec<Piece> = front.into_iter().map(|piece| piece.keep(&mut metadata)).collect();
        let back = back.map(|piece| piece.keep(&mut metadata));
        debug_assert!(front.windows(2).all(|pair| pair[0].offset < pair[1].offset));
        let all = (0..).take(nodes.files.len());
        let sectors: Vec<u32> = all.clone().map(|file| place(&nodes.path(Child::File(file)))).collect();
        let mut files: Vec<u32> = all.filter(|file| nodes.files[*file as usize].len > 0).collect();
        files.sort_by_key(|file| sectors[*file as usize]);
        Ok(ImagePlan { nodes, metadata, front, files, sectors, back, patched: None, len })
    }
}
