//! Verifies a backup and restores it into the empty directories that the settings name.
//!
//! ```text
//!   verify --> locks --> empty? (or the marker: a restore was interrupted, its files are removed) --> marker --> files --> no marker
//! ```
//!
//! A backup of a registry is read after `locks` and `empty?`, into a directory that only the holder of the locks writes and removes.
//!
//! The master key is copied under another name and renamed: a file with its name has a whole key, and is never removed, because an
//! operator may have put it there.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::super::lock::{self, DataLock};
use super::super::{StartError, create_directory};
use super::copy::{Copied, Copier, Promised, Sharing};
use super::error::{BackupError, file};
use super::make::missing_versions;
use super::names::{DATABASE, LIBRARY, MASTER_KEY, REGISTRY, names, sync_directory};
use super::summary::BackupSummary;
use super::tag_times;
use super::verify::{listed, verify};
use super::work::Work;
use access::audit::{AuditAction, local_entry};
use model::Time;
use secrets::KeyRing;
use settings::Settings;
use store::record_in_file;

/// The file in STORAGE_ROOT that exists while a restore is not complete.
const MARKER: &str = "restore-incomplete";

/// Refuses a data directory in which a restore was interrupted.
pub(in crate::app) fn refuse_incomplete(settings: &Settings) -> Result<(), StartError> {
    match settings.storage_root.join(MARKER).exists() {
        true => Err(StartError::RestoreIncomplete { path: settings.storage_root.clone() }),
        false => Ok(()),
    }
}

/// Restores a backup into the directories that the settings name. They must be empty, except for a master key. Blocks on the disk.
/// Every server is restored afterwards: nothing is done to it until an operator releases it.
///
/// # Errors
/// When the backup is damaged, a controller uses one of the directories, or one of them is not empty: nothing is changed then. When a
/// file cannot be written, the restore can be repeated; no controller starts before it is complete.
pub fn restore(settings: &Settings, backup: &Path, now: Time) -> Result<BackupSummary, BackupError> {
    let summary = verify(backup)?;
    let locks = DataLock::take(settings)?;
    fill_empty(settings, &locks, backup, (&summary, &Sharing::Nothing), now)?;
    Ok(summary)
}

/// The directories of a restore, locked and empty, before its backup is here.
pub(super) struct EmptyPlace<'a> {
    settings: &'a Settings,
    locks: DataLock,
}

impl<'a> EmptyPlace<'a> {
    /// Locks the directories. What an interrupted restore wrote is no content.
    ///
    /// # Errors
    /// When a controller or another restore uses one of them, or one is not empty. Nothing is removed.
    pub(super) fn take(settings: &'a Settings, summary: &BackupSummary) -> Result<Self, BackupError> {
        let locks = DataLock::take(settings)?;
        let target = Target::of(settings, &locks, summary);
        target.require_empty(&places_of(&target.storage.join(MARKER))?)?;
        Ok(Self { settings, locks })
    }

    /// Verifies and restores a backup whose files become those of the data. The locks are held until the place is dropped.
    pub(super) fn restore(&self, backup: &Path, now: Time) -> Result<BackupSummary, BackupError> {
        let summary = verify(backup)?;
        fill_empty(self.settings, &self.locks, backup, (&summary, &Sharing::Source), now)?;
        Ok(summary)
    }
}

