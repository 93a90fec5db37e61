//! Tests of the whole program through its public surfaces: real sockets, the public API, simulated servers, and where a
//! process must die the real binary.
//!
//! ```text
//!   kit      Client ----------------------+--> controller, in this process (Scene) or as a process of its own (Process)
//!            Farm of simulated servers <--+
//!   jobs     what a good job does               api     what the API refuses, and how
//!   reports  what the maintenance OS may say    media   what images answer
//!   bmc      what BMCs get wrong                crash   what survives the death of the process
//!   secrets  what never leaves                  demo    the first command of a new user
//!   stream   events as they happen                batches  many jobs in one call
//!   images   what must stay in the registry       requests   how much a job asks of a BMC
//!   registry who may do what with images, and what an operator asks of the registry
//!   admission  what may begin, and when
//!   guards   what must not be possible           operators  what a person asks of a job
//!   outgoing events posted to others                     esxi     an installer that cannot report
//!   faults   every known fault of a BMC, each with its ending   soak  all of it, while the controller is killed
//! ```
//! DESIGN sections 5 to 9 and 13.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admission;
mod api;
mod batches;
mod bmc;
mod crash;
mod demo;
mod emulator;
mod esxi;
mod faults;
mod guards;
mod images;
mod jobs;
mod kit;
mod limits;
mod media;
mod operators;
mod outgoing;
mod probe;
mod registry;
mod reports;
mod requests;
mod secrets;
mod slots;
mod soak;
mod stream;
mod vendors;
