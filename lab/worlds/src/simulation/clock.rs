//! The clock of a world: virtual time, and a wall clock that can be set.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::time::Instant;

use model::{Clock, MachineRun, Time};

/// Virtual time, and the offset of the wall clock.
#[derive(Debug)]
pub(super) struct WorldClock {
    began: Instant,
    start: Time,
    set_by: Mutex<SignedDuration>,
    /// Whether controllers restart on a machine that runs on; otherwise the machine starts anew with each of them.
    runs_on: bool,
    /// When the machine was started last, by virtual time.
    booted: Mutex<Duration>,
}

impl WorldClock {
    pub(super) fn new(start: Time, runs_on: bool) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            start,
            set_by: Mutex::new(SignedDuration::ZERO),
            runs_on,
            booted: Mutex::default(),
        })
    }

    /// Sets the wall clock forward or back.
    pub(super) fn set(&self, by: SignedDuration) {
        let mut set_by = self.set_by.lock();
        *set_by = set_by.saturating_add(by);
    }

    /// The start of a controller, before which a machine that does not run on is started.
    pub(super) fn controller_starts(&self) {
        if !self.runs_on {
            *self.booted.lock() = self.passed();
        }
    }

    /// The virtual time since the start of the world.
    pub(super) fn passed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// The wall clock of a world.
#[derive(Clone, Debug)]
pub(super) struct WorldWallClock(pub(super) Arc<WorldClock>);

impl Clock for WorldWallClock {
    fn now(&self) -> Time {
        let set_by = *self.0.set_by.lock();
        let now = self.0.start.plus(self.0.passed());
        let by = set_by.unsigned_abs();
        if set_by.is_negative() { now.minus(by) } else { now.plus(by) }
    }

    fn machine_run(&self) -> Option<MachineRun> {
        let booted = *self.0.booted.lock();
        Some(MachineRun { boot: format!("at {booted:?}"), ran: self.0.passed().saturating_sub(booted) })
    }

    fn elapsed(&self) -> Duration {
        self.0.passed()
    }
}
