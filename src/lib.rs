//! The program `shoal`: the command line of a bare-metal provisioning appliance.
//!
//! `shoal serve` runs the controller, which is the crate `controller`; the other commands are its clients or work on local
//! files. The crates of the workspace and their dependencies: docs/architecture.md.

pub mod cli;
