//! The source of ids and jitter. Keys and nonces have another source, because they must never repeat.
//!
//! Invariant: only the controller's start asks the operating system for ids that are stored and for jitter. Every other module
//! receives an [`IdSource`], so that a simulation can be repeated (decision D10). The placeholder ids of a dry run are not
//! stored.

use std::sync::Arc;

use uuid::Uuid;

use super::time::Time;

/// The source of new ids and of jitter.
pub trait IdSource: Send + Sync + 'static {
    /// A new, time-ordered id (UUID version 7).
    fn new_id(&self, now: Time) -> Uuid;
    /// A random number in `0.0..1.0`.
    fn jitter(&self) -> f64;
}

/// Ids and jitter from the random numbers of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemIdSource;

impl IdSource for SystemIdSource {
    fn new_id(&self, _now: Time) -> Uuid {
        Uuid::now_v7()
    }

    /// Returns `1.0` when the operating system fails: the delay then has no jitter.
    fn jitter(&self) -> f64 {
        let mut bytes = [0_u8; 4];
        match getrandom::fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
            Err(_) => 1.0,
        }
    }
}

/// A shared [`SystemIdSource`].
pub fn system_id_source() -> Arc<dyn IdSource> {
    Arc::new(SystemIdSource)
}
