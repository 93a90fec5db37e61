//! Which backup a path or a reference means, for commands.
//!
//! ```text
//!   DIRECTORY with backup.json                 this backup
//!   DIRECTORY/shoal-3f9a1c2b-000012-…          a folder of backups: the newest one; several controllers: one must be named
//!   oci://HOST/REPOSITORY[:TAG|@sha256:HEX]    a backup in a registry, or the newest one
//! ```

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::super::lock::refuse_foreign;
use super::error::{BackupError, file};
use super::names::{SUMMARY, names};
use super::remote::RemoteRegistry;
use super::restore::{EmptyPlace, restore};
use super::series::newest_of_each;
use super::summary::BackupSummary;
use super::verify::verify;
use super::work::Work;
use model::Time;
use settings::{BackupReference, Settings};

/// The directory in STORAGE_ROOT into which a backup of a registry is read before it is restored.
const DOWNLOAD: &str = "restore-download";

/// A backup that a command names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupSource {
    /// A directory: a backup, or a folder of backups.
    Directory(PathBuf),
    /// A backup in a registry.
    Registry(BackupReference),
}

impl BackupSource {
    /// Parses a path or a reference.
    ///
    /// # Errors
    /// The valid form of a reference.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match BackupReference::parse(text) {
            Some(reference) => reference.map(Self::Registry),
            None => Ok(Self::Directory(PathBuf::from(text))),
        }
    }

    /// Reads all of the backup and compares it with its digests. Returns its place, and what is in it if it is a directory.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or the place has backups of several controllers.
    pub async fn verify(&self, settings: &Settings) -> Result<(String, Option<BackupSummary>), BackupError> {
        match self {
            Self::Directory(path) => {
                let path = newest_in(path)?;
                verify(&path).map(|summary| (path.display().to_string(), Some(summary)))
            }
            Self::Registry(reference) => {
                let registry = RemoteRegistry::of(settings, &reference.target)?;
                let found = registry.find(reference.name.as_deref()).await?;
                registry.verify(&found.digest, &Work::default()).await?;
                Ok((format!("{} {}", registry.place(), found.name), None))
            }
        }
    }

    /// Restores the backup. Returns its place.
    ///
    /// # Errors
    /// When [`restore`] refuses or fails, or a registry cannot be read.
    pub async fn restore(
        &self,
        settings: &Settings,
        now: Time,
    ) -> Result<(String, BackupSummary), BackupError> {
        // Before the download, which is in the data directory too.
        refuse_foreign(settings)?;
        match self {
            Self::Directory(path) => {
                let path = newest_in(path)?;
                restore(settings, &path, now).map(|summary| (path.display().to_string(), summary))
            }
            Self::Registry(reference) => {
                let registry = RemoteRegistry::of(settings, &reference.target)?;
                let found = registry.find(reference.name.as_deref()).await?;
                let summary = registry.summary(&found, &Work::default()).await?;
                // Before the download: it is large, and it is in the data directory.
                let place = EmptyPlace::take(settings, &summary)?;
                let download = Download::begin(settings)?;
                let directory = download.0.join(&found.name);
                create(&directory)?;
                registry.pull(&found, &directory, &Work::default()).await?;
                let summary = place.restore(&directory, now)?;
                Ok((format!("{} {}", registry.place(), found.name), summary))
            }
        }
    }
}

/// The backup that a directory is, or the newest one in it.
fn newest_in(path: &Path) -> Result<PathBuf, BackupError> {
    if path.join(SUMMARY).exists() {
        return Ok(path.to_owned());
    }
    let complete =
        names(path)?.filter(|name| name.as_ref().map_or(true, |name| path.join(name).join(SUMMARY).exists()));
    let mut newest = newest_of_each(complete.collect::<Result<Vec<_>, _>>()?);
    match newest.len() {
        // The error says that this is no backup.
        0 => Ok(path.to_owned()),
        1 => Ok(path.join(newest.remove(0))),
        _ => Err(BackupError::SeveralSeries { place: path.display().to_string(), newest }),
    }
}

/// The directory into which a backup is read, under the locks of the data. It is removed at the end, and before it begins.
struct Download(PathBuf);

impl Download {
    fn begin(settings: &Settings) -> Result<Self, BackupError> {
        remove_left_download(settings)?;
        let path = settings.storage_root.join(DOWNLOAD);
        create(&path)?;
        Ok(Self(path))
    }
}

/// Removes what a killed restore has read. The caller holds the locks of the data. Returns whether there was anything.
pub(super) fn remove_left_download(settings: &Settings) -> Result<bool, BackupError> {
    let path = settings.storage_root.join(DOWNLOAD);
    match fs::remove_dir_all(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(file("remove", &path)(error)),
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next restore, or at the start of a controller.
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn create(path: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(file("create", path))
}
