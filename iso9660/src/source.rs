//! Sources of bytes: values of known length that can be read at any offset.
//!
//! ```text
//! [u8]  Vec<u8>  FileSource  Window(part of another)  ImagePlan(a computed image)  FileReader(a file in an image)
//!    \______\________\___________|_______________________/__________________________/
//!                              ReadAt
//! ```
//!
//! Invariants: `len` does not change during the life of a value. A read delivers all requested bytes or fails. Reads
//! take `&self`, so one source serves many readers at once without a lock or a shared position.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes of known length, readable at any offset, from any thread.
pub trait ReadAt: Send + Sync {
    /// Returns the number of bytes.
    fn len(&self) -> u64;

    /// Fills `buffer` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the range ends after the source; otherwise the error of the medium.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns whether the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the file range that holds the bytes at `offset`, for callers that send files without reading them
    /// (`sendfile`). Returns `None` when the bytes are not in a file, or when the file has changed since it was opened;
    /// a read then reports the cause.
    fn file_at(&self, offset: u64) -> Option<FileRange> {
        let _ = offset;
        None
    }
}

/// A range of a file that holds a part of a source.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub file: Arc<File>,
    /// The offset in the file.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

/// Returns the error of a read that ends after the source.
pub(crate) fn past_end(offset: u64, length: usize, len: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{length} bytes at {offset} pass the end of a source of {len} bytes"),
    )
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let wanted = usize::try_from(offset)
            .ok()
            .and_then(|start| start.checked_add(buffer.len()).and_then(|end| self.get(start..end)))
            .ok_or_else(|| past_end(offset, buffer.len(), ReadAt::len(self)))?;
        buffer.copy_from_slice(wanted);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, buffer)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        (**self).file_at(offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        (**self).file_at(offset)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        (**self).file_at(offset)
    }
}

/// A file whose length and modification time are recorded when it is opened.
///
/// Every read compares both with the current values: a file that was changed in place is an error, never a mixture of
/// two versions. A file that was *replaced* keeps its old bytes here, because the descriptor refers to the old inode.
#[derive(Debug)]
pub struct FileSource {
    file: Arc<File>,
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
}

impl FileSource {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The error of the operating system, with the path; [`io::ErrorKind::InvalidInput`] when the path is not a regular
    /// file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<FileSource> {
        let path = path.as_ref().to_path_buf();
        let name =
            |error: io::Error| io::Error::new(error.kind(), format!("open {}: {error}", path.display()));
        let file = File::open(&path).map_err(name)?;
        let metadata = file.metadata().map_err(name)?;
        if !metadata.is_file() {
            return Err(name(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let (len, modified) = (metadata.len(), metadata.modified().ok());
        Ok(FileSource { file: Arc::new(file), path, len, modified })
    }

    /// Returns whether the file is unchanged since it was opened.
    fn is_unchanged(&self) -> io::Result<bool> {
        let metadata = self.file.metadata()?;
        Ok(metadata.len() == self.len && metadata.modified().ok() == self.modified)
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, buffer.len(), self.len));
        }
        let outcome = self.file.read_exact_at(buffer, offset);
        // The comparison runs after the read: it sees a change before or during the read. A later change does no harm.
        if !self.is_unchanged()? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} has changed since it was opened; open it again", self.path.display()),
            ));
        }
        outcome
    }

    /// Describes the current state. A caller that sends the file checks again later, or reads the last bytes with
    /// `read_exact_at`.
    fn file_at(&self, offset: u64) -> Option<FileRange> {
        let len = self.len.checked_sub(offset).filter(|len| *len > 0)?;
        self.is_unchanged().unwrap_or(false).then(|| FileRange { file: Arc::clone(&self.file), offset, len })
    }
}

/// A part of another source: `len` bytes from `offset`.
#[derive(Clone, Debug)]
pub struct Window<S> {
    source: S,
    offset: u64,
    len: u64,
}

impl<S: ReadAt> Window<S> {
    /// Returns the `len` bytes of `source` that start at `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the range is not inside the source.
    pub fn new(source: S, offset: u64, len: u64) -> io::Result<Window<S>> {
        if offset.checked_add(len).is_none_or(|end| end > source.len()) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("a window of {len} bytes at {offset} passes the end of {} bytes", source.len()),
            ));
        }
        Ok(Window { source, offset, len })
    }
}

