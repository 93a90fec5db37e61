//! What happened to a twin, in order: every request and every change, the last N of them.
//!
//! ```text
//!   #41  2.031s  request  POST /redfish/v1/…/VirtualMedia.InsertMedia   Insert   204
//!   #42  2.031s  change   Inserted { slot: "CD1", file: "boot.iso" }
//!   #43  2.040s  request  GET  /redfish/v1/…/VirtualMedia/CD1           Read     200
//! ```
//!
//! Invariants: bounded, oldest first out; a request is entered when it ends (answered, cut or given up by the
//! client), its changes before it; neither queries, headers nor bodies are kept.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::power::{Power, ResetType};

/// What a request means.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// GET or HEAD.
    Read,
    /// A new session.
    Login,
    /// The end of a session.
    Logout,
    /// PATCH of the system.
    PatchSystem,
    /// `ComputerSystem.Reset`.
    Reset,
    /// `VirtualMedia.InsertMedia`, or the vendor's own way.
    Insert,
    /// `VirtualMedia.EjectMedia`, or the vendor's own way.
    Eject,
    /// What only this vendor demands beside: enabling slots, writing where an image is, an own boot device.
    Configure,
    /// Nothing the twin knows.
    Unknown,
}

impl Operation {
    /// Whether it is meant to change the host, a slot or the boot override.
    pub fn is_mutation(self) -> bool {
        matches!(self, Self::PatchSystem | Self::Reset | Self::Insert | Self::Eject | Self::Configure)
    }
}

/// A change of the twin's state.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A medium came into a slot.
    Inserted {
        /// The slot's id.
        slot: String,
        /// The last segment of its URL.
        file: String,
    },
    /// A medium left a slot.
    Ejected {
        /// The slot's id.
        slot: String,
    },
    /// A medium was taken from an operating system that was booted with it: the disk may be corrupt.
    EjectedWhileRunning {
        /// The slot's id.
        slot: String,
    },
    /// The boot override was written or consumed.
    BootOverride {
        /// The target.
        target: String,
        /// `Disabled`, `Once` or `Continuous`.
        enabled: &'static str,
    },
    /// A reset was accepted.
    Reset(ResetType),
    /// The power state is now this.
    Power(Power),
    /// The firmware started what is on the disk.
    BootedDisk,
    /// The firmware started what is in a slot.
    BootedMedia {
        /// The slot's id.
        slot: String,
    },
    /// The operating system switched its own machine off or restarted it.
    HostStopped {
        /// Whether it comes back.
        restart: bool,
    },
}

/// One line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Entry {
    /// Counts from 1 and never repeats.
    pub sequence: u64,
    /// Since the start of the twin.
    pub at: Duration,
    /// What happened.
    pub what: JournalItem,
}

/// What an [`Entry`] says.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalItem {
    /// A request.
    Request {
        /// The method.
        method: String,
        /// The path, without query.
        path: String,
        /// What it meant.
        operation: Operation,
        /// The status code of the answer; `None` when there was none.
        status: Option<u16>,
    },
    /// A change of state.
    Change(Change),
}

/// The ring of entries.
#[derive(Debug)]
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    capacity: usize,
    sequence: u64,
}

impl Journal {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity: capacity.max(1), sequence: 0 }
    }

    pub(super) fn add(&mut self, at: Duration, what: JournalItem) {
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
        }
        self.sequence += 1;
        self.entries.push_back(Entry { sequence: self.sequence, at, what });
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
