//! A backup under its temporary name, until it is complete.
//!
//! ```text
//!   PARENT/.NAME.partial-UUID/          locked by its file `incomplete`, which is removed before the rename
//!        --rename--> PARENT/NAME        a name that exists is never replaced
//! ```
//!
//! The lock is that of a file and not of the directory, because NFS locks only files that are open for writing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat, renameat_with};
use rustix::io::Errno;

use super::copy::create_directory;
use super::error::{BackupError, file};
use super::names::sync_directory;

/// The file in an incomplete backup that its maker has locked.
const INCOMPLETE: &str = "incomplete";

/// A directory for a backup that is not complete. Dropped without [`Self::finish`], it is removed.
#[derive(Debug)]
pub(super) struct PartialBackup {
    path: PathBuf,
    parent: PathBuf,
    finished: bool,
    _lock: File,
}

impl PartialBackup {
    /// Begins a backup in an existing directory. `stem` begins the temporary name.
    pub(super) fn begin(parent: &Path, stem: &str) -> Result<Self, BackupError> {
        let path = parent.join(format!("{}{}", prefix(stem), uuid::Uuid::new_v4()));
        create_directory(&path)?;
        let incomplete = path.join(INCOMPLETE);
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&incomplete);
        let lock = lock.map_err(file("create", &incomplete))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // Without locks an interrupted backup is left to its maker.
            Ok(()) | Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS) => {}
            Err(errno) => return Err(file("lock", &incomplete)(errno.into())),
        }
        Ok(Self { path, parent: parent.to_owned(), finished: false, _lock: lock })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the complete backup its name, durably.
    pub(super) fn finish(mut self, name: &str) -> Result<(), BackupError> {
        let destination = self.parent.join(name);
        let incomplete = self.path.join(INCOMPLETE);
        fs::remove_file(&incomplete).map_err(file("remove", &incomplete))?;
        sync_directory(&self.path)?;
        let renamed = match renameat_with(CWD, &self.path, CWD, &destination, RenameFlags::NOREPLACE) {
            // A file system without this flag, such as NFS. It never replaces a directory that has entries.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => match destination.symlink_metadata() {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => renameat(CWD, &self.path, CWD, &destination),
            },
            renamed => renamed,
        };
        renamed.map_err(|errno| match errno {
            Errno::EXIST | Errno::NOTEMPTY => BackupError::Exists { path: destination.clone() },
            errno => file("name the backup", &destination)(errno.into()),
        })?;
        self.finished = true;
        sync_directory(&self.parent)
    }
}

impl Drop for PartialBackup {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is removed by the next backup with this name.
            let _left = fs::remove_dir_all(&self.path);
        }
    }
}

fn prefix(stem: &str) -> String {
    format!(".{stem}.partial-")
}

/// Removes what backups with this stem left that were interrupted; one that is being made is locked and stays. Returns how many were
/// removed.
pub(super) fn remove_abandoned(parent: &Path, stem: &str) -> Result<usize, BackupError> {
    let prefix = prefix(stem);
    let mut removed = 0;
    for entry in fs::read_dir(parent).map_err(file("list", parent))? {
        let entry = entry.map_err(file("list", parent))?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix) || in_use(&entry.path())? {
            continue;
        }
        fs::remove_dir_all(entry.path()).map_err(file("remove", &entry.path()))?;
        removed += 1;
    }
    Ok(removed)
}

/// Whether a process makes this backup now.
fn in_use(partial: &Path) -> Result<bool, BackupError> {
    let incomplete = partial.join(INCOMPLETE);
    let lock = match OpenOptions::new().write(true).open(&incomplete) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(file("open", &incomplete)(error)),
    };
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK))
}
