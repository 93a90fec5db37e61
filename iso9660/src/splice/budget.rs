//! The original image behind a read budget.
//!
//! ```text
//! Arc<dyn ReadAt>  <--  Budget { left }  <--  descriptors, path tables, root, first sectors of its children
//! ```
//!
//! Invariants: nothing is allocated before its length is checked against the source and the budget. Planning reads no
//! more than the limit, whatever the image claims.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::SECTOR_SIZE;
use crate::ecma119::SECTOR;
use crate::error::ReadError;
use crate::source::{ReadAt, past_end};

use super::error::SpliceError;

/// A source with a limit of bytes to read.
pub(crate) struct Budget<'a> {
    source: &'a dyn ReadAt,
    limit: u64,
    read: AtomicU64,
}

/// The error inside the [`io::Error`] of a read beyond the limit.
#[derive(Debug, thiserror::Error)]
#[error("the limit of bytes to read is exhausted")]
struct BudgetExhausted;

impl<'a> Budget<'a> {
    pub(crate) fn new(source: &'a dyn ReadAt, limit: u64) -> Budget<'a> {
        Budget { source, limit, read: AtomicU64::new(0) }
    }

    /// Returns the number of bytes read.
    pub(crate) fn used(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Reads a structure that must be inside the image. `rule` is the rule of the error otherwise.
    pub(crate) fn bytes(&self, offset: u64, length: u64, rule: &'static str) -> Result<Vec<u8>, SpliceError> {
        if offset.checked_add(length).is_none_or(|end| end > self.source.len()) {
            return Err(ReadError::Invalid { offset, rule }.into());
        }
        if length > self.limit.saturating_sub(self.used()) {
            return Err(self.used_up());
        }
        let length = usize::try_from(length).map_err(|_| self.used_up())?;
        let mut bytes = vec![0; length];
        self.read_exact_at(offset, &mut bytes).map_err(|source| ReadError::Io { offset, length, source })?;
        Ok(bytes)
    }

    /// Reads the sector at byte `offset`, which must be inside the image.
    pub(crate) fn sector(&self, offset: u64, rule: &'static str) -> Result<[u8; SECTOR], SpliceError> {
        let mut sector = [0; SECTOR];
        sector.copy_from_slice(&self.bytes(offset, SECTOR_SIZE, rule)?);
        Ok(sector)
    }

    /// Converts the error of a parser that read through this budget.
    pub(crate) fn error(&self, error: ReadError) -> SpliceError {
        match &error {
            ReadError::Io { source, .. }
                if source.get_ref().is_some_and(|cause| cause.is::<BudgetExhausted>()) =>
            {
                self.used_up()
            }
            _ => error.into(),
        }
    }

    fn used_up(&self) -> SpliceError {
        SpliceError::Limit { what: "bytes of metadata to read", limit: self.limit }
    }
}

impl ReadAt for Budget<'_> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let length = buffer.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            return Err(past_end(offset, buffer.len(), self.len()));
        }
        let read = self.read.fetch_add(length, Ordering::Relaxed);
        if read.saturating_add(length) > self.limit {
            return Err(io::Error::other(BudgetExhausted));
        }
        self.source.read_exact_at(offset, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_limit_is_refused_before_allocation_and_read() {
        let image = vec![7; 10_000];
        let budget = Budget::new(&image, 4096);
        assert_eq!(budget.sector(0, "").unwrap()[0], 7);
        assert!(matches!(budget.bytes(0, 2049, ""), Err(SpliceError::Limit { limit: 4096, .. })));
        assert!(matches!(budget.bytes(9_999, 2, "rule"), Err(SpliceError::Original(_))));
        assert!(matches!(budget.bytes(u64::MAX, 2, "rule"), Err(SpliceError::Original(_))));
        assert_eq!(budget.used(), 2048);
        let mut buffer = [0; 4096];
        let source = budget.read_exact_at(0, &mut buffer).unwrap_err();
        let error = budget.error(ReadError::Io { offset: 0, length: 4096, source });
        assert!(matches!(error, SpliceError::Limit { limit: 4096, .. }));
    }
}
