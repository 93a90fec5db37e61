//! A source that counts read bytes, which measures the cost of an image on any machine.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use iso9660::ReadAt;

/// Counts read bytes.
pub(crate) struct Counted<S> {
    source: S,
    bytes: AtomicU64,
}

impl<S> Counted<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, bytes: AtomicU64::new(0) }
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<S: ReadAt> ReadAt for Counted<S> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.source.read_exact_at(offset, buffer)
    }
}
