//! What the twin's host runs: the seam to whatever plays the operating system.
//!
//! ```text
//!   twin: end of Post ──► Host::power_on(BootContext) ──► the embedding program starts its simulated system
//!                                   │  cancel ◄── power lost, reset, shutdown: the system is gone at once
//!                                   ├─ halt()    the system powers its own machine off
//!                                   └─ reboot()  the system restarts its own machine
//! ```
//!
//! `halt` and `reboot` work only while this very boot still runs: a system that outlived its machine moves nothing.

use std::fmt;

use tokio_util::sync::CancellationToken;

use super::{config::MediaKind, sim_bmc::WeakSimBmc};

/// A media URL. Its path carries the right to read an image, so it is shown only to who asks by name.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct MediaUrl(String);

impl MediaUrl {
    pub(super) fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL as it was given to the BMC.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment of the path, which is all that logs may show.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Debug for MediaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaUrl(…/{})", self.file_name())
    }
}

/// What the firmware started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootSource {
    /// The installed disk, whatever is on it.
    Disk,
    /// The medium in a virtual media slot.
    Media {
        /// The slot's id.
        slot: String,
        /// What it holds.
        url: MediaUrl,
    },
}

/// A medium that is in a slot at boot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InsertedMedia {
    /// The slot's id.
    pub slot: String,
    /// How the host sees the slot.
    pub kind: MediaKind,
    /// What it holds.
    pub url: MediaUrl,
}

/// Everything a simulated operating system may know about its machine.
#[derive(Clone, Debug)]
pub struct BootContext {
    /// The machine's serial number (what DMI would say).
    pub serial: String,
    /// What was booted.
    pub boots_from: BootSource,
    /// All media in the slots, in the order of the slots.
    pub media: Vec<InsertedMedia>,
    /// Cancelled when the machine loses power or restarts.
    pub cancel: CancellationToken,
    /// Counts the boots of this twin from 1.
    pub generation: u64,
    pub(super) machine: WeakSimBmc,
}

impl BootContext {
    /// The operating system switches its machine off. Does nothing if this boot is over.
    pub fn halt(&self) {
        self.machine.host_stops(self.generation, false);
    }

    /// The operating system restarts its machine. Does nothing if this boot is over.
    pub fn reboot(&self) {
        self.machine.host_stops(self.generation, true);
    }
}

/// Plays the operating system. The calls come from inside an async runtime and must return at once: an
/// implementation spawns its work and ends it when [`BootContext::cancel`] is cancelled.
pub trait Host: Send + Sync {
    /// The firmware has started an operating system.
    fn power_on(&self, boot: BootContext);

    /// The operating system of the machine with this serial number is gone (its token is cancelled already).
    fn power_off(&self, serial: &str);
}

/// A machine on which nothing runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullHost;

impl Host for NullHost {
    fn power_on(&self, _boot: BootContext) {}

    fn power_off(&self, _serial: &str) {}
}
