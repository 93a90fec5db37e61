//! The names in a backup, and what reads and writes directories.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use super::error::{BackupError, file};

/// The name of the file with the summary of a backup.
pub(super) const SUMMARY: &str = "backup.json";
/// The name of the file with the digests of a backup: one line per file.
pub(super) const SUMS: &str = "SHA256SUMS";
pub(super) const DATA: &str = "data";
pub(super) const DATABASE: &str = "data/provisioner.db";
pub(super) const MASTER_KEY: &str = "data/master.key";
pub(super) const LIBRARY: &str = "data/maintenance";
pub(super) const REGISTRY: &str = "data/oci";
/// The directory with the content of the registry, by algorithm and digest.
pub(super) const BLOBS: &str = "data/oci/blobs";
/// The file with the time at which each tag of the registry was pushed.
pub(super) const TAG_TIMES: &str = "data/tag-times";

/// The names in a directory that are UTF-8; none when there is no directory.
pub(super) fn names(
    path: &Path,
) -> Result<impl Iterator<Item = Result<String, BackupError>> + use<>, BackupError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => Some(entries),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => return Err(file("list", path)(error)),
    };
    let path = path.to_owned();
    Ok(entries.into_iter().flatten().filter_map(move |entry| match entry {
        Ok(entry) => entry.file_name().into_string().ok().map(Ok),
        Err(error) => Some(Err(file("list", &path)(error))),
    }))
}

pub(super) fn sync_directory(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(file("sync", path))
}
