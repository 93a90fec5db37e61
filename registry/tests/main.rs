//! The registry from outside: real sockets, real files, real clients.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod archive;
mod audit;
mod clients;
mod conformance;
mod crash;
mod direct;
mod distribution;
mod durability;
mod hostile;
mod immutable;
mod import;
mod import_in_part;
mod layout;
mod limits;
mod manifests;
mod pullers;
mod quota;
mod referrers;
mod scrub;
mod soak;
mod support;
mod tokens;
mod uploads;
