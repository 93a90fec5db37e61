//! The registry as part of the controller: opened with its settings, with access control, audit and maintenance.
//!
//! | file | contents |
//! |---|---|
//! | `access` | authentication and policy: users, tokens, jobs, rules |
//! | `audit` | audit events in the event log and in the metrics |
//! | `request_audit` | changes in the audit log, before the response |
//! | `waiting` | responses that wait for their audit entries |
//! | `pins` | the pins of jobs, and the removal of those that a job has left |
//! | `shown` | one repository with its tags, for operators |
//! | `maintenance` | sweep of uploads, garbage collection, retention, scrub, the read-only switch |

mod access;
mod audit;
mod maintenance;
mod pins;
mod request_audit;
mod shown;
mod times;
mod waiting;

use std::path::PathBuf;

use registry::{Config, Registry, Reserve};

use super::{StartError, create_directory, lock, setting};
use ::access::audit::{AuditAction, local_entry};
use model::Time;
use settings::Settings;
use store::{StoreError, record_in_file};

pub(super) use access::RegistryAccess;
pub(super) use audit::{AuditRecorder, write as write_audit_events};
pub(super) use maintenance::{MaintenanceSettings, RegistryMaintenance};
pub(super) use pins::{owner as pin_owner, remove_ended as remove_pins_of_ended_jobs};

/// Opens the registry of a data directory.
pub(super) async fn open(settings: &Settings) -> Result<Registry, StartError> {
    create_directory(&settings.registry_storage)?;
    let mut config = Config::new(settings.registry_storage.clone());
    config.max_blob_size = settings.registry_max_blob_size;
    config.reserve = settings.registry_reserve.parse::<Reserve>().map_err(setting("use REGISTRY_RESERVE"))?;
    config.quotas = settings.registry_quotas.clone();
    config.immutable_tags = settings.registry_immutable_tags.clone();
    config.sparse_images = settings.registry_sparse_images.clone();
    Registry::open(config).await.map_err(|why| StartError::Registry(Box::new(why)))
}

/// A registry for a command that works on it while no controller runs on its data directory.
pub struct OfflineRegistry {
    /// The opened registry.
    pub registry: Registry,
    database: PathBuf,
    _lock: lock::DataLock,
}

impl OfflineRegistry {
    /// Opens the registry of a data directory under the lock of a controller.
    ///
    /// # Errors
    /// When a controller runs on the data directory, or the registry cannot be opened.
    pub async fn open(settings: &Settings) -> Result<Self, StartError> {
        let lock = lock::DataLock::take(settings)?;
        super::backup::refuse_incomplete(settings)?;
        let registry = open(settings).await?;
        Ok(Self { registry, database: settings.db_path.clone(), _lock: lock })
    }

    /// Records a change in the audit log of the data directory, if there is a database. Blocks on the disk.
    ///
    /// # Errors
    /// When the entry cannot be stored.
    pub fn record(&self, action: AuditAction, now: Time) -> Result<(), StoreError> {
        match self.database.exists() {
            true => record_in_file(&self.database, &local_entry(action, "registry", "local", now)),
            false => Ok(()),
        }
    }
}
