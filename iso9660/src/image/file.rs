//! The bytes of files.
//!
//! ```text
//! file:    0 ........ len            image:  ...[extent 0].....[extent 1]...
//!          `- extent 0 -'- extent 1 -'
//! ```
//!
//! Extents are checked against the source when a file is opened; after that its reads cannot leave the image.

use std::io;
use std::sync::Arc;

use crate::error::ReadError;
use crate::source::{ReadAt, past_end};

use super::{Entry, Extent, Image};

/// How much of a file is read at once into a growing buffer.
const PIECE: u64 = 1 << 20;

/// A file of an image, readable at any offset. It keeps the source alive by itself.
#[derive(Debug)]
pub struct FileReader<S> {
    source: Arc<S>,
    extents: Vec<Extent>,
    len: u64,
}

impl<S: ReadAt> Image<S> {
    /// Opens the regular file at a path.
    ///
    /// # Errors
    /// As [`Image::lookup`]; [`ReadError::NotAFile`] when the path names something else.
    pub fn open_file(&self, path: &str) -> Result<FileReader<S>, ReadError> {
        let entry = self.lookup(path)?;
        self.reader(&entry, path)
    }

    /// Where the bytes of the regular file at a path are, checked to lie inside the image.
    ///
    /// # Errors
    /// As [`Image::open_file`].
    pub fn extents(&self, path: &str) -> Result<Vec<Extent>, ReadError> {
        Ok(self.open_file(path)?.extents)
    }

    /// All bytes of the regular file at a path, if there are at most `max_bytes`.
    ///
    /// # Errors
    /// As [`Image::open_file`]; [`ReadError::TooLarge`] when there are more.
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
            file.read_exact_at(offset, &mut bytes[start..]).map_err(|source| ReadError::Io {
                offset,
                length,
                source,
            })?;
            offset += length as u64;
        }
        Ok(bytes)
    }

    /// The reader of an entry that came from this image. `path` is for the errors.
    ///
    /// # Errors
    /// [`ReadError::NotAFile`], [`ReadError::Unsupported`] for a compressed file, or [`ReadError::Invalid`] when its
    /// extents do not lie inside the image.
    pub fn reader(&self, entry: &Entry, path: &str) -> Result<FileReader<S>, ReadError> {
        if !entry.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        let first = entry.extents.first().map_or(0, |extent| extent.offset);
        if entry.compressed {
            return Err(ReadError::Unsupported { offset: first, feature: "files compressed with zisofs" });
        }
        let mut len = 0_u64;
        for Extent { offset, len: part } in &entry.extents {
            let inside = *part == 0 || offset.checked_add(*part).is_some_and(|end| end <= self.source.len());
            len = len
                .checked_add(*part)
                .filter(|_| inside)
                .ok_or(ReadError::Invalid { offset: *offset, rule: "a file lies inside the image" })?;
        }
        // Extents without bytes would only make the search for an offset ambiguous.
        let extents = entry.extents.iter().copied().filter(|extent| extent.len > 0).collect();
        Ok(FileReader { source: Arc::clone(&self.source), extents, len })
    }
}

impl<S> FileReader<S> {
    /// Where the bytes are in the image.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
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
        let (mut skip, mut rest) = (offset, buffer);
        for extent in &self.extents {
            if rest.is_empty() {
                break;
            }
            if skip >= extent.len {
                skip -= extent.len;
                continue;
            }
            let count = usize::try_from(extent.len - skip).map_or(rest.len(), |left| left.min(rest.len()));
            let (now, later) = rest.split_at_mut(count);
            self.source.read_exact_at(extent.offset + skip, now)?;
            (skip, rest) = (0, later);
        }
        Ok(())
    }
}
