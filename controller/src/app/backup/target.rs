//! Where backups are kept: a folder or a repository, with the same operations.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::copy::{Sharing, create_directory};
use super::error::BackupError;
use super::folder::{Folder, require_room, same_disk};
use super::make::{CopyOrder, copy_data, needed};
use super::partial::{PartialBackup, remove_abandoned};
use super::remote::{Packed, RemoteBackupError, RemoteRegistry, pack};
use super::series::{name_of, stem, stem_of};
use super::state::{BackupDisk, BackupRecord};
use super::summary::SeriesPlace;
use super::verify::verify_as;
use super::work::{Phase, Work};
use api::BackupView;
use model::Time;
use settings::{BackupTarget, Settings};

/// The directory in STORAGE_ROOT in which a backup for a registry is made.
const STAGING: &str = "backup-staging";
/// The longest time of a list of a folder.
const LIST_TIME: Duration = Duration::from_secs(60);

/// Where backups are kept.
#[derive(Clone, Debug)]
pub(super) struct Target {
    settings: Arc<Settings>,
    /// The setting as text.
    pub(super) shown: String,
    kind: Kind,
    /// One list of a folder at a time: each one that does not end holds a thread.
    lists: Arc<Semaphore>,
}

#[derive(Clone, Debug)]
enum Kind {
    Folder(Folder),
    Registry(Arc<RemoteRegistry>),
}

/// A complete and verified backup without its name.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) record: BackupRecord,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Folder(PartialBackup),
    /// The blobs are in the registry; the copy on this disk is removed at the end.
    Registry(Packed, PartialBackup),
}

impl Target {
    /// The target of the settings, if there is one.
    ///
    /// # Errors
    /// When a file or secret of the settings cannot be used.
    pub(super) fn of(settings: &Arc<Settings>) -> Result<Option<Self>, RemoteBackupError> {
        let Some(target) = &settings.backup_target else { return Ok(None) };
        let kind = match target {
            BackupTarget::Folder(path) => Kind::Folder(Folder::new(path, &settings.storage_root)),
            BackupTarget::Registry(target) => Kind::Registry(Arc::new(RemoteRegistry::of(settings, target)?)),
        };
        let lists = Arc::new(Semaphore::new(1));
        Ok(Some(Self { settings: Arc::clone(settings), shown: target.to_string(), kind, lists }))
    }

    fn staging(&self) -> PathBuf {
        self.settings.storage_root.join(STAGING)
    }

    /// Removes what interrupted backups left.
    pub(super) async fn sweep(&self, series: &str) -> Result<usize, BackupError> {
        let (kind, staging, series) = (self.kind.clone(), self.staging(), series.to_owned());
        blocking(move || match kind {
            Kind::Folder(folder) => folder.sweep(&series),
            Kind::Registry(_) if staging.is_dir() => remove_abandoned(&staging, &stem(&series)),
            Kind::Registry(_) => Ok(0),
        })
        .await
    }

    /// Makes a backup up to its name: everything that can fail is done and has been read back. `newest` and `former` are the newest
    /// backup at this target, and the newest good one.
    pub(super) async fn prepare(
        &self,
        place: SeriesPlace,
        (newest, former): (Option<BackupRecord>, Option<BackupRecord>),
        work: &Work,
        now: Time,
    ) -> Result<Prepared, BackupError> {
        let name = name_of(&place, now);
        let (settings, shown) = (Arc::clone(&self.settings), self.shown.clone());
        let within = work.clone();
        match self.kind.clone() {
            Kind::Folder(folder) => {
                blocking(move || {
                    let made = folder.prepare(
                        &settings,
                        &place,
                        (newest.as_ref(), former.as_ref()),
                        &within,
                        now,
                    )?;
                    let record =
                        BackupRecord::of(&made.summary, (&name, &shown), made.digest, made.disk, now);
                    Ok(Prepared { record, held: Held::Folder(made.partial) })
                })
                .await
            }
            Kind::Registry(registry) => {
                let staging = self.staging();
                let (partial, summary, packed) = blocking(move || {
                    create_directory(&staging)?;
                    remove_abandoned(&staging, &stem(&place.id))?;
                    let beside = same_disk(&staging, &settings.registry_storage);
                    let estimate = if beside { Sharing::Source } else { Sharing::Nothing };
                    require_room(&staging, needed(&settings, &estimate)?)?;
                    let partial = PartialBackup::begin(&staging, &stem(&place.id))?;
                    within.begin(Phase::Copying);
                    let order = CopyOrder {
                        settings: &settings,
                        master_key: false,
                        series: Some(place),
                        sharing: Sharing::Source,
                        work: within.clone(),
                        now,
                    };
                    copy_data(partial.path(), order)?;
                    within.begin(Phase::Verifying);
                    let summary = verify_as(partial.path(), &within)?;
                    let packed = pack(partial.path(), &summary, &within)?;
                    Ok((partial, summary, packed))
                })
                .await?;
                registry.push(&packed, work).await?;
                let digest = packed.digest.clone();
                let record = BackupRecord::of(&summary, (&name, &shown), digest, BackupDisk::ELSEWHERE, now);
                Ok(Prepared { record, held: Held::Registry(packed, partial) })
            }
        }
    }

