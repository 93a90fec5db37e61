//! The backups of the controller of a data directory, for commands that change nothing.

use super::error::BackupError;
use super::folder::Folder;
use super::state::{BackupState, KEY};
use model::Time;
use settings::{BackupTarget, Settings};
use store::setting_in_file;

/// When the controller of a data directory made its backups, by its record and by what its target has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnBackups {
    /// The time of the newest one that is not damaged, of those that are not later than now.
    pub newest: Option<Time>,
    /// The time of one that is later than now.
    pub later: Option<Time>,
}

/// Reads what the controller of these settings has made at their target. Backups of others, and those that are recorded as damaged, do
/// not count. `None` when no controller has a record of backups. Blocks on the disk.
///
/// # Errors
/// When the database, or a folder, cannot be read.
pub fn own_backups(settings: &Settings, now: Time) -> Result<Option<OwnBackups>, BackupError> {
    let Some(target) = &settings.backup_target else { return Ok(None) };
    let path = &settings.db_path;
    let exists = path.try_exists();
    if !exists.map_err(|source| BackupError::UnreadableData { path: path.clone(), source })? {
        return Ok(None);
    }
    let stored = setting_in_file(path, KEY)?;
    let Some(state) = stored.and_then(|text| serde_json::from_str::<BackupState>(&text).ok()) else {
        return Ok(None);
    };
    let (damaged, good): (Vec<_>, Vec<_>) =
        state.made_at(&target.to_string()).into_iter().partition(|record| record.damage.is_some());
    let times: Vec<Time> = match target {
        BackupTarget::Folder(path) => {
            let found = Folder::new(path, &settings.storage_root).list()?;
            let own = found.into_iter().filter(|(name, summary)| {
                summary.series.as_ref().is_some_and(|place| place.id == state.series)
                    && !damaged.iter().any(|record| record.name == *name)
            });
            own.map(|(_, summary)| summary.made_at).collect()
        }
        BackupTarget::Registry(_) => good.into_iter().map(|record| record.made_at).collect(),
    };
    let (known, later): (Vec<Time>, Vec<Time>) = times.into_iter().partition(|time| *time <= now);
    Ok(Some(OwnBackups { newest: known.into_iter().max(), later: later.into_iter().max() }))
}
