//! Backups in a folder. Everything here blocks on the disk.
//!
//! ```text
//!   FOLDER/shoal-3f9a1c2b-000012-20261124T033000Z/     a backup
//!   FOLDER/.shoal-3f9a1c2b.partial-UUID/               one that is being made or removed; the next backup removes a left one
//! ```
//!
//! Invariants: a backup is verified before it has its name; a name is taken away before the first file is removed; nothing is
//! removed that has not the digest of its record. The folder is never created: an empty mount point would be filled instead of its disk.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::copy::{Sharing, digest_of};
use super::error::{BackupError, file};
use super::make::{CopyOrder, copy_data, needed};
use super::names::{SUMMARY, names, sync_directory};
use super::partial::{PartialBackup, remove_abandoned};
use super::series::{stem, stem_of};
use super::state::{BackupDisk, BackupRecord};
use super::summary::{BackupSummary, SeriesPlace};
use super::verify::{read_summary, verify_as};
use super::work::{Phase, Work};
use model::Time;
use settings::Settings;

/// The bytes that a backup leaves free on the disk of its target.
const RESERVE: u64 = 64 << 20;
/// The maximum of backups that are listed.
const LISTED: usize = 1000;

/// A complete and verified backup without its name.
#[derive(Debug)]
pub(super) struct PreparedFolder {
    pub(super) partial: PartialBackup,
    pub(super) summary: BackupSummary,
    pub(super) digest: String,
    pub(super) disk: BackupDisk,
}

/// A folder of backups.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// STORAGE_ROOT.
    data: PathBuf,
}

impl Folder {
    pub(super) fn new(path: &Path, data: &Path) -> Self {
        Self { path: path.to_owned(), data: data.to_owned() }
    }

    /// Removes what interrupted backups of a series left. Returns how many.
    pub(super) fn sweep(&self, series: &str) -> Result<usize, BackupError> {
        self.require()?;
        remove_abandoned(&self.path, &stem(series))
    }

    fn require(&self) -> Result<(), BackupError> {
        match self.path.is_dir() {
            true => Ok(()),
            false => Err(BackupError::NoFolder { path: self.path.clone() }),
        }
    }

    /// The disk that the folder is on.
    ///
    /// # Errors
    /// When there is no folder, or the disk on which `newest` was made is not the one that is there: an empty mount point, in which
    /// nothing is written and nothing is judged. A folder in which `newest` is was moved to its disk on purpose.
    fn require_disk(&self, newest: Option<&BackupRecord>) -> Result<BackupDisk, BackupError> {
        self.require()?;
        let disk = BackupDisk { apart: !same_disk(&self.path, &self.data), mount: mount_point(&self.path) };
        let is_lost = newest.is_some_and(|newest| {
            (newest.disk.apart && !disk.apart)
                || (newest.disk.is_unmounted_in(&disk) && !self.path.join(&newest.name).is_dir())
        });
        match is_lost {
            true => Err(BackupError::NotMounted { path: self.path.clone() }),
            false => Ok(disk),
        }
    }

    /// Copies and verifies. `former` is the newest good backup in the folder, with which equal content is shared; `newest` may be a
    /// damaged one.
    pub(super) fn prepare(
        &self,
        settings: &Settings,
        place: &SeriesPlace,
        (newest, former): (Option<&BackupRecord>, Option<&BackupRecord>),
        work: &Work,
        now: Time,
    ) -> Result<PreparedFolder, BackupError> {
        let disk = self.require_disk(newest)?;
        self.sweep(&place.id)?;
        let sharing = former.map(|former| self.path.join(&former.name)).filter(|path| path.is_dir());
        let sharing = sharing.map_or(Sharing::Nothing, Sharing::Earlier);
        require_room(&self.path, needed(settings, &sharing)?)?;
        let partial = PartialBackup::begin(&self.path, &stem(&place.id))?;
        work.begin(Phase::Copying);
        let order = CopyOrder {
            settings,
            master_key: false,
            series: Some(place.clone()),
            sharing,
            work: work.clone(),
            now,
        };
        copy_data(partial.path(), order)?;
        work.begin(Phase::Verifying);
        let summary = verify_as(partial.path(), work)?;
        let digest = digest_of_summary(partial.path())?;
        Ok(PreparedFolder { partial, summary, digest, disk })
    }

