//! The program of the maintenance medium. It finds the job of its machine on the virtual media, carries it out, and
//! reports the result.
//!
//! ```text
//! block devices --discovery--> job + recipe --task--> target, disk hints, image
//!                                                        |
//! sysfs --disks--> facts --select--> exactly one disk ---+--plan--> named steps --steps--> writes to that disk
//!                                                                                   |
//!                                       report (progress, the end, the last lines of the log) <--'
//! ```
//!
//! Invariants: nothing is written before the serial number of the machine matched and exactly one disk was selected.
//! Nothing outside of that disk is written. Every byte of an image is verified by digest. What is decided is decided by
//! pure functions; disks, HTTP and time are behind traits, so that tests need neither root nor a machine.
//!
//! docs/maintenance-os.md is the contract with the controller.

pub mod ata;
pub mod clock;
pub mod command;
pub mod device;
pub mod discovery;
pub mod disk_image;
pub mod erase;
pub mod facts;
pub mod file_system;
pub mod former;
#[doc(hidden)]
pub mod fuzz;
pub mod gpt;
pub mod http;
pub mod init;
pub mod inventory;
pub mod job;
pub mod layer;
pub mod linux;
pub mod log;
pub mod medium;
pub mod modules;
pub mod net;
pub mod nvme;
pub mod oci;
pub mod outcome;
pub mod plan;
pub mod report;
pub mod rescue;
pub mod run;
pub mod search;
pub mod select;
pub mod serials;
pub mod stable_disks;
pub mod task;
pub mod transmit;
pub mod windows;
pub mod wipe;

#[cfg(test)]
mod test_kit;
