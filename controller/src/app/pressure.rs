//! What keeps anything new from beginning: a disk without room, a registry whose storage does not answer. A registry that is
//! merely full is no reason: jobs only read from it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use engine::PressureGauge;
use engine::model::{Clock, Pressure, error_chain};

/// Below this much room on the data disk nothing new begins: what runs needs what is left.
const ROOM: u64 = 256 << 20;

/// Looks at the disk and the registry.
pub(super) struct Gauge {
    pub(super) storage: PathBuf,
    pub(super) registry: Option<registry::Registry>,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl PressureGauge for Gauge {
    async fn read(&self) -> Option<Pressure> {
        let pressed = |name: &str, detail: String, next_action: &str| {
            let (name, next_action) = (name.to_owned(), next_action.to_owned());
            Some(Pressure { name, since: self.clock.now(), detail, next_action })
        };
        if let Ok(room) = rustix::fs::statvfs(&self.storage) {
            let free = room.f_bavail.saturating_mul(room.f_frsize);
            if free < ROOM {
                let detail =
                    format!("{} MiB are left on the data disk, less than {}", free >> 20, ROOM >> 20);
                return pressed(
                    "disk",
                    detail,
                    "make room under STORAGE_ROOT: `shoal registry gc`, or a larger disk",
                );
            }
        }
        match &self.registry {
            None => None,
            Some(registry) => match registry.accepts_pushes().await {
                Ok(_) => None,
                Err(why) => pressed(
                    "registry",
                    format!("the registry's storage does not answer: {}", error_chain(&why)),
                    "look at the disk of REGISTRY_STORAGE",
                ),
            },
        }
    }
}
