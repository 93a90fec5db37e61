//! The connections of clients: how many there may be, whose are closed for new ones, and which requests have room.
//!
//! ```text
//!   accept ── Admission::admit ──> ConnectionGuard ──> AdmittedStream (stalled clients, sent responses)
//!                 |                      |
//!                 v                      `──> IncomingRequest::begin ── claim ──> handler ── proof ──> response, counted
//!               Table  (pure: who holds what)
//! ```
//!
//! Invariants: a new connection never waits behind idle ones; a request in progress is never ended for another; media reads of
//! running jobs and requests of the API have budgets of their own; no client holds what all others need (decision D25).

mod admission;
mod request;
mod shares;
mod stream;
mod table;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;

pub(super) use admission::{Admission, AdmissionParts, Connection, ConnectionGuard};
pub(super) use request::IncomingRequest;
pub(super) use shares::Serves;
pub(super) use stream::AdmittedStream;
