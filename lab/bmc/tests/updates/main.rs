//! Updates of firmware: the client with simulated BMCs over real sockets; the two share only the specification.
//!
//! ```text
//!   ways      each vendor's way end to end, for the BMC and for the BIOS, with the number of requests
//!   faults    each defect of an update, and what the client reports
//!   cuts      every request of an update is lost once, before and after it is carried out: no image arrives twice
//!   golden    what each vendor offers, and which way is chosen, in golden/update-services.txt
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cuts;
mod faults;
mod golden;
mod kit;
mod ways;
