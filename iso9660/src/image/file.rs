//! The bytes of files.
//!
//! ```text
//! file:    0 ........ len            image:  ...[extent 0].....[extent 1]...
//!          `- extent 0 -'- extent 1 -'               with zisofs these hold compressed blocks
//! ```
//!
//! Extents are checked against the source when a file is opened, so later reads cannot leave the image.

use std::io;
use std::sync::Arc;

use crate::error::ReadError;
use crate::runs::{Run, Runs};
use crate::source::{ReadAt, SourceCursor, past_end};
use crate::zisofs::Blocks;

use super::entry::Storage;
use super::{Entry, Extent, Image};

/// The number of bytes that are read at once into a growing buffer.
const PIECE: u64 = 1 << 20;

/// A file of an image, readable at any offset. It holds a reference to the source. [`FileReader::into_cursor`] reads it
/// in sequence.
#[derive(Debug)]
pub struct FileReader<S> {
    stored: Stored<S>,
    /// The decompressor, if the stored bytes are compressed.
    blocks: Option<Blocks>,
    len: u64,
}

/// The stored bytes of a file.
#[derive(Debug)]
struct Stored<S> {
    source: Arc<S>,
    runs: Runs,
}

impl<S: ReadAt> Image<S> {
    /// Opens the regular file at a path.
    ///
    /// # Errors
    /// The errors of [`Image::lookup`]; [`ReadError::NotAFile`] when the path does not name a regular file.
    pub fn open_file(&self, path: &str) -> Result<FileReader<S>, ReadError> {
        let entry = self.lookup(path)?;
        self.reader(&entry, path)
    }

    /// Returns the extents of the regular file at a path, checked to be inside the image, so that a caller can serve
    /// them directly from the image.
    ///
    /// # Errors
    /// The errors of [`Image::open_file`]; [`ReadError::Unsupported`] when the file is compressed or has holes. Such a
    /// file can be opened instead.
    pub fn extents(&self, path: &str) -> Result<Vec<Extent>, ReadError> {
        let entry = self.lookup(path)?;
        let reader = self.reader(&entry, path)?;
        reader.extents().ok_or(ReadError::Unsupported {
            offset: entry.first_extent().offset,
            feature: "extents of a file that is compressed or has holes; open the file instead",
        })
    }

    /// Reads the regular file at a path, if it has at most `max_bytes` bytes.
    ///
    /// # Errors
    /// The errors of [`Image::open_file`]; [`ReadError::TooLarge`] when the file has more bytes.
    pub fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, ReadError> {
        let file = self.open_file(path)?;
        if file.len > max_bytes {
            return Err(ReadError::TooLarge { path: path.to_owned(), length: file.len, limit: max_bytes });
        }
        let mut bytes = Vec::new();
        let mut offset = 0;
        while offset < file.len {
            let length = usize::try_from((file.len - offset).min(PIECE)).unwrap_or(0);
            let start = bytes.len();
            bytes.resize(start + length, 0);
            file.read_exact_at(offset, &mut bytes[start..])
                .map_err(|error| ReadError::io(offset, length, error))?;
            offset += length as u64;
        }
        Ok(bytes)
    }

    /// Returns a reader for an entry of this image. `path` is for the errors.
    ///
    /// # Errors
    /// [`ReadError::NotAFile`], or [`ReadError::Invalid`] when the extents are not inside the image or the compressed
    /// data is broken.
    pub fn reader(&self, entry: &Entry, path: &str) -> Result<FileReader<S>, ReadError> {
        if !entry.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        let plain = |extent: &Extent| Run { offset: Some(extent.offset), len: extent.len };
        let claimed: Vec<Run> = match &entry.storage {
            Storage::Sparse(runs) => runs.as_slice().to_vec(),
            Storage::Plain | Storage::Zisofs(_) => entry.extents.iter().map(plain).collect(),
        };
        let mut runs = Runs::default();
        for run in claimed {
            let end = run.offset.unwrap_or(0).checked_add(run.len);
            let inside =
                run.len == 0 || run.offset.is_none() || end.is_some_and(|end| end <= self.source.len());
            if !inside || !runs.push(run) {
                let offset = run.offset.unwrap_or(0);
                return Err(ReadError::Invalid { offset, rule: "a file lies inside the image" });
            }
        }
        let stored = Stored { source: Arc::clone(&self.source), runs };
        let (blocks, len) = match entry.storage {
            Storage::Zisofs(parameters) => {
                let offset = entry.first_extent().offset;
                (Some(Blocks::open(&stored, parameters, offset)?), u64::from(parameters.len))
            }
            Storage::Plain | Storage::Sparse(_) => (None, stored.runs.len()),
        };
        Ok(FileReader { stored, blocks, len })
    }
}

impl<S: ReadAt> FileReader<S> {
    /// Returns the file as [`std::io::Read`] and [`std::io::Seek`].
    pub fn into_cursor(self) -> SourceCursor<FileReader<S>> {
        SourceCursor::new(self)
    }
}

impl<S> FileReader<S> {
    /// Returns the extents in the image in the order of the file; `None` when the file is compressed or has holes.
    /// Adjacent extents are merged.
    pub fn extents(&self) -> Option<Vec<Extent>> {
        let extent = |run: &Run| run.offset.map(|offset| Extent { offset, len: run.len });
        match self.blocks {
            Some(_) => None,
            None => self.stored.runs.as_slice().iter().map(extent).collect(),
        }
    }
}

impl<S: ReadAt> ReadAt for Stored<S> {
    fn len(&self) -> u64 {
        self.runs.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.runs.read_exact_at(&*self.source, offset, buffer)
    }
}

impl<S: ReadAt> ReadAt for FileReader<S> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, buffer.len(), self.len));
        }
        match &self.blocks {
            Some(blocks) => blocks.read_exact_at(&self.stored, offset, buffer),
            None => self.stored.read_exact_at(offset, buffer),
        }
    }
}
