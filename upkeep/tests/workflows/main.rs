//! The workflows with a simulated BMC on a real socket, by a worker elsewhere that can be stopped at any request.
//!
//! ```text
//!   kit          the controller, the worker, the BMC
//!   counted      how many requests each call of a step sends
//!   images       firmware images in memory, and the URLs from which BMCs read them
//!   elsewhere    power cycles and inventories; a worker that is late
//!   away         BMCs that are silent, or refuse the login, in the middle of a change
//!   bios         settings of the BIOS: a worker that dies at each request
//!   firmware     installations of firmware: a worker that dies at each request, and how many requests one costs
//!   left_update  an update that a run leaves to the BMC, and the runs after it
//!   power_loss   a server that loses mains power while its BMC flashes
//!   windows      a maintenance window that ends while a run waits
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod away;
mod bios;
mod counted;
mod elsewhere;
mod firmware;
mod identity;
mod images;
mod kit;
mod left_update;
mod power_loss;
mod unclear_inventory;
mod windows;
