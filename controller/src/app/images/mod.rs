//! The registry as part of the appliance: opened with its settings, guarded, audited, kept tidy, its images held for the
//! jobs that need them.
//!
//! | file | what it makes true |
//! |---|---|
//! | `access` | who may do what: users, tokens, jobs, rules |
//! | `audit` | what happened is in the log of events and in the metrics |
//! | `care` | uploads swept, garbage collected, everything verified, the read-only switch |

mod access;
mod audit;
mod maintenance;

use registry::{Config, Registry, Reserve};

use super::{StartError, lock, make_folder, setting};
use crate::config::Settings;

pub(super) use access::RegistryAccess;
pub(super) use audit::{Recorder, write as write_audit};
pub(super) use maintenance::{Care, RegistryMaintenance};

/// Opens the registry of a data directory.
pub(super) async fn open(settings: &Settings) -> Result<Registry, StartError> {
    make_folder(&settings.registry_storage)?;
    let mut config = Config::new(settings.registry_storage.clone());
    config.max_blob_size = settings.registry_max_blob_size;
    config.reserve = settings.registry_reserve.parse::<Reserve>().map_err(setting("use REGISTRY_RESERVE"))?;
    config.quotas = settings.registry_quotas.clone();
    config.sparse_images = settings.registry_sparse_images.clone();
    Registry::open(config).await.map_err(|why| StartError::Registry(Box::new(why)))
}

/// A registry for a command that works on it while no controller runs.
pub struct Offline {
    /// The registry.
    pub registry: Registry,
    _lock: lock::DataLock,
}

impl Offline {
    /// Opens the registry of a data directory that no controller works on.
    ///
    /// # Errors
    /// When a controller runs on it, or it cannot be opened.
    pub async fn open(settings: &Settings) -> Result<Self, StartError> {
        make_folder(&settings.storage_root)?;
        if let Some(folder) = settings.db_path.parent() {
            make_folder(folder)?;
        }
        let lock = lock::DataLock::take(&settings.db_path)?;
        Ok(Self { registry: open(settings).await?, _lock: lock })
    }
}
