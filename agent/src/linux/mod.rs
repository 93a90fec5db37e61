//! `install-linux.target`: partitions, file systems, an OCI root file system, a boot loader, and the seed of cloud-init.
//!
//! ```text
//! layout + disks + job id --layout--> volumes with fixed UUIDs
//! partition.service           wipe, GPT, arrays, volume groups, file systems, mounted below Host::root
//! image-linux.service         layers of the image, fstab, then the stamp of this job
//! bootloader-linux.service    EFI/<id> and EFI/BOOT of the image's own loader, grub.cfg, NVRAM entry; BIOS: grub-install
//! config-drive.service        NoCloud seed, empty machine-id; then everything is unmounted
//! ```
//!
//! Invariants: only partitions of the chosen disks are written. All UUIDs come from the job id, so a second run of the same job
//! finds its own table and its own stamp: then it keeps partitions and root file system and does the rest again. Without
//! both it begins from an empty disk. Every path in the new root is resolved inside of it by the kernel. What needs root is
//! behind [`Host`].

mod host;
mod install;
mod layout;
mod loader;
mod members;
mod nvram;
mod storage;
mod swap;
mod texts;

pub use host::{Host, LinuxHost, Program, enter_root};
pub use install::{Installation, LinuxTarget};
pub use layout::{Layout, LayoutVolume};
pub use members::{ArrayPlan, DiskLayout, GroupPlan, LogicalPlan, Place};
pub(crate) use nvram::partition_of;
pub use nvram::{Nvram, NvramEntry};
pub use texts::OsRelease;

#[cfg(test)]
mod tests;
