//! Tests of each simulated BMC against the known behaviour of its vendor, with requests written by hand.
//!
//! They use neither the client nor a socket: requests are handled in process, in virtual time, and images are read from
//! memory.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod dell;
mod faults;
mod kit;
mod others;
mod sushy;
mod tls;
mod updates;
mod ways;
