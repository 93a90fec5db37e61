//! Each simulated BMC against what is known of its vendor, by requests written by hand.
//!
//! Nothing of the client is used here, and no socket: the twins are asked in process, in virtual time, and read their
//! images from memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod dell;
mod faults;
mod kit;
mod others;
mod sushy;
mod tls;
mod ways;
