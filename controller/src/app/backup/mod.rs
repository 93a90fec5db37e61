//! Backups: a copy of the data directory that is made while a controller runs, and its restoration (decision D26).
//!
//! ```text
//!   DESTINATION/
//!     backup.json               what the backup contains; written last
//!     SHA256SUMS                one line per file, as sha256sum writes it
//!     data/provisioner.db       the database of one moment, every server in it restored
//!     data/maintenance/*.iso    the maintenance images
//!     data/oci/...              the content and the records of the registry
//!     data/master.key           only when requested
//!
//!   back up:  registry --> database --> library, and the registry again (what is new)  --> sums --> backup.json --> rename
//!   restore:  verify everything --> locks --> marker --> files --> sums compared --> marker removed
//! ```
//!
//! Invariants
//! - What the database of the backup refers to is in the backup. The registry is copied before the database (content that is deleted
//!   meanwhile is in the copy) and again after it (content that arrived meanwhile is added). Library images are never deleted.
//! - A backup that was not completed has another name and no `backup.json`. It is removed by the next backup with that name.
//! - A restore that was not completed leaves the marker. No controller starts on such a directory, and the next restore begins
//!   again.
//! - The master key, without which no sealed BMC password can be read, is not part of a backup unless requested.

mod copy;
mod registry;
mod restore;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde::{Deserialize, Serialize};

use super::StartError;
use crate::audit::{AuditAction, local_entry};
use crate::config::Settings;
use engine::model::Time;
use engine::store::{StoreError, back_up as copy_database, keys_of_copy, record_in_file};

use self::copy::{Copier, sums_of};

pub(super) use self::restore::refuse_incomplete;
pub use self::restore::{restore, verify};

/// The form of backups that this program writes and reads.
const FORMAT: u32 = 1;
/// The names in a backup.
const SUMMARY: &str = "backup.json";
const SUMS: &str = "SHA256SUMS";
const DATA: &str = "data";
const DATABASE: &str = "data/provisioner.db";
const MASTER_KEY: &str = "data/master.key";
const LIBRARY: &str = "data/maintenance";
const REGISTRY: &str = "data/oci";

/// What a backup contains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSummary {
    format: u32,
    /// The version of the program that made the backup.
    pub program: String,
    /// When the backup was made.
    pub made_at: Time,
    /// The time of the last event in it; `None` when nothing has happened.
    pub as_of: Option<Time>,
    /// The number of servers.
    pub servers: u64,
    /// The number of jobs.
    pub jobs: u64,
    /// The number of jobs that have not ended.
    pub unfinished: u64,
    /// The number of files.
    pub files: u64,
    /// The size of all files in bytes.
    pub bytes: u64,
    /// Whether the backup contains the content of the registry.
    pub registry: bool,
    /// Whether the backup contains the master key.
    pub master_key: bool,
    /// The ids of the versions of the master key with which records of the backup are sealed.
    #[serde(default)]
    pub sealed_with: Vec<String>,
    /// Content that was damaged or missing in the data directory and is not part of the backup.
    pub damaged: Vec<String>,
    /// The SHA-256 digest of `SHA256SUMS`, in hex.
    sums_sha256: String,
}

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
    /// The directory is not a complete backup of a known form.
    #[error("{} is not a backup that this program can read: {reason}", path.display())]
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of the backup is missing, damaged or not part of it.
    #[error("the backup is damaged: {reason}; nothing was restored; use another backup")]
    Damaged {
        /// What is wrong, with the file.
        reason: String,
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
    /// The master key is not in the data directory.
    #[error("the master key cannot be part of the backup: {reason}")]
    NoKey {
        /// Why not.
        reason: &'static str,
    },
    /// The database could not be copied or checked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The locks of the target could not be taken.
    #[error(transparent)]
    Locks(#[from] StartError),
}

/// Wraps an error of a file operation.
fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { operation, path, source }
}