    /// Whether a backup of this digest has this name.
    ///
    /// # Errors
    /// When the folder is not on the disk of the backup, or cannot be read.
    pub(super) fn contains(&self, record: &BackupRecord) -> Result<bool, BackupError> {
        self.require_disk(Some(record))?;
        let path = self.path.join(&record.name);
        let summary = path.join(SUMMARY);
        match summary.try_exists().map_err(file("look at", &summary))? {
            true => Ok(digest_of_summary(&path)? == record.digest),
            false => Ok(false),
        }
    }

    /// Removes a backup, unless another one has its name.
    pub(super) fn remove(&self, record: &BackupRecord, series: &str) -> Result<(), BackupError> {
        // A name of a record is never a path.
        if stem_of(&record.name).is_none() || !self.contains(record)? {
            return Ok(());
        }
        let path = self.path.join(&record.name);
        let taken = self.path.join(format!(".{}.partial-{}", stem(series), uuid::Uuid::new_v4()));
        fs::rename(&path, &taken).map_err(file("remove", &path))?;
        sync_directory(&self.path)?;
        fs::remove_dir_all(&taken).map_err(file("remove", &taken))
    }

    /// Reads all of a backup. `records`: what this controller has made in the folder.
    pub(super) fn verify(
        &self,
        name: &str,
        records: &[BackupRecord],
        work: &Work,
    ) -> Result<(), BackupError> {
        self.require_disk(records.last())?;
        if let Some(record) = records.iter().find(|record| record.name == name)
            && !self.contains(record)?
        {
            // Another disk may be mounted there.
            let is_there = |record: &BackupRecord| self.path.join(&record.name).exists();
            return Err(match records.iter().any(is_there) {
                true => BackupError::not_as_made(),
                false => BackupError::NoneThere { path: self.path.clone() },
            });
        }
        verify_as(&self.path.join(name), work).map(drop)
    }

    /// The backups in the folder by their names, also those of others.
    pub(super) fn list(&self) -> Result<Vec<(String, BackupSummary)>, BackupError> {
        self.require()?;
        let mut found = Vec::new();
        for name in names(&self.path)? {
            let name = name?;
            if name.starts_with('.') {
                continue;
            }
            if let Ok(summary) = read_summary(&self.path.join(&name)) {
                found.push((name, summary));
            }
            if found.len() == LISTED {
                break;
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(found)
    }
}

/// The digest by which a backup in a folder is known: that of its `backup.json`, which has that of all other files.
fn digest_of_summary(backup: &Path) -> Result<String, BackupError> {
    let (hex, _length) = digest_of(&backup.join(SUMMARY), &Work::default())?;
    Ok(format!("sha256:{hex}"))
}

/// Refuses a backup for which the disk has no space.
pub(super) fn require_room(path: &Path, needed: u64) -> Result<(), BackupError> {
    let disk =
        rustix::fs::statvfs(path).map_err(|errno| file("read the free space of", path)(errno.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    match free >= needed.saturating_add(RESERVE) {
        true => Ok(()),
        false => Err(BackupError::NoRoom { path: path.to_owned(), free, needed }),
    }
}

/// Whether two places, or the nearest directories above them, are on one file system.
pub fn same_disk(one: &Path, other: &Path) -> bool {
    let disk =
        |path: &Path| path.ancestors().find_map(|place| place.metadata().ok()).map(|found| found.dev());
    match (disk(one), disk(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Where the disk of a place is mounted, without links.
fn mount_point(place: &Path) -> Option<String> {
    let place = place.canonicalize().ok()?;
    let disk = place.metadata().ok()?.dev();
    let is_there = |above: &&Path| above.metadata().is_ok_and(|found| found.dev() == disk);
    place.ancestors().take_while(is_there).last()?.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_above_the_mount_point_of_another_one_is_an_empty_mount_point() {
        let at = |mount: &str| BackupDisk { apart: true, mount: Some(mount.to_owned()) };
        let cases = [
            ("/mnt/backups", "/", true),
            ("/mnt/backups", "/mnt", true),
            ("/mnt/backups", "/mnt/backups", false),
            ("/mnt/backups", "/mnt/back", false),
            ("/mnt/backups", "/srv", false),
            ("/", "/mnt/backups", false),
        ];
        for (before, now, is_unmounted) in cases {
            assert_eq!(at(before).is_unmounted_in(&at(now)), is_unmounted, "{before} {now}");
        }
        assert!(!BackupDisk::ELSEWHERE.is_unmounted_in(&at("/")));
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/proc/self", link.path().join("link")).unwrap();
        assert_eq!(mount_point(&link.path().join("link")).as_deref(), Some("/proc"));
    }
}
