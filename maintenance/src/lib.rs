//! The bootable image of the maintenance OS, built from Debian packages without root and without foreign tools.
//!
//! ```text
//! folder of .deb files --package--> Tree (files of all packages) --+--> kernel modules of a profile, closed   (modules)
//! or kernel and modules of this machine ---------------------------+--> programs and their libraries          (programs)
//!                                                                  +--> kernel, signed boot loaders
//! agent program (/init) --+                                                        |
//!                         +--> initramfs (cpio, xz) --+                            |
//!                                                     +--> ISO 9660: BIOS, UEFI with Secure Boot, USB stick
//!                              FAT image (shim, GRUB) +        with /.shoal/build.json, the record of all this
//!
//! these packages again --trial--> the smallest image that can be installed, as an OCI image layout
//!
//! mirror --fetch--> InRelease (OpenPGP) -> Packages (SHA-256) -> .deb files (SHA-256) in a folder
//! ```
//!
//! Invariants: the same inputs give the same bytes, on every machine and in every order of the folder; no clock is read, the
//! date of an image is that of the newest package in it. A package of which nothing is used does not change the image. A missing
//! library, driver or boot loader ends the build with its name. Packages are read as hostile input: lengths and counts are
//! limited, and no path of a package is used on this machine.
//!
//! The signatures of kernel and boot loaders are kept: their files are copied unchanged. The initramfs is not signed; Secure
//! Boot does not protect the agent.

mod agent_file;
mod archive;
pub mod artifact;
mod boot;
mod build;
mod control;
mod cpio;
mod drivers;
mod elf;
mod error;
mod fat;
pub mod fetch;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod inspect;
mod licences;
mod modules;
mod package;
mod profile;
mod programs;
mod record;
#[cfg(test)]
mod test_kit;
mod tree;
mod trial;
mod unpack;

pub use agent_file::{agent_of_this_program, find_agent};
pub use build::{Inputs, KernelSource, Medium, build};
pub use error::Error;
pub use inspect::inspect;
pub use profile::ImageProfile;
pub use record::{
    FileRecord, FirmwareRecord, InitramfsRecord, PackageRecord, ProgramRecord, RECORD_FORMAT, RECORD_PATH,
    Record,
};
pub use trial::write_trial_image;