impl<S: ReadAt> ReadAt for Window<S> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len) {
            return Err(past_end(offset, buffer.len(), self.len));
        }
        self.source.read_exact_at(self.offset + offset, buffer)
    }

    fn file_at(&self, offset: u64) -> Option<FileRange> {
        let left = self.len.checked_sub(offset).filter(|left| *left > 0)?;
        let range = self.source.file_at(self.offset + offset)?;
        Some(FileRange { len: range.len.min(left), ..range })
    }
}

/// Reads a source in sequence: [`io::Read`] and [`io::Seek`] over any [`ReadAt`].
#[derive(Clone, Debug)]
pub struct SourceCursor<S> {
    source: S,
    position: u64,
}

impl<S: ReadAt> SourceCursor<S> {
    /// Returns a cursor at the start of a source.
    pub fn new(source: S) -> SourceCursor<S> {
        SourceCursor { source, position: 0 }
    }

    /// Returns the source.
    pub fn into_inner(self) -> S {
        self.source
    }
}

impl<S: ReadAt> io::Read for SourceCursor<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.position);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if length == 0 {
            return Ok(0);
        }
        self.source.read_exact_at(self.position, &mut buffer[..length])?;
        self.position += length as u64;
        Ok(length)
    }
}

impl<S: ReadAt> io::Seek for SourceCursor<S> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(position) => Some(position),
            io::SeekFrom::End(offset) => self.source.len().checked_add_signed(offset),
            io::SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a seek before the start of a source or beyond 2^64 bytes",
            )
        })?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_slice_is_read_inside_its_bounds_only() {
        let bytes = b"0123456789".as_slice();
        let mut buffer = [0; 3];
        bytes.read_exact_at(7, &mut buffer).unwrap();
        assert_eq!(&buffer, b"789");
        assert_eq!(bytes.read_exact_at(8, &mut buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            bytes.read_exact_at(u64::MAX, &mut buffer).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_cursor_reads_in_sequence_and_seeks() {
        use std::io::{Read as _, Seek as _, SeekFrom};

        let mut cursor = SourceCursor::new(b"0123456789".as_slice());
        let mut text = String::new();
        assert_eq!(cursor.seek(SeekFrom::Start(7)).unwrap(), 7);
        assert_eq!(cursor.read_to_string(&mut text).unwrap(), 3);
        assert_eq!(cursor.seek(SeekFrom::End(-4)).unwrap(), 6);
        assert_eq!(cursor.seek(SeekFrom::Current(-1)).unwrap(), 5);
        assert_eq!(cursor.read(&mut [0; 2]).unwrap(), 2);
        cursor.read_to_string(&mut text).unwrap();
        assert_eq!(text, "789789");
        assert_eq!(cursor.seek(SeekFrom::Current(-11)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(cursor.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
        assert_eq!(cursor.read(&mut [0; 2]).unwrap(), 0);
        assert_eq!(cursor.into_inner().len(), 10);
    }

    #[test]
    fn a_window_is_bounded_by_its_own_length() {
        let window = Window::new(b"0123456789".to_vec(), 2, 4).unwrap();
        let mut buffer = [0; 4];
        window.read_exact_at(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"2345");
        assert!(window.read_exact_at(1, &mut buffer).is_err());
        assert!(Window::new(b"01".to_vec(), 1, 2).is_err());
        assert!(Window::new(b"01".to_vec(), u64::MAX, 2).is_err());
    }

    #[test]
    fn a_part_of_a_file_is_found_until_the_file_changes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789").unwrap();
        let window = Window::new(FileSource::open(file.path()).unwrap(), 2, 4).unwrap();
        let range = window.file_at(1).unwrap();
        assert_eq!((range.offset, range.len), (3, 3));
        assert!(window.file_at(4).is_none() && b"0123".as_slice().file_at(0).is_none());
        file.as_file().set_len(9).unwrap();
        assert!(window.file_at(1).is_none());
    }

    #[test]
    fn a_file_changed_in_place_is_an_error() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"first version").unwrap();
        file.flush().unwrap();
        let source = FileSource::open(file.path()).unwrap();
        let mut buffer = [0; 5];
        source.read_exact_at(0, &mut buffer).unwrap();
        assert_eq!(&buffer, b"first");
        file.write_all(b", grown").unwrap();
        file.flush().unwrap();
        assert_eq!(source.read_exact_at(0, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_directory_is_not_a_source() {
        let directory = tempfile::tempdir().unwrap();
        assert!(FileSource::open(directory.path()).is_err());
    }
}