    /// Gives a backup its name.
    pub(super) async fn publish(&self, prepared: Prepared) -> Result<(), BackupError> {
        let Prepared { record, held } = prepared;
        match (held, &self.kind) {
            (Held::Folder(partial), _) => blocking(move || partial.finish(&record.name)).await,
            (Held::Registry(packed, staged), Kind::Registry(registry)) => {
                let published = registry.publish(&packed, &record.name).await;
                blocking(move || {
                    drop(staged);
                    Ok(())
                })
                .await?;
                Ok(published?)
            }
            // A backup is published by the target that prepared it.
            (Held::Registry(..), Kind::Folder(_)) => Err(BackupError::Interrupted),
        }
    }

    /// Whether a backup of this digest has its name.
    pub(super) async fn contains(&self, record: &BackupRecord) -> Result<bool, BackupError> {
        match self.kind.clone() {
            Kind::Folder(folder) => {
                let record = record.clone();
                blocking(move || folder.contains(&record)).await
            }
            Kind::Registry(registry) => Ok(registry.has(&record.name, &record.digest).await?),
        }
    }

    /// Removes a backup that has its digest.
    pub(super) async fn remove(&self, record: &BackupRecord, series: &str) -> Result<(), BackupError> {
        match self.kind.clone() {
            Kind::Folder(folder) => {
                let (record, series) = (record.clone(), series.to_owned());
                blocking(move || folder.remove(&record, &series)).await
            }
            Kind::Registry(registry) => Ok(registry.remove(&record.name, &record.digest).await?),
        }
    }

    /// Reads all of a backup. One of the records, which are those of this target, must have its digest.
    pub(super) async fn verify(
        &self,
        name: &str,
        records: Vec<BackupRecord>,
        work: &Work,
    ) -> Result<(), BackupError> {
        work.begin(Phase::Verifying);
        match self.kind.clone() {
            Kind::Folder(folder) => {
                let (name, work) = (name.to_owned(), work.clone());
                blocking(move || folder.verify(&name, &records, &work)).await
            }
            Kind::Registry(registry) => {
                if let Some(record) = records.iter().find(|record| record.name == name)
                    && !registry.has(&record.name, &record.digest).await?
                {
                    return Err(BackupError::not_as_made());
                }
                let found = registry.find(Some(name)).await?;
                registry.verify(&found.digest, work).await
            }
        }
    }

    /// The backups at the target by name, also those of others.
    pub(super) async fn list(&self, records: &[BackupRecord]) -> Result<Vec<BackupView>, BackupError> {
        let own =
            |name: &str| records.iter().find(|record| record.name == name && record.target == self.shown);
        match self.kind.clone() {
            Kind::Folder(folder) => {
                let silent = || BackupError::Silent { target: self.shown.clone() };
                let listed = async {
                    let turn = Arc::clone(&self.lists).acquire_owned().await;
                    blocking(move || {
                        let _turn = turn;
                        folder.list()
                    })
                    .await
                };
                let found = tokio::time::timeout(LIST_TIME, listed).await.map_err(|_| silent())??;
                let views = found.into_iter().map(|(name, summary)| {
                    own(&name).map_or_else(
                        || BackupView {
                            made_at: Some(summary.made_at),
                            bytes: Some(summary.bytes),
                            files: Some(summary.files),
                            servers: Some(summary.servers),
                            jobs: Some(summary.jobs),
                            ..foreign(name.clone())
                        },
                        view,
                    )
                });
                Ok(views.collect())
            }
            Kind::Registry(registry) => {
                let mut tags = registry.tags().await?;
                tags.retain(|tag| stem_of(tag).is_some());
                tags.sort();
                Ok(tags.into_iter().map(|tag| own(&tag).map_or_else(|| foreign(tag.clone()), view)).collect())
            }
        }
    }
}

/// A recorded backup in the API.
pub(super) fn view(record: &BackupRecord) -> BackupView {
    BackupView {
        name: record.name.clone(),
        made_at: Some(record.made_at),
        bytes: Some(record.bytes),
        files: Some(record.files),
        servers: Some(record.servers),
        jobs: Some(record.jobs),
        digest: Some(record.digest.clone()),
        verified_at: Some(record.verified_at),
        damage: record.damage.clone(),
        own: true,
    }
}

fn foreign(name: String) -> BackupView {
    BackupView {
        name,
        made_at: None,
        bytes: None,
        files: None,
        servers: None,
        jobs: None,
        digest: None,
        verified_at: None,
        damage: None,
        own: false,
    }
}

/// Runs work that blocks on the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    // A task that was dropped with its runtime did not end.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(BackupError::Interrupted))
}
