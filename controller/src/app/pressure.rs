//! Pressure: a full data disk or a registry whose storage cannot be read stops new jobs from starting. A registry that
//! accepts no pushes for lack of space is no pressure: jobs only read from it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use engine::PressureGauge;
use model::{Clock, Pressure, error_chain};

/// Below this many free bytes on the data disk no job starts; the rest is for running jobs.
const MIN_FREE: u64 = 256 << 20;

/// Reads the free space of the disks of the data and of the database, and the state of the registry.
pub(super) struct HealthGauge {
    pub(super) storage: PathBuf,
    pub(super) database: PathBuf,
    pub(super) registry: Option<registry::Registry>,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl PressureGauge for HealthGauge {
    async fn read(&self) -> Option<Pressure> {
        let pressure = |name: &str, detail: String, next_action: &str| {
            let (name, next_action) = (name.to_owned(), next_action.to_owned());
            Some(Pressure { name, since: self.clock.now(), detail, next_action })
        };
        let of_data = "free space under STORAGE_ROOT: run `shoal registry gc --online`, or use a larger disk";
        let of_database = "free space on the disk of DB_PATH, or use a larger disk";
        // One disk is looked at twice when it has both: the first words are those of the data.
        for (name, path, next_action) in
            [("data disk", &self.storage, of_data), ("disk of the database", &self.database, of_database)]
        {
            let Ok(room) = rustix::fs::statvfs(path) else { continue };
            let free = room.f_bavail.saturating_mul(room.f_frsize);
            if free < MIN_FREE {
                let detail =
                    format!("the {name} has {} MiB free; new jobs need {} MiB", free >> 20, MIN_FREE >> 20);
                return pressure("disk", detail, next_action);
            }
        }
        match &self.registry {
            None => None,
            Some(registry) => match registry.accepts_pushes().await {
                Ok(_) => None,
                Err(why) => pressure(
                    "registry",
                    format!("the storage of the registry cannot be used: {}", error_chain(&why)),
                    "check the disk of REGISTRY_STORAGE",
                ),
            },
        }
    }
}
