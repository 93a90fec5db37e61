//! The workflows with a simulated BMC on a real socket, by a worker elsewhere that can be stopped at any request.
//!
//! ```text
//!   kit          the controller, the worker, the BMC
//!   elsewhere    power cycles and inventories; a worker that is late
//!   bios         settings of the BIOS: a worker that dies at each request
//!   firmware     installations of firmware: a worker that dies at each request, and how many requests one costs
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bios;
mod elsewhere;
mod firmware;
mod kit;
