//! The bytes of a file as a list of runs: ranges of an image, and holes.
//!
//! ```text
//! file    0 ...... 10 ... 14 ............ 20          image  ..[run 0]......[run 2].....
//!         | run 0  | hole | run 2         |
//! ```
//!
//! Invariants: no run is empty; adjacent runs that continue each other are one run; the sum of the lengths does not
//! overflow.

use std::io;

use crate::source::{ReadAt, past_end};

/// A run of bytes: a range of an image, or a hole that reads as zeros.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    /// The offset in the image; `None` for a hole.
    pub(crate) offset: Option<u64>,
    pub(crate) len: u64,
}

/// A list of runs in the order of the file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    /// The position in the file where each run ends.
    ends: Vec<u64>,
}

impl Runs {
    /// Adds a run at the end. Returns false and adds nothing when the total length would overflow.
    pub(crate) fn push(&mut self, run: Run) -> bool {
        let len = self.len();
        let Some(end) = len.checked_add(run.len) else { return false };
        if run.len == 0 {
            return true;
        }
        if let (Some(last), Some(last_end)) = (self.runs.last_mut(), self.ends.last_mut()) {
            let continues = match (last.offset, run.offset) {
                (Some(before), Some(offset)) => before.checked_add(last.len) == Some(offset),
                (None, None) => true,
                _ => false,
            };
            if continues {
                (last.len, *last_end) = (last.len + run.len, end);
                return true;
            }
        }
        self.runs.push(run);
        self.ends.push(end);
        true
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the runs in the order of the file.
    pub(crate) fn as_slice(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the rest of the run at a position of the file.
    pub(crate) fn at(&self, position: u64) -> Option<Run> {
        let index = self.ends.partition_point(|end| *end <= position);
        let (run, end) = (self.runs.get(index)?, self.ends.get(index)?);
        let left = end - position;
        Some(Run { offset: run.offset.map(|offset| offset + (run.len - left)), len: left })
    }

    /// Fills `buffer` with the bytes of the file at `offset`.
    pub(crate) fn read_exact_at(
        &self,
        source: &dyn ReadAt,
        offset: u64,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let wanted = buffer.len();
        if offset.checked_add(wanted as u64).is_none_or(|end| end > self.len()) {
            return Err(past_end(offset, wanted, self.len()));
        }
        let (mut position, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let run = self.at(position).ok_or_else(|| past_end(offset, wanted, self.len()))?;
            let count = usize::try_from(run.len).map_or(rest.len(), |left| left.min(rest.len()));
            let (now, later) = rest.split_at_mut(count);
            match run.offset {
                Some(from) => source.read_exact_at(from, now)?,
                None => now.fill(0),
            }
            (position, rest) = (position + count as u64, later);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(list: &[(Option<u64>, u64)]) -> Runs {
        let mut runs = Runs::default();
        assert!(list.iter().all(|(offset, len)| runs.push(Run { offset: *offset, len: *len })));
        runs
    }

    #[test]
    fn adjacent_runs_are_merged_and_holes_are_zeros() {
        let runs = runs(&[(Some(2), 2), (Some(4), 1), (None, 3), (Some(9), 0), (None, 1), (Some(0), 2)]);
        assert_eq!(runs.as_slice().len(), 3);
        assert_eq!(runs.len(), 9);
        let source = b"0123456789".as_slice();
        let mut all = [1; 9];
        runs.read_exact_at(&source, 0, &mut all).unwrap();
        assert_eq!(&all, b"234\0\0\0\x0001");
        let mut part = [1; 4];
        runs.read_exact_at(&source, 4, &mut part).unwrap();
        assert_eq!(&part, b"\0\0\x000");
        assert!(runs.read_exact_at(&source, 6, &mut part).is_err());
        assert_eq!(runs.at(9), None);
    }

    #[test]
    fn lengths_never_overflow() {
        let mut runs = runs(&[(None, u64::MAX - 1)]);
        assert!(!runs.push(Run { offset: None, len: 2 }));
        assert_eq!(runs.len(), u64::MAX - 1);
    }
}