/// Restores a verified backup.
fn fill_empty(
    settings: &Settings,
    locks: &DataLock,
    backup: &Path,
    (summary, sharing): (&BackupSummary, &Sharing),
    now: Time,
) -> Result<(), BackupError> {
    let target = Target::of(settings, locks, summary);
    let marker = target.storage.join(MARKER);
    target.clear(&places_of(&marker)?)?;
    target.require_empty(&[])?;
    let of_backup = backup.join(MASTER_KEY);
    let missing = match summary.master_key {
        true => missing_versions(&of_backup, &summary.sealed_with)?,
        false => Vec::new(),
    };
    // A key file of the target may have what that of the backup lacks.
    let complete = missing.is_empty();
    if !complete && settings.master_key.is_none() && !target.key.exists() {
        return Err(BackupError::OwnKey { missing, path: target.key });
    }
    if complete {
        target.require_key_of(backup)?;
    }
    if settings.master_key.is_none() && !(summary.master_key && complete) {
        target.require_versions(&summary.sealed_with)?;
    }
    fs::write(&marker, target.marker()).map_err(file("write", &marker))?;
    File::open(&marker).and_then(|marker| marker.sync_all()).map_err(file("sync", &marker))?;
    sync_directory(&target.storage)?;
    target.fill(backup, summary, sharing)?;
    let name = backup.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    record_in_file(&target.database, &local_entry(AuditAction::DataRestore, "backup", &name, now))?;
    fs::remove_file(&marker).map_err(file("remove", &marker))?;
    sync_directory(&target.storage)
}

/// The beginning of a line of the marker with a place that was empty.
const EMPTY: &str = "empty before: ";

/// The places that an interrupted restore had found empty, by its marker; none without one.
fn places_of(marker: &Path) -> Result<Vec<String>, BackupError> {
    match fs::read_to_string(marker) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.strip_prefix(EMPTY)).map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(file("read", marker)(error)),
    }
}

/// The end of the name of a master key whose copy is not complete.
const KEY_PART: &str = ".restoring";

/// The directories of a restore.
struct Target {
    storage: PathBuf,
    database: PathBuf,
    library: PathBuf,
    registry: Option<PathBuf>,
    key: PathBuf,
}

/// Whether an interrupted restore had found a place empty.
fn was_empty(found_empty: &[String], path: &Path) -> bool {
    found_empty.iter().any(|place| *place == path.display().to_string())
}

impl Target {
    fn of(settings: &Settings, locks: &DataLock, summary: &BackupSummary) -> Self {
        Self {
            storage: settings.storage_root.clone(),
            database: locks.database().to_owned(),
            library: settings.maintenance_dir(),
            registry: (settings.enable_registry && summary.registry)
                .then(|| settings.registry_storage.clone()),
            key: settings.master_key_file(),
        }
    }

    /// The database and the files that SQLite keeps beside it.
    fn database_files(&self) -> [PathBuf; 4] {
        ["", "-wal", "-shm", "-journal"].map(|suffix| {
            let mut path = self.database.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        })
    }

    /// The master key while it is copied.
    fn key_part(&self) -> PathBuf {
        let mut path = self.key.clone().into_os_string();
        path.push(KEY_PART);
        PathBuf::from(path)
    }

    /// Requires empty places, except for those that an interrupted restore had found empty.
    fn require_empty(&self, found_empty: &[String]) -> Result<(), BackupError> {
        let key_part = self.key_part();
        let database = self.database_files().into_iter().filter(|_| !was_empty(found_empty, &self.database));
        let files = database.chain(Some(key_part).filter(|path| !was_empty(found_empty, path)));
        let used = files.into_iter().find(|path| path.symlink_metadata().is_ok());
        if let Some(path) = used {
            return Err(BackupError::NotEmpty { path });
        }
        for path in self.directories().filter(|path| !was_empty(found_empty, path)) {
            for name in names(path)? {
                if name? != lock::LOCK_FILE {
                    return Err(BackupError::NotEmpty { path: path.clone() });
                }
            }
        }
        Ok(())
    }

