//! A simulated data centre: simulated BMCs, and machines that perform real installations.
//!
//! ```text
//! farm ─┬─ lab_bmc         simulated BMCs: power, slots, boot override      (crate lab-bmc)
//!       ├─ admin           HTTP API on a separate port: set faults, read journals
//!       ├─ machine         serial number and disks of one machine
//!       └─ maintenance_os  what boots from media: find the task, validate, partition, pull, unpack, report
//!             ├─ http_disc   a virtual CD: ISO bytes by HTTP ranges
//!             ├─ oci         pull by digest, unpack layers
//!             ├─ gpt, disk   partition table and content of a sparse disk file, and their verification
//!             └─ console     what the machines print
//! images ── oci            images of the demo: a root file system, pushed over HTTP, and a maintenance ISO
//! ```
//!
//! Demo, selftest and tests use this crate. It is only a client of the controller: it sends HTTP requests, reads images
//! as bytes, and shares no document types with the controller. What a machine may do wrong is data
//! ([`maintenance_os::InstallerBehaviour`], `lab_bmc::Fault`).
//!
//! What is simulated and what is real: the ISO 9660 images, range requests, registry requests, digests, GPT and
//! installation report are real. A file system is a tar stream behind a header ([`disk`]). Firmware only checks the El
//! Torito boot entry and a marker file ([`images`]). An installed system boots if the content of its disk verifies.
//!
//! See docs/architecture.md and docs/maintenance-os.md.

pub mod admin;
pub mod backoff;
pub mod console;
pub mod disk;
pub mod farm;
pub mod gpt;
pub mod http;
pub mod http_disc;
pub mod images;
pub mod machine;
pub mod maintenance_os;
pub mod oci;

pub use self::{
    console::{Console, ConsoleLine},
    farm::{BootRecord, BootResult, Farm, FarmConfig, FarmError, HostKind, ServerSpec, SimulatedServer},
    machine::{DiskSpec, Machine, NoBootableDisk},
    maintenance_os::{
        AfterReport, InstallOutcome, InstallResult, InstallerBehaviour, MaintenanceOs, MediaBoot, Medium,
        ReportDelivery, Tools,
    },
};

#[cfg(test)]
mod test_kit;