/// Backs up a data directory, also while a controller uses it. Blocks on the disk.
///
/// # Errors
/// When the destination exists, a file cannot be read or written, or the copy of the database is damaged. No backup exists then.
pub fn back_up(
    settings: &Settings,
    destination: &Path,
    master_key: bool,
    now: Time,
) -> Result<BackupSummary, BackupError> {
    if destination.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: destination.to_owned() });
    }
    if !settings.db_path.exists() {
        return Err(BackupError::NoData { path: settings.db_path.clone() });
    }
    let partial = PartialBackup::begin(destination)?;
    let root = partial.path.as_path();
    let mut copier = Copier::new(root)?;
    if settings.enable_registry {
        registry::copy(&mut copier, &settings.registry_storage)?;
    }
    let reason = format!("the data was restored from the backup of {now}");
    copier.create_directory(Path::new(DATA))?;
    let counted = copy_database(&settings.db_path, &root.join(DATABASE), &reason, now)?;
    let key_of = |text: &str| secrets::sealed_with(text).map(|id| id.to_string());
    let sealed_with = keys_of_copy(&root.join(DATABASE), key_of)?.into_iter().collect();
    copier.copy_library(&settings.maintenance_dir(), Path::new(LIBRARY))?;
    if settings.enable_registry {
        registry::copy(&mut copier, &settings.registry_storage)?;
        registry::complete(&mut copier, &settings.registry_storage)?;
    }
    if master_key {
        let key = match settings.master_key {
            None => settings.master_key_file(),
            Some(_) => {
                return Err(BackupError::NoKey {
                    reason: "MASTER_KEY names its source; back that up instead",
                });
            }
        };
        copier.copy_secret(&key, Path::new(MASTER_KEY))?;
    }
    let damaged = std::mem::take(&mut copier.damaged).into_iter().collect();
    let sums = sums_of(root)?;
    let summary = BackupSummary {
        format: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: now,
        as_of: counted.as_of,
        servers: counted.servers,
        jobs: counted.jobs,
        unfinished: counted.unfinished,
        files: sums.files,
        bytes: sums.bytes,
        registry: settings.enable_registry,
        master_key,
        sealed_with,
        damaged,
        sums_sha256: sums.sha256,
    };
    let text = serde_json::to_vec_pretty(&summary)
        .map_err(|error| file("write", &root.join(SUMMARY))(error.into()))?;
    copier.write(Path::new(SUMMARY), &text)?;
    copier.sync_directories()?;
    // Before the backup has its name: no backup without an entry.
    let name = destination.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kind = if master_key { "backup-with-master-key" } else { "backup" };
    record_in_file(&settings.db_path, &local_entry(AuditAction::DataBackup, kind, &name, now))?;
    partial.finish(destination)?;
    Ok(summary)
}

/// A backup under its temporary name. Dropped without [`Self::finish`], it is removed.
struct PartialBackup {
    path: PathBuf,
    parent: PathBuf,
    finished: bool,
    _lock: File,
}

impl PartialBackup {
    fn begin(destination: &Path) -> Result<Self, BackupError> {
        let parent = match destination.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let name = destination.file_name().map(|name| name.to_string_lossy().into_owned());
        let name =
            name.ok_or_else(|| file("use", destination)(io::Error::other("the path names no directory")))?;
        let prefix = format!(".{name}.partial-");
        fs::create_dir_all(&parent).map_err(file("create", &parent))?;
        for entry in fs::read_dir(&parent).map_err(file("list", &parent))? {
            let entry = entry.map_err(file("list", &parent))?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                remove_abandoned(&entry.path())?;
            }
        }
        let path = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4()));
        copy::create_directory(&path)?;
        let lock = File::open(&path).map_err(file("open", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| file("lock", &path)(errno.into()))?;
        Ok(Self { path, parent, finished: false, _lock: lock })
    }

    /// Gives the complete backup its name.
    fn finish(mut self, destination: &Path) -> Result<(), BackupError> {
        renameat_with(CWD, &self.path, CWD, destination, RenameFlags::NOREPLACE).map_err(
            |errno| match errno {
                rustix::io::Errno::EXIST => BackupError::Exists { path: destination.to_owned() },
                errno => file("name the backup", destination)(errno.into()),
            },
        )?;
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

/// Removes what a backup left that was interrupted; one that is being made is locked and stays.
fn remove_abandoned(path: &Path) -> Result<(), BackupError> {
    let Ok(directory) = File::open(path) else { return Ok(()) };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => fs::remove_dir_all(path).map_err(file("remove", path)),
        Err(_in_use) => Ok(()),
    }
}

fn sync_directory(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(file("sync", path))
}
