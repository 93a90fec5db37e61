//! The laboratory's programs: the demo, simulated servers to try a controller on, seeded worlds, and the benchmark.
//!
//! ```text
//!   shoal demo       demo        a real controller and simulated servers in one process, real sockets, to be watched
//!   shoal sim        sim         simulated servers alone, for a controller that runs elsewhere
//!   shoal selftest   selftest    seeded worlds on virtual time (simulation), or with --bench the measurements (bench)
//! ```
//!
//! The controller is the real one, as a library; nothing here is a copy of what it tests. The program takes [`Command`]
//! into its command line behind the cargo feature `lab`.

mod args;
mod bench;
mod command;
mod demo;
mod selftest;
mod sim;
pub mod simulation;

pub use args::{DemoArgs, SimArgs};
pub use command::Command;
pub use selftest::SelftestArgs;
