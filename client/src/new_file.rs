//! A file that appears with its whole content, or not at all.
//!
//! ```text
//!   create ── a file with a name of its own beside it ── keep ──> the name; refused if it exists by now
//!                                                     └── dropped ──> removed
//! ```
//!
//! Invariants: a file that exists is never replaced; the file is readable by its user only.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A new file before it has its name.
pub(super) struct NewFile {
    part: NamedTempFile,
    path: PathBuf,
}

impl NewFile {
    /// Begins a file that will have the name `path`.
    ///
    /// # Errors
    /// When the name is taken, or the folder cannot be written.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(taken());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut prefix = path.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        let part = Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
        Ok(Self { part, path: path.to_owned() })
    }

    /// Gives the file its name after its content is on the disk.
    ///
    /// # Errors
    /// When the content cannot be written, or the name was taken meanwhile. The file is removed then.
    pub(super) fn keep(self) -> io::Result<()> {
        self.part.as_file().sync_all()?;
        let kept = self.part.persist_noclobber(&self.path);
        kept.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => taken(),
            _ => error.error,
        })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.part.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        File::flush(self.part.as_file_mut())
    }
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists; give the name of a new file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_with_its_whole_content_only_and_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.iso");
        let count = || folder.path().read_dir().unwrap().count();
        let mut dropped = NewFile::create(&path).unwrap();
        dropped.write_all(b"half").unwrap();
        drop(dropped);
        assert_eq!(count(), 0);
        // Two of one name: each has a part of its own, and the first that ends has the name.
        let mut first = NewFile::create(&path).unwrap();
        let mut second = NewFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        second.write_all(b"sec").unwrap();
        first.keep().unwrap();
        assert_eq!(second.keep().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), count()), (&b"first"[..], 1));
        assert!(NewFile::create(&path).is_err());
    }
}
