//! Why a backup was not made, verified or restored.

use std::io;
use std::path::{Path, PathBuf};

use super::super::StartError;
use super::remote::RemoteBackupError;
use store::StoreError;

/// Why a backup was not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file or directory could not be used.
    #[error("{operation} {}", path.display())]
    File {
        /// The operation, in words.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The destination exists.
    #[error("{} exists; a backup is made in a new directory", path.display())]
    Exists {
        /// The destination.
        path: PathBuf,
    },
    /// There is no data to back up.
    #[error("there is no database {}; check STORAGE_ROOT and DB_PATH", path.display())]
    NoData {
        /// The database file.
        path: PathBuf,
    },
    /// The existence of a database cannot be determined.
    #[error("look at the database {}; run this as the user of the controller, or as root", path.display())]
    UnreadableData {
        /// The database file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The directory is not a complete backup of a known form.
    #[error("{} is not a backup that this program can read: {reason}", path.display())]
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// The fault of the directory, in words.
        reason: String,
    },
    /// A file of the backup is missing, damaged or not part of it.
    #[error("the backup is damaged: {reason}; use another backup")]
    Damaged {
        /// The fault, with the file, in words.
        reason: String,
    },
    /// A file of a new backup has other content than its source.
    #[error(
        "{} does not have the content that was copied; check the disk of the backup and its log (`dmesg`), then make the backup again",
        path.display()
    )]
    Miswritten {
        /// The file of the copy.
        path: PathBuf,
    },
    /// The target of a restore is in use.
    #[error("{} is not empty; restore into new directories, or move the present data away first", path.display())]
    NotEmpty {
        /// The directory or file.
        path: PathBuf,
    },
    /// The master key of the target is not the one of the backup.
    #[error("{} is not the master key of this backup; move it away, or use the right one", path.display())]
    OtherKey {
        /// The key file.
        path: PathBuf,
    },
    /// The key file of the target cannot be used.
    #[error("the key file of the target cannot be used")]
    Key(#[source] Box<secrets::MasterKeyError>),
    /// The key file of the target does not have a version that records of the backup need.
    #[error(
        "records of this backup are sealed with the master key {}, which {} does not have; add that key to the file as a further \
         line (it was in the key file when the backup was made), or move the file away and enter the credentials again",
        needs.join(", "),
        path.display()
    )]
    NeedsKey {
        /// The ids of the missing versions.
        needs: Vec<String>,
        /// The key file.
        path: PathBuf,
    },
    /// The master key was rotated between the copies of the database and of the key.
    #[error(
        "the master key was rotated while the backup was made: records are sealed with {}, which the key file does not have any \
         more; make the backup again",
        missing.join(", ")
    )]
    KeyRotated {
        /// The ids of the missing versions.
        missing: Vec<String>,
    },
    /// The master key of the backup does not open its records.
    #[error(
        "records of this backup are sealed with the master key {}, which its own key file does not have: it was made while the key was \
         rotated; use another backup, or put a key file with all of them at {} before the restore",
        missing.join(", "),
        path.display()
    )]
    OwnKey {
        /// The ids of the missing versions.
        missing: Vec<String>,
        /// The key file of the target.
        path: PathBuf,
    },
    /// The master key is not in the data directory.
    #[error("the master key cannot be part of the backup: {reason}")]
    NoKey {
        /// The reason why the key is not part of the backup.
        reason: &'static str,
    },
    /// The database could not be copied or checked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder of scheduled backups does not exist.
    #[error("the folder {} of BACKUP_TARGET does not exist; is its disk mounted? Create it once with install -d -m 0700", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of scheduled backups was on a disk of its own and is not now.
    #[error(
        "the folder {} of BACKUP_TARGET was on another disk than now; is its disk mounted? If the folder is meant to be there, move \
         the newest backup into it, or name another folder",
        path.display()
    )]
    NotMounted {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of scheduled backups does not respond.
    #[error("BACKUP_TARGET {target} does not respond; check its disk, or the server that it is mounted from")]
    Silent {
        /// The target.
        target: String,
    },
    /// The folder of scheduled backups has none of those that were made there.
    #[error(
        "the folder {} of BACKUP_TARGET has none of the backups that were made there; is its disk mounted? If they were removed, make \
         another one: shoal backup now",
        path.display()
    )]
    NoneThere {
        /// The folder.
        path: PathBuf,
    },
    /// The disk of the target has too little space.
    #[error(
        "the disk of {} has {} MiB free and this backup needs about {} MiB; free space, or use a larger disk or a smaller BACKUP_KEEP",
        path.display(),
        free >> 20,
        needed.div_ceil(1 << 20)
    )]
    NoRoom {
        /// The folder.
        path: PathBuf,
        /// The free bytes.
        free: u64,
        /// The bytes that the backup needs.
        needed: u64,
    },
    /// The folder has backups of more than one series, and none was named.
    #[error("{place} has backups of {} controllers; name one: {}", newest.len(), newest.join(", "))]
    SeveralSeries {
        /// The folder or repository.
        place: String,
        /// The newest backup of each series.
        newest: Vec<String>,
    },
    /// The controller stops.
    #[error("the operation was interrupted by the stop of the controller")]
    Interrupted,
    /// A registry did not do what was requested.
    #[error(transparent)]
    Remote(#[from] RemoteBackupError),
    /// The locks of the target could not be taken.
    #[error(transparent)]
    Locks(#[from] StartError),
}

impl BackupError {
    /// The damage of a backup whose description is missing or another one.
    pub(super) fn not_as_made() -> Self {
        let reason = "backup.json, or the manifest, is missing or is not the one that was made".to_owned();
        Self::Damaged { reason }
    }
}

/// Wraps an error of a file operation.
pub(super) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { operation, path, source }
}
