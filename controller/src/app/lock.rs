//! The file lock beside the database: its holder is the only process that works on the data directory (decision D7).

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StartError;

/// A held lock. The kernel releases it when the process ends, also after a crash.
pub(super) struct DataLock {
    file: File,
}

impl Drop for DataLock {
    fn drop(&mut self) {
        // Unlocked explicitly: a child process that is starting holds a copy of the descriptor, so closing is not enough.
        let _released_on_close = flock(&self.file, FlockOperation::Unlock);
    }
}

impl DataLock {
    /// Takes the lock of a database; [`StartError::InUse`] when another process holds it.
    pub(super) fn take(database: &Path) -> Result<Self, StartError> {
        let path = database.with_extension("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| StartError::Lock { path: path.clone(), source })?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file }),
            Err(Errno::WOULDBLOCK) => Err(StartError::InUse { path }),
            Err(errno) => Err(StartError::Lock { path, source: errno.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_controller_on_a_data_directory_is_refused_until_the_first_ends() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("provisioner.db");
        let first = DataLock::take(&database).unwrap();
        assert!(matches!(DataLock::take(&database), Err(StartError::InUse { .. })));
        drop(first);
        assert!(DataLock::take(&database).is_ok());
    }
}
