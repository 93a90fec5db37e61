//! The parts that every route of the HTTP API has in common: the errors, the checks before a handler, the headers after it, the
//! live stream of events, and the description of one operation.
//!
//! | module | contents |
//! |---|---|
//! | `error`, `error_code` | the one format of a refusal, and the catalogue of its codes (docs/errors.md) |
//! | `refusals` | the errors of accounts, keys and workers elsewhere as refusals |
//! | `shape`, `query` | what is wrong with a body or a query parameter, at its place |
//! | `host`, `browser`, `overload` | requests that no handler sees: a wrong host, a forged request of a browser, too many at once |
//! | `labels` | which routes a token with labels may use |
//! | `response_headers` | what every response carries, by the class of its route |
//! | `feed` | the live stream of events, bounded for each client |
//! | `operation` | a row of the operation table, from which the OpenAPI document is made |
//!
//! Invariants: nothing here knows a route of its own; a handler of `api` cannot respond with an error that has no code.

pub mod browser;
pub mod error;
pub mod error_code;
#[cfg(test)]
mod error_code_tests;
pub mod feed;
pub mod host;
pub mod labels;
pub mod operation;
pub mod overload;
pub mod query;
mod refusals;
pub mod response_headers;
pub mod shape;
