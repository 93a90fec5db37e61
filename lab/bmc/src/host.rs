//! The host of a simulated BMC: the trait between it and a simulated operating system.
//!
//! ```text
//!   BMC: end of POST ──► Host::power_on(BootContext) ──► the embedding program starts its simulated system
//!                                   │  cancel ◄── power lost, reset, shutdown: the system ends at once
//!                                   ├─ halt()    the system powers off its machine
//!                                   └─ reboot()  the system restarts its machine
//! ```
//!
//! `halt` and `reboot` work only while this boot is running: a system of an earlier boot changes nothing.

use std::{fmt, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::types::MediaKind;

/// A media URL. Its path carries the right to read an image, so `Debug` shows only the file name.
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

    /// The last segment of the path, the only part that logs may show.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Debug for MediaUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MediaUrl(…/{})", self.file_name())
    }
}

/// The source that the firmware booted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BootSource {
    /// The installed disk, with any content.
    Disk,
    /// The medium in a virtual media slot.
    Media {
        /// The slot's id.
        slot: String,
        /// The URL of the image in it.
        url: MediaUrl,
    },
}

/// A medium that is in a slot at boot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InsertedMedia {
    /// The slot's id.
    pub slot: String,
    /// The kind of drive that the host sees.
    pub kind: MediaKind,
    /// The URL of the image in it.
    pub url: MediaUrl,
}

/// The machine of an operating system, as the operating system controls it.
pub(super) trait HostControl: fmt::Debug + Send + Sync {
    /// Ends the operating system of this boot: the machine powers off, or restarts. Does nothing if the boot is over.
    fn host_stops(&self, generation: u64, restart: bool);
}

/// The facts about its machine that a simulated operating system has.
#[derive(Clone, Debug)]
pub struct BootContext {
    /// The machine's serial number, as in DMI.
    pub serial: String,
    /// The boot source.
    pub boots_from: BootSource,
    /// All media in the slots, in the order of the slots.
    pub media: Vec<InsertedMedia>,
    /// Cancelled when the machine loses power or restarts.
    pub cancel: CancellationToken,
    /// Number of this boot, from 1.
    pub generation: u64,
    pub(super) machine: Arc<dyn HostControl>,
}

impl BootContext {
    /// Switches the machine off on behalf of the operating system. Does nothing if this boot is over.
    pub fn halt(&self) {
        self.machine.host_stops(self.generation, false);
    }

    /// Restarts the machine on behalf of the operating system. Does nothing if this boot is over.
    pub fn reboot(&self) {
        self.machine.host_stops(self.generation, true);
    }
}

/// Simulates the operating system. The methods are called inside an async runtime and must return at once: an
/// implementation spawns its work and ends it when [`BootContext::cancel`] is cancelled.
pub trait Host: Send + Sync {
    /// Called after the firmware started an operating system.
    fn power_on(&self, boot: BootContext);

    /// Called after the operating system of the machine with this serial number ended (its token is cancelled already).
    fn power_off(&self, serial: &str);

    /// Called when the BMC asks the operating system to shut down, with
    /// [`Graceful::PassedToHost`](crate::Graceful::PassedToHost) only. A system that complies calls [`BootContext::halt`]; the
    /// BMC remembers whether it is to power the machine on again.
    fn shut_down(&self, _serial: &str) {}
}

/// A host that runs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullHost;

impl Host for NullHost {
    fn power_on(&self, _boot: BootContext) {}

    fn power_off(&self, _serial: &str) {}
}
