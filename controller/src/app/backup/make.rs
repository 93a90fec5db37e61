//! Makes a backup: copies the data of a controller that may be running.

use std::fs;
use std::path::{Path, PathBuf};

use super::copy::{Copier, Sharing, sums_of};
use super::error::{BackupError, file};
use super::names::{DATA, DATABASE, LIBRARY, MASTER_KEY, SUMMARY, names};
use super::partial::{PartialBackup, remove_abandoned};
use super::registry;
use super::summary::{BackupSummary, FORMAT, SeriesPlace};
use super::tag_times;
use super::work::Work;
use access::audit::{AuditAction, local_entry};
use model::Time;
use secrets::KeyRing;
use settings::Settings;
use store::{back_up as copy_database, keys_of_copy, record_in_file};
use zeroize::Zeroizing;

/// An order to copy the data directory: the settings, the key, the place in the series and the way to copy.
pub(super) struct CopyOrder<'a> {
    pub(super) settings: &'a Settings,
    pub(super) master_key: bool,
    pub(super) series: Option<SeriesPlace>,
    pub(super) sharing: Sharing,
    pub(super) work: Work,
    pub(super) now: Time,
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
    let parent = match destination.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let name = destination.file_name().map(|name| name.to_string_lossy().into_owned());
    let name =
        name.ok_or_else(|| file("use", destination)(std::io::Error::other("the path names no directory")))?;
    require_data(settings)?;
    fs::create_dir_all(&parent).map_err(file("create", &parent))?;
    remove_abandoned(&parent, &name)?;
    let partial = PartialBackup::begin(&parent, &name)?;
    let (series, sharing, work) = (None, Sharing::Nothing, Work::default());
    let summary = copy_data(partial.path(), CopyOrder { settings, master_key, series, sharing, work, now })?;
    // Before the backup has its name: no backup without an entry.
    let kind = if master_key { "backup-with-master-key" } else { "backup" };
    record_in_file(&settings.db_path, &local_entry(AuditAction::DataBackup, kind, &name, now))?;
    partial.finish(&name)?;
    Ok(summary)
}

fn require_data(settings: &Settings) -> Result<(), BackupError> {
    let path = || settings.db_path.clone();
    match settings.db_path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(BackupError::NoData { path: path() }),
        Err(source) => Err(BackupError::UnreadableData { path: path(), source }),
    }
}

/// Copies the data into an empty directory.
pub(super) fn copy_data(root: &Path, order: CopyOrder<'_>) -> Result<BackupSummary, BackupError> {
    let CopyOrder { settings, master_key, series, sharing, work, now } = order;
    require_data(settings)?;
    let mut copier = Copier::new(root)?.part_of(&work, &sharing);
    if settings.enable_registry {
        registry::copy(&mut copier, &settings.registry_storage)?;
    }
    let reason = format!("the data was restored from the backup of {now}");
    copier.create_directory(Path::new(DATA))?;
    work.advance(0)?;
    let counted = copy_database(&settings.db_path, &root.join(DATABASE), &reason, now)?;
    let key_of = |text: &str| secrets::sealed_with(text).map(|id| id.to_string());
    let sealed_with: Vec<String> = keys_of_copy(&root.join(DATABASE), key_of)?.into_iter().collect();
    if master_key {
        // Right after the database: the key file of a rotation has the former key until every record is sealed again.
        copy_key(&mut copier, settings)?;
        let missing = missing_versions(&root.join(MASTER_KEY), &sealed_with)?;
        if !missing.is_empty() {
            return Err(BackupError::KeyRotated { missing });
        }
    }
    work.advance(0)?;
    copier.copy_library(&settings.maintenance_dir(), Path::new(LIBRARY))?;
    if settings.enable_registry {
        registry::copy(&mut copier, &settings.registry_storage)?;
        registry::complete(&mut copier, &settings.registry_storage)?;
        let times = std::mem::take(&mut copier.tag_times);
        tag_times::write(&mut copier, &times)?;
    }
    let damaged = std::mem::take(&mut copier.damaged).into_iter().collect();
    let sums = sums_of(root, &work)?;
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
        series,
    };
    let text = serde_json::to_vec_pretty(&summary)
        .map_err(|error| file("write", &root.join(SUMMARY))(error.into()))?;
    copier.write(Path::new(SUMMARY), &text)?;
    copier.sync_directories()?;
    Ok(summary)
}

/// Copies the key file of the data directory.
fn copy_key(copier: &mut Copier, settings: &Settings) -> Result<(), BackupError> {
    let key = match settings.master_key {
        None => settings.master_key_file(),
        Some(_) => {
            return Err(BackupError::NoKey { reason: "MASTER_KEY names its source; back that up instead" });
        }
    };
    copier.copy_secret(&key, Path::new(MASTER_KEY))
}

/// The versions of these that a key file of a backup does not have.
pub(super) fn missing_versions(key: &Path, needed: &[String]) -> Result<Vec<String>, BackupError> {
    if needed.is_empty() {
        return Ok(Vec::new());
    }
    // Not as a key file: a backup may be on a medium without permissions.
    let text = Zeroizing::new(fs::read_to_string(key).map_err(file("read", key))?);
    let ring = KeyRing::from_hex(&text.as_str().into()).map_err(|error| BackupError::Key(Box::new(error)))?;
    let mut has = vec![ring.in_force().id.to_string()];
    has.extend(ring.accepted().iter().map(|version| version.id.to_string()));
    Ok(needed.iter().filter(|id| !has.contains(id)).cloned().collect())
}

/// The bytes that a copy of the data needs about, without content that it shares.
pub(super) fn needed(settings: &Settings, sharing: &Sharing) -> Result<u64, BackupError> {
    let shared = |relative: PathBuf| match sharing {
        Sharing::Nothing => false,
        Sharing::Source => true,
        Sharing::Earlier(root) => root.join(relative).exists(),
    };
    let mut bytes = length(&settings.db_path);
    let library = settings.maintenance_dir();
    for name in names(&library)? {
        let name = name?;
        if !shared(Path::new(LIBRARY).join(&name)) {
            bytes = bytes.saturating_add(length(&library.join(&name)));
        }
    }
    if settings.enable_registry {
        let blobs = settings.registry_storage.join("blobs");
        for algorithm in names(&blobs)? {
            let algorithm = algorithm?;
            for hex in names(&blobs.join(&algorithm))? {
                let below = Path::new("blobs").join(&algorithm).join(hex?);
                if !shared(Path::new(super::names::REGISTRY).join(&below)) {
                    bytes = bytes.saturating_add(length(&settings.registry_storage.join(&below)));
                }
            }
        }
    }
    Ok(bytes)
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}
