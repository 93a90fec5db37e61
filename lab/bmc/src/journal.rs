//! The journal of a simulated BMC: its requests and state changes in order, the last N of them.
//!
//! ```text
//!   #41  2.031s  request  POST /redfish/v1/…/VirtualMedia.InsertMedia   Insert   204
//!   #42  2.031s  change   Inserted { slot: "CD1", file: "boot.iso" }
//!   #43  2.040s  request  GET  /redfish/v1/…/VirtualMedia/CD1           Read     200
//! ```
//!
//! Invariants: the journal is bounded and drops the oldest entry first; a request is added when it ends (response sent,
//! connection cut, client gone), its changes before it; queries, headers and bodies are not kept.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;

use super::types::{Power, ResetType};

/// The kind of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// GET or HEAD.
    Read,
    /// A new session.
    Login,
    /// The end of a session.
    Logout,
    /// PATCH of the system.
    PatchSystem,
    /// PATCH of the settings of the BIOS.
    PatchBios,
    /// `ComputerSystem.Reset`.
    Reset,
    /// `VirtualMedia.InsertMedia`, or the insert of the vendor.
    Insert,
    /// `VirtualMedia.EjectMedia`, or the eject of the vendor.
    Eject,
    /// A request that brings a firmware image or starts an update.
    Update,
    /// `Manager.Reset`.
    ResetManager,
    /// A request that only this vendor needs: enabling slots, writing the location of an image, an OEM boot device.
    Configure,
    /// A request that the simulated BMC does not know.
    Unknown,
}

impl RequestKind {
    /// Whether the request would change the host, its firmware or its BIOS settings, the BMC, a slot or the boot override.
    pub fn is_mutation(self) -> bool {
        matches!(
            self,
            Self::PatchSystem
                | Self::PatchBios
                | Self::Reset
                | Self::Insert
                | Self::Eject
                | Self::Update
                | Self::ResetManager
                | Self::Configure
        )
    }
}

/// A change of the state of a simulated BMC.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StateChange {
    /// A medium was inserted into a slot.
    Inserted {
        /// The slot's id.
        slot: String,
        /// The last segment of the URL of the image.
        file: String,
    },
    /// A medium was ejected from a slot.
    Ejected {
        /// The slot's id.
        slot: String,
    },
    /// A medium was removed while an operating system booted with it was running: the disk may be corrupt.
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
    /// Settings of the BIOS were written; they wait for the end of POST unless they are in force at once.
    BiosWritten {
        /// The attributes, or `BootOrder`.
        names: Vec<String>,
    },
    /// Settings of the BIOS came into force.
    BiosApplied {
        /// The attributes, and `BootOrder`.
        names: Vec<String>,
    },
    /// A reset was accepted.
    Reset(ResetType),
    /// The power state changed to this one.
    Power(Power),
    /// The firmware booted the disk.
    BootedDisk,
    /// The firmware booted the medium in a slot.
    BootedMedia {
        /// The slot's id.
        slot: String,
    },
    /// The operating system switched its machine off or restarted it.
    HostStopped {
        /// Whether it was a restart.
        restart: bool,
    },
}

/// One line of the journal.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct JournalEntry {
    /// The number of the entry; it counts from 1 and never repeats.
    pub sequence: u64,
    /// Time since the start of the simulated BMC.
    pub at: Duration,
    /// The request or the change.
    pub what: JournalItem,
}

/// The content of a [`JournalEntry`].
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalItem {
    /// A request.
    Request {
        /// The method.
        method: String,
        /// The path, without query.
        path: String,
        /// The kind of the request.
        operation: RequestKind,
        /// The status code of the response; `None` when there was no response.
        status: Option<u16>,
    },
    /// A change of state.
    Change(StateChange),
}

/// The bounded list of entries.
#[derive(Debug)]
pub(super) struct Journal {
    entries: VecDeque<JournalEntry>,
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
        self.entries.push_back(JournalEntry { sequence: self.sequence, at, what });
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &JournalEntry> {
        self.entries.iter()
    }
}
