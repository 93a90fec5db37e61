//! The source during one call: the remaining read budget, and the block that was read last.
//!
//! ```text
//! directories ----large----------------------------> source
//! attributes, file entries --small--> window (1 block; 16 when the reads go forward) --> source
//!                     every read takes from the budget
//! ```
//!
//! In a hostile image few bytes can refer to many: a thousand records can share one chain of areas. Counting all bytes
//! that a call reads bounds every such case.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::SECTOR_SIZE;
use crate::error::ReadError;
use crate::source::{ReadAt, past_end};

/// The smallest amount that a read takes from the budget, in bytes.
const LEAST: u64 = 256;
/// The number of bytes that are read at once when small reads go forward.
const AHEAD: u64 = 16 * SECTOR_SIZE;

/// A source with a read budget.
pub(crate) struct Medium<'a> {
    source: &'a dyn ReadAt,
    limit: u64,
    used: AtomicU64,
    window: Mutex<Window>,
}

/// The bytes of the last small read.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Medium<'a> {
    /// Returns a medium that allows approximately `limit` bytes to be read.
    pub(crate) fn new(source: &'a dyn ReadAt, limit: u64) -> Medium<'a> {
        Medium { source, limit, used: AtomicU64::new(0), window: Mutex::default() }
    }

    fn charge(&self, length: u64) -> Result<(), ReadError> {
        let cost = length.max(LEAST);
        let used = self.used.fetch_add(cost, Ordering::Relaxed).saturating_add(cost);
        if used > self.limit {
            let what = "bytes of directories and attributes for one call";
            return Err(ReadError::Limit { what, limit: self.limit });
        }
        Ok(())
    }
}

impl ReadAt for Medium<'_> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let length = buffer.len() as u64;
        let Some(end) = offset.checked_add(length).filter(|end| *end <= self.len()) else {
            return Err(past_end(offset, buffer.len(), self.len()));
        };
        self.charge(length)?;
        if length > 2 * SECTOR_SIZE {
            return self.source.read_exact_at(offset, buffer);
        }
        let mut window = self.window.lock();
        let window_end = window.start + window.bytes.len() as u64;
        if offset < window.start || end > window_end {
            let start = offset - offset % SECTOR_SIZE;
            let forward = start == window_end || offset == window_end;
            let wanted = if forward { AHEAD } else { (end - start).next_multiple_of(SECTOR_SIZE) };
            let wanted = wanted.min(self.len() - start);
            // The window stays empty until the read succeeds, so a failed read leaves no wrong bytes.
            let mut bytes = std::mem::take(&mut window.bytes);
            bytes.resize(usize::try_from(wanted).unwrap_or(0), 0);
            self.source.read_exact_at(start, &mut bytes)?;
            *window = Window { start, bytes };
        }
        let from = usize::try_from(offset - window.start).unwrap_or(usize::MAX);
        let there = window.bytes.get(from..from.saturating_add(buffer.len()));
        buffer.copy_from_slice(there.ok_or_else(|| past_end(offset, buffer.len(), self.len()))?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_return_the_bytes_of_large_ones() {
        let source: Vec<u8> = (0..40_000_u32).map(|at| (at / 7) as u8).collect();
        let medium = Medium::new(&source, u64::MAX);
        for (offset, length) in
            [(0, 10), (2040, 20), (2048, 2048), (4096, 4096), (8192, 5), (39_990, 10), (1, 3)]
        {
            let mut buffer = vec![0; length];
            medium.read_exact_at(offset as u64, &mut buffer).unwrap();
            assert_eq!(buffer, source[offset..offset + length], "{length} at {offset}");
        }
        assert!(medium.read_exact_at(39_995, &mut [0; 10]).is_err());
    }

    #[test]
    fn reads_beyond_the_budget_are_a_limit_error_even_from_the_window() {
        let source = vec![0; 4096];
        let medium = Medium::new(&source, 10 * LEAST);
        for _ in 0..10 {
            medium.read_exact_at(0, &mut [0; 1]).unwrap();
        }
        let error = medium.read_exact_at(0, &mut [0; 1]).unwrap_err();
        assert!(matches!(ReadError::io(0, 1, error), ReadError::Limit { .. }));
    }
}