    fn directories(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.library), self.registry.as_ref()].into_iter().flatten()
    }

    /// The text of the marker: what it means, and the places that were empty.
    fn marker(&self) -> String {
        let key_part = self.key_part();
        let places = [&self.database, &key_part].into_iter().chain(self.directories());
        let places: String = places.map(|path| format!("{EMPTY}{}\n", path.display())).collect();
        format!("a restore is not complete; run shoal restore again\n{places}")
    }

    /// Removes what an interrupted restore wrote into the places that it had found empty. Other places may be those of settings that
    /// were changed since.
    fn clear(&self, found_empty: &[String]) -> Result<(), BackupError> {
        let database = was_empty(found_empty, &self.database).then(|| self.database_files());
        let key_part = Some(self.key_part()).filter(|path| was_empty(found_empty, path));
        for path in database.into_iter().flatten().chain(key_part) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(file("remove", &path)(error));
                }
                _ => {}
            }
        }
        for directory in self.directories().filter(|directory| was_empty(found_empty, directory)) {
            for name in names(directory)? {
                let name = name?;
                if name == lock::LOCK_FILE {
                    continue;
                }
                let path = directory.join(name);
                let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
                let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(file("remove", &path))?;
            }
        }
        Ok(())
    }

    /// A key that is there must be the one of the backup.
    fn require_key_of(&self, backup: &Path) -> Result<(), BackupError> {
        let of_backup = backup.join(MASTER_KEY);
        if !of_backup.exists() || !self.key.exists() {
            return Ok(());
        }
        let key = fs::read(&self.key).map_err(file("read", &self.key))?;
        match key == fs::read(&of_backup).map_err(file("read", &of_backup))? {
            true => Ok(()),
            false => Err(BackupError::OtherKey { path: self.key.clone() }),
        }
    }

    /// Requires that a key file in the target opens the records of the backup. Without one the restore goes on: the operator can
    /// add it before the start.
    fn require_versions(&self, needed: &[String]) -> Result<(), BackupError> {
        let ring = KeyRing::load(&self.key).map_err(|error| BackupError::Key(Box::new(error)))?;
        let Some(ring) = ring else { return Ok(()) };
        let mut has = vec![ring.in_force().id.to_string()];
        has.extend(ring.accepted().iter().map(|version| version.id.to_string()));
        let needs: Vec<String> = needed.iter().filter(|id| !has.contains(id)).cloned().collect();
        match needs.is_empty() {
            true => Ok(()),
            false => Err(BackupError::NeedsKey { needs, path: self.key.clone() }),
        }
    }

    /// Where a file of the backup belongs: the root of a copier and the path below it; `None` for one that is not restored.
    fn place(&self, relative: &Path) -> Option<(PathBuf, PathBuf)> {
        if relative == Path::new(DATABASE) {
            let name = self.database.file_name()?;
            return Some((self.database.parent()?.to_owned(), PathBuf::from(name)));
        }
        if relative == Path::new(MASTER_KEY) {
            let place = (self.key.parent()?.to_owned(), PathBuf::from(self.key_part().file_name()?));
            return (!self.key.exists()).then_some(place);
        }
        let below = |directory: &str| relative.strip_prefix(directory).ok().map(Path::to_owned);
        if let Some(below) = below(LIBRARY) {
            return Some((self.library.clone(), below));
        }
        Some((self.registry.clone()?, below(REGISTRY)?))
    }

    fn fill(&self, backup: &Path, summary: &BackupSummary, sharing: &Sharing) -> Result<(), BackupError> {
        let mut copiers: Vec<Copier> = Vec::new();
        listed(backup, summary, &mut |hex, relative| {
            let Some((root, below)) = self.place(relative) else { return Ok(()) };
            let copier = match copiers.iter().position(|copier| copier.root() == root) {
                Some(known) => &mut copiers[known],
                None => {
                    create_directory(&root)?;
                    copiers.push(Copier::new(&root)?.part_of(&Work::default(), sharing));
                    let last = copiers.len() - 1;
                    &mut copiers[last]
                }
            };
            match copier.copy(&backup.join(relative), &below, &Promised::Sha256(hex.to_owned()))? {
                Copied::Done if relative == Path::new(MASTER_KEY) => {
                    fs::rename(self.key_part(), &self.key).map_err(file("rename", &self.key))
                }
                Copied::Done => Ok(()),
                Copied::Before | Copied::Gone | Copied::Damaged => Err(BackupError::Damaged {
                    reason: format!("{} changed while it was restored", relative.display()),
                }),
            }
        })?;
        tag_times::restore(backup, &|record| self.place(record).map(|(root, below)| root.join(below)))?;
        copiers.iter().try_for_each(Copier::sync_directories)
    }
}
