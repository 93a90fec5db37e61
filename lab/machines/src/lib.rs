//! A simulated data centre: BMCs that behave like real ones and machines that really install.
//!
//! ```text
//! farm ─┬─ lab_bmc    simulated BMCs: power, slots, boot override      (crate lab-bmc)
//!       ├─ admin           what goes wrong, and what happened, through a door of its own
//!       ├─ machine         serial and disks of one machine
//!       └─ maintenance_os  what boots from media: find the task, validate, partition, pull, unpack, report
//!             ├─ http_disc   a virtual CD: ISO bytes by HTTP ranges
//!             ├─ oci         pull by digest, unpack layers
//!             ├─ gpt, disk   partition table and content of a sparse disk file, and their proof
//!             └─ console     what the machines print
//! images ── oci            the demo's material: a root file system pushed as a client would, a maintenance ISO
//! ```
//!
//! Used by demo, selftest and tests. It is a client of the controller and nothing else: it talks to it over HTTP,
//! reads its images as bytes, and shares no document types with it. What a machine may do wrong is data
//! ([`maintenance_os::InstallerBehaviour`], `lab_bmc::Fault`).
//!
//! What is simulated and what is real: the ISO 9660 images, range requests, registry exchange, digests, GPT and webhook
//! are real; a file system is a tar stream behind a header ([`disk`]), firmware is a look at El Torito and a marker
//! file ([`images`]), and an installed system that boots is a disk whose bytes verify.
//!
//! Allowed arrows: `sim -> {lab_bmc, iso9660, model}`. DESIGN sections 2, 7, 8 and 13.

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
        AfterReport, ReportDelivery, InstallResult, InstallerBehaviour, MaintenanceOs, MediaBoot, Medium, InstallOutcome,
        Tools,
    },
};

#[cfg(test)]
mod test_kit;
