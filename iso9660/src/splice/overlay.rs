//! The changes of the original's bytes: most are referenced, some are replaced, some are zeroed.
//!
//! ```text
//! original   |------------------------------------------------------------------------------|
//! cuts           [bytes]        [zeros][bytes]             [bytes]
//! pieces     |src|bytes|  src   |      |bytes|     src     |bytes|            src           | appended ...
//! ```
//!
//! Invariants: cuts are inside the original and do not overlap. Protected sectors are never zeroed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::SECTOR_SIZE;
use crate::plan::{NewPiece, Part};
use crate::source::{ReadAt, Window};

use super::error::SpliceError;

enum Cut {
    Bytes(Vec<u8>, Part),
    Zeros(u64),
}

impl Cut {
    fn len(&self) -> u64 {
        match self {
            Cut::Bytes(bytes, _) => bytes.len() as u64,
            Cut::Zeros(len) => *len,
        }
    }
}

/// Returns an overlay without changes, for an original of `len` bytes.
pub(crate) struct Overlay {
    len: u64,
    cuts: BTreeMap<u64, Cut>,
    /// The offsets of protected sectors.
    protected: Vec<u64>,
}

impl Overlay {
    pub(crate) fn new(len: u64) -> Overlay {
        Overlay { len, cuts: BTreeMap::new(), protected: Vec::new() }
    }

    /// Protects the sector at byte `offset` from zeroing.
    pub(crate) fn protect(&mut self, offset: u64) {
        self.protected.push(offset);
    }

    /// Replaces bytes.
    pub(crate) fn replace(&mut self, offset: u64, bytes: Vec<u8>, part: Part) -> Result<(), SpliceError> {
        self.insert(offset, Cut::Bytes(bytes, part))
    }

    /// Returns the bytes that already replace those at `offset`, for further changes.
    pub(crate) fn replaced(&mut self, offset: u64) -> Option<&mut Vec<u8>> {
        match self.cuts.get_mut(&offset) {
            Some(Cut::Bytes(bytes, _)) => Some(bytes),
            _ => None,
        }
    }

    /// Zeroes a range except its protected sectors. Ranges may be zeroed twice.
    pub(crate) fn zero(&mut self, offset: u64, len: u64) -> Result<(), SpliceError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or(SpliceError::Overlap { offset })?;
        let mut at = offset;
        while at < end {
            let sector = at / SECTOR_SIZE * SECTOR_SIZE;
            let mut stop = end.min(sector + SECTOR_SIZE);
            let zeroed = match self.cuts.range(..=at).next_back() {
                Some((start, Cut::Zeros(len))) => (*start + *len).saturating_sub(at),
                _ => 0,
            };
            if zeroed > 0 {
                stop = at + zeroed;
            } else if !self.protected.contains(&sector) {
                if let Some((start, Cut::Zeros(_))) = self.cuts.range(at..stop).next() {
                    stop = *start;
                }
                self.insert(at, Cut::Zeros(stop - at))?;
            }
            at = stop;
        }
        Ok(())
    }

    fn insert(&mut self, offset: u64, cut: Cut) -> Result<(), SpliceError> {
        let end = offset.checked_add(cut.len()).filter(|end| *end <= self.len);
        let end = end.ok_or(SpliceError::Overlap { offset })?;
        let before = self.cuts.range(..offset).next_back().map_or(0, |(start, cut)| start + cut.len());
        let after = self.cuts.range(offset..).next().map_or(self.len, |(start, _)| *start);
        if before > offset || after < end {
            return Err(SpliceError::Overlap { offset });
        }
        if cut.len() > 0 {
            self.cuts.insert(offset, cut);
        }
        Ok(())
    }

    /// Returns the number of zeroed bytes.
    pub(crate) fn zeroed(&self) -> u64 {
        self.cuts.values().map(|cut| if matches!(cut, Cut::Zeros(_)) { cut.len() } else { 0 }).sum()
    }

    /// Returns the pieces of the original's part of the new image, in order. Bytes that no piece covers are zeros.
    pub(crate) fn pieces(self, source: &Arc<dyn ReadAt>) -> std::io::Result<Vec<NewPiece>> {
        let mut pieces = Vec::with_capacity(self.cuts.len() * 2 + 1);
        let mut at = 0;
        let reference = |pieces: &mut Vec<NewPiece>, from: u64, to: u64| {
            if to > from {
                let window: Arc<dyn ReadAt> = Arc::new(Window::new(Arc::clone(source), from, to - from)?);
                pieces.push(NewPiece::source(from, Part::Original, window));
            }
            Ok::<(), std::io::Error>(())
        };
        for (offset, cut) in self.cuts {
            reference(&mut pieces, at, offset)?;
            at = offset + cut.len();
            if let Cut::Bytes(bytes, part) = cut {
                pieces.push(NewPiece::bytes(offset, part, bytes));
            }
        }
        reference(&mut pieces, at, self.len)?;
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_never_overlap_and_zeroing_twice_is_zeroing_once() {
        let mut overlay = Overlay::new(10 * SECTOR_SIZE);
        overlay.protect(3 * SECTOR_SIZE);
        overlay.replace(4096, vec![1; 2048], Part::Terminator).unwrap();
        overlay.zero(3 * SECTOR_SIZE, 2 * SECTOR_SIZE).unwrap();
        overlay.zero(3 * SECTOR_SIZE, 2 * SECTOR_SIZE).unwrap();
        assert_eq!(overlay.zeroed(), 2048);
        let overlapping = |result| assert!(matches!(result, Err(SpliceError::Overlap { .. })));
        overlay.zero(100, 20).unwrap();
        overlay.zero(90, 50).unwrap();
        assert_eq!(overlay.zeroed(), 2048 + 50);
        overlapping(overlay.zero(4000, 200));
        overlapping(overlay.zero(4096, 10));
        overlapping(overlay.replace(4097, vec![0; 1], Part::Terminator));
        overlapping(overlay.replace(u64::MAX, vec![0; 2], Part::Terminator));
        overlapping(overlay.zero(9 * SECTOR_SIZE, 2049));
        overlay.replaced(4096).unwrap()[0] = 9;
        let source: Arc<dyn ReadAt> = Arc::new(vec![7; 10 * 2048]);
        let ranges: Vec<(u64, u64)> =
            overlay.pieces(&source).unwrap().iter().map(|piece| (piece.offset, piece.len())).collect();
        assert_eq!(ranges, [(0, 90), (140, 3860), (4096, 2048), (6144, 2048), (10240, 10240)]);
    }
}
