//! The runs of a world that are checked at their end (`run_ends`).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use model::{RunId, Serial};

/// The runs that are checked at their end.
#[derive(Default)]
pub(super) struct WatchedRuns {
    pub(super) runs: Mutex<BTreeMap<RunId, (Serial, What)>>,
    /// The counters of the BMC before the first change by a run.
    pub(super) before: Mutex<BTreeMap<RunId, Counters>>,
    /// The number of accepted installations of firmware.
    pub(super) installations: AtomicU64,
}

/// The kind of a run.
#[derive(Clone, Copy)]
pub(super) enum What {
    Installation,
    Settings,
    Rescue { off: bool },
}

/// The counters of a BMC.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    pub(super) accepted: usize,
    /// Writes of settings that waited or were in force already.
    pub(super) needless: u64,
}
