//! Where randomness comes from: ids and jitter. Keys and nonces are not made here; nobody may ever repeat those.
//!
//! Invariant: nothing below `app` asks the system for jitter or for an id that is kept; a [`Chance`] is handed in, so that a
//! simulation can play the same game twice (lock L10). A dry run's placeholder ids are nobody's.

use std::sync::Arc;

use uuid::Uuid;

use super::time::Time;

/// Where ids and jitter come from.
pub trait Chance: Send + Sync + 'static {
    /// A new, time-ordered id (UUID version 7).
    fn id(&self, now: Time) -> Uuid;
    /// A number in `0.0..1.0`.
    fn fraction(&self) -> f64;
}

/// The system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIdSource;

impl Chance for SystemIdSource {
    fn id(&self, _now: Time) -> Uuid {
        Uuid::now_v7()
    }

    /// A broken source only costs the jitter.
    fn fraction(&self) -> f64 {
        let mut bytes = [0_u8; 4];
        match getrandom::fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
            Err(_) => 1.0,
        }
    }
}

/// The system's randomness, as it is handed around.
pub fn system_id_source() -> Arc<dyn Chance> {
    Arc::new(SystemIdSource)
}
