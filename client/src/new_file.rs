//! A file that appears with its whole content, or not at all.
//!
//! ```text
//!   create ── a file with a name of its own beside it ── keep ──> the name; refused if it exists by now
//!                                                     └── dropped ──> removed
//! ```
//!
//! Invariants: a file that exists is never replaced; the file is readable by its user only. A part is locked while its command runs: what an
//! interrupted command left is removed by the next one of that name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::{Builder, NamedTempFile};

/// The end of the name of a part.
const SUFFIX: &str = ".part";
/// The age from which a part without a lock is of an interrupted command, and not of one that is about to lock it.
const LEFT: Duration = Duration::from_secs(60);

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
        let folder = folder.unwrap_or_else(|| Path::new("."));
        let mut prefix = path.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        remove_left(folder, &prefix);
        let part = Builder::new().prefix(&prefix).suffix(SUFFIX).tempfile_in(folder)?;
        // A file system without locks has the file all the same.
        let _unlocked = part.as_file().try_lock();
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

/// Removes the parts of a name that interrupted commands left: older than [`LEFT`], and locked by no process.
fn remove_left(folder: &Path, prefix: &OsStr) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let random = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let random = random.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        if !random.is_some_and(|random| random.len() == 6 && random.iter().all(u8::is_ascii_alphanumeric)) {
            continue;
        }
        let is_old = entry.metadata().is_ok_and(|data| {
            data.is_file() && data.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= LEFT))
        });
        if is_old && File::open(entry.path()).is_ok_and(|part| part.try_lock().is_ok()) {
            // Without permission it stays.
            let _kept = std::fs::remove_file(entry.path());
        }
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

    #[test]
    fn what_an_interrupted_command_left_is_removed_by_the_next_one_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.iso");
        let old = std::time::SystemTime::now() - 2 * LEFT;
        let write = |name: &str, at| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(at).unwrap();
            file
        };
        for name in ["a.iso.abc123.part", "a.iso.part", "a.iso.abc12.part", "b.iso.abc123.part"] {
            write(name, old);
        }
        write("a.iso.new123.part", std::time::SystemTime::now());
        let live = write("a.iso.live12.part", old);
        live.try_lock().unwrap();
        drop(NewFile::create(&path).unwrap());
        let mut left: Vec<_> = folder
            .path()
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            ["a.iso.abc12.part", "a.iso.live12.part", "a.iso.new123.part", "a.iso.part", "b.iso.abc123.part"]
        );
    }
}
