//! The few file operations durability is made of.
//!
//! ```text
//!  bytes -> temporary file -> fsync(file) -> rename -> fsync(directory) -> acknowledge
//! ```
//!
//! A rename makes content visible at once and whole; the directory fsync makes it stay. Callers that rename
//! several things may fsync the directories together afterwards: with a journalling file system the first of
//! these carries the others along.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::Error;

/// Makes the entries of `directory` durable.
pub(super) fn sync_directory(directory: &Path) -> Result<(), Error> {
    File::open(directory)
        .and_then(|handle| handle.sync_all())
        .map_err(Error::io("make durable the entries of directory", directory))
}

/// Creates `directory` when missing and makes its entry in its parent durable. Its parent must exist.
pub(super) fn create_directory(directory: &Path) -> Result<(), Error> {
    match fs::create_dir(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create directory", directory)(error)),
    }
    // Also when it was there: whoever made it may not have come to the fsync.
    directory.parent().map_or(Ok(()), sync_directory)
}

/// Creates `directory` and what is missing above it. An existing one is left as it is: the directory above it may
/// be none of our business, and unreadable.
pub(super) fn create_directories(directory: &Path) -> Result<(), Error> {
    if directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        create_directories(parent)?;
    }
    create_directory(directory)
}

/// Puts `bytes` at `target`, whole or not at all, replacing what was there. Durable once the caller has called
/// [`sync_directory`] on the directory of `target`. `temporary` is a directory of the same file system.
pub(super) fn put(temporary: &Path, target: &Path, bytes: &[u8]) -> Result<(), Error> {
    let draft = draft(temporary, bytes)?;
    let renamed = rename(&draft, target);
    if renamed.is_err() {
        discard(&draft);
    }
    renamed
}

/// Writes `bytes` to a new file of `temporary`, durably, for [`rename`].
pub(super) fn draft(temporary: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
    let draft = temporary.join(Uuid::new_v4().to_string());
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&draft)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_data()
        })
        .map_err(Error::io("write", &draft));
    match written {
        Ok(()) => Ok(draft),
        Err(error) => {
            discard(&draft);
            Err(error)
        }
    }
}

/// Renames a draft into place.
pub(super) fn rename(draft: &Path, target: &Path) -> Result<(), Error> {
    fs::rename(draft, target).map_err(Error::io("rename into place", target))
}

/// Creates an empty file unless it exists. Durable after [`sync_directory`].
pub(super) fn touch(path: &Path) -> Result<(), Error> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::io("create", path)(error)),
    }
}

/// Removes a file; whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io("remove", path)(error)),
    }
}

/// Removes a file nothing refers to. A failure costs space until the next start and is not worth failing for.
pub(super) fn discard(path: &Path) {
    if let Err(error) = remove(path) {
        tracing::warn!(error = %error, "a temporary file of the registry was left behind");
    }
}

/// The names in a directory which are text; none when the directory is missing.
pub(super) fn names(directory: &Path) -> Result<impl Iterator<Item = Result<String, Error>>, Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("list directory", directory)(error)),
    };
    let directory = directory.to_owned();
    Ok(entries.into_iter().flatten().filter_map(move |entry| match entry {
        Ok(entry) => entry.file_name().into_string().ok().map(Ok),
        Err(error) => Some(Err(Error::io("list directory", &directory)(error))),
    }))
}

/// Bytes an ordinary process may still write to the file system of `path`.
pub(super) fn free_bytes(path: &Path) -> Result<u64, Error> {
    let figures =
        rustix::fs::statvfs(path).map_err(|errno| Error::io("ask for free space at", path)(errno.into()))?;
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}
