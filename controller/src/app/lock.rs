//! The file lock beside the database: gained, it proves that no other process works on this data (lock L7).

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StartError;

/// Held as long as the process lives; the kernel frees it with the process, however it dies.
pub(super) struct DataLock {
    file: File,
}

impl Drop for DataLock {
    fn drop(&mut self) {
        // Said and not left to the closing of the file: a child process that is just being started holds a copy of it.
        let _closing_frees_it_too = flock(&self.file, FlockOperation::Unlock);
    }
}

impl DataLock {
    /// Takes the lock of a database, or says who has it.
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
    fn a_second_controller_on_the_same_data_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("provisioner.db");
        let first = DataLock::take(&database).unwrap();
        assert!(matches!(DataLock::take(&database), Err(StartError::InUse { .. })));
        drop(first);
        assert!(DataLock::take(&database).is_ok());
    }
}
