//! The services that every workflow which touches a machine shares: connections to its BMC, the identity check, power, one-time
//! boot, media slots, waits for a BMC, and limits per BMC.
//!
//! ```text
//!   a step of a workflow
//!      |  BmcServices::connect (server record, lease)         -> ConnectedBmc
//!      |  identity::verify (serial number, before any change)
//!      |  power, boot, slots: observe -> checkpoint -> send -> read back
//!      v                                             |
//!   StepError <--- classify: Redfish error ----------+--- not shown yet: a wait of `waits`, in a StepReport
//!
//!   a probe (no step, no lease): BmcServices::probe, probe::direct -> card, facts, BmcProblem; changes nothing
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`waits`], [`class`] | the closed lists of wait reasons and failure classes of this crate |
//! | [`power`], [`boot`], [`slots`] | the actions: each observes, sends what is missing, and reads the change back |
//! | [`slots`] | also the slot planner: which image goes into which slot |
//! | [`updates`] | an update that an earlier run has left to a BMC: looked at before power, BMC or media are changed |
//! | [`identity`] | compares the serial number of a machine with the registered one |
//! | [`probe`] | reads a BMC for an operator, with or without a registered server |
//!
//! Invariants
//! - A BMC receives a change only while the lease of the worker outlives the request (decision D7); a probe's client sends no
//!   change at all.
//! - Every change is read back. A change that a read does not show is a wait with a deadline, not a success (decisions D4
//!   and D6).
//! - A power request or an insert is recorded in a checkpoint before it is sent (decision D8).
//! - However many clients connect to a BMC, it has one set of limits: requests in flight, rate, rejected logins, circuit
//!   breaker (decision D17).
//! - This crate knows no workflow. It names neither what is installed nor why a machine is changed.
//!
//! Elsewhere: vendors' differences are data in `redfish`; workflows own their steps, plans and outputs; the controller
//! implements [`ServerLookup`] and [`SessionStore`].

mod addresses;
pub mod boot;
mod classify;
mod connections;
pub mod identity;
mod lookup;
pub mod power;
pub mod probe;
mod profiles;
mod reader;
mod services;
pub mod slots;
mod state;
mod step;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
pub mod updates;
pub mod waits;

#[cfg(test)]
mod tests;

pub use addresses::{
    Addresses, MediaBases, base_url_towards, bmc_address, checked_base_url, checked_bmc_address,
    checked_fingerprint,
};
pub use classify::{failure, finished, from_redfish, from_redfish_change, overdue, unavailable};
pub use connections::{
    BmcConnector, BmcLimits, Bmcs, ConnectError, Connected, SealedSession, SessionStore, SocketConnector,
};
pub use lookup::{ServerLookup, Unavailable};
pub use profiles::{checked_profile, checked_quirks};
pub use reader::Reader;
pub use services::BmcServices;
pub use step::{ConnectedBmc, lease_lost, output_of, wait_for_bmc};

/// The queue of the steps of every workflow that touches a machine.
pub const QUEUE: &str = "default";

/// The failure classes that workflows share. A workflow may add its own.
pub mod class {
    use model::FailureClass;

    pub use model::class::TRANSIENT;

    /// The request is wrong: the order, the server record, credentials, or the BMC of another machine.
    pub const INPUT: FailureClass = FailureClass::new("input");
    /// The BMC does not respond.
    pub const BMC_UNREACHABLE: FailureClass = FailureClass::new("bmc_unreachable");
    /// The BMC refused the request.
    pub const BMC_REFUSED: FailureClass = FailureClass::new("bmc_refused");
    /// The BMC lacks a required function.
    pub const UNSUPPORTED: FailureClass = FailureClass::new("unsupported");
    /// The BMC carries out an update that an earlier run has left to it.
    pub const UPDATE_RUNNING: FailureClass = FailureClass::new("update_running");
    /// An image could not be built, read or served.
    pub const MEDIA: FailureClass = FailureClass::new("media");
}
