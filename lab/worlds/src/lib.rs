//! The commands of the laboratory: demo, simulated servers, seeded worlds, and benchmark.
//!
//! ```text
//!   shoal demo       demo        a real controller and simulated servers in one process, connected by sockets
//!   shoal sim        sim         only simulated servers, for a controller that runs elsewhere
//!   shoal sim-bmc    control     faults, journals and restarts of the servers of a running `shoal sim`
//!   shoal selftest   selftest    seeded worlds on virtual time (simulation), or with --bench a benchmark (bench)
//! ```
//!
//! The crate uses the real controller as a library and copies none of its code. The program includes [`Command`] in its
//! command line behind the cargo feature `lab`.

mod args;
mod bench;
mod command;
mod control;
mod demo;
mod selftest;
mod sim;
pub mod simulation;
mod vm;

pub use args::{DemoArgs, SimArgs, VmArgs};
pub use command::Command;
pub use control::{Control, ControlArgs};
pub use selftest::SelftestArgs;
