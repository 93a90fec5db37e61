//! The free space of the data disk, and of the disk of the database when DB_PATH names another one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

/// The folder of the database file.
pub(super) fn folder_of(database: &Path) -> &Path {
    match database.parent() {
        // The folder of a relative path without a folder.
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder.unwrap_or(database),
    }
}

/// The folder of the database if it is on another disk than the data directory, or cannot be read.
pub(super) fn on_another_disk<'a>(database: &'a Path, storage: &Path) -> Option<&'a Path> {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    let folder = folder_of(database);
    (device(folder) != device(storage)).then_some(folder)
}

/// The room of a disk, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    pub(super) free: u64,
    pub(super) size: u64,
}

impl Room {
    /// The room of the disk of a folder.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub(super) fn of(folder: &Path) -> Result<Self, Errno> {
        let disk = rustix::fs::statvfs(folder)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), size: bytes(disk.f_blocks) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_the_database_is_checked_when_it_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("provisioner.db");
        assert_eq!(on_another_disk(&database, folder.path()), None);
        assert_eq!(on_another_disk(&database, Path::new("/proc")), Some(folder.path()));
        let gone = folder.path().join("gone/provisioner.db");
        assert_eq!(on_another_disk(&gone, folder.path()), gone.parent());
    }
}
