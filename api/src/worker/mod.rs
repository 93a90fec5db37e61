//! `/worker/v1/…`: the commands of workers elsewhere (decision D33).
//!
//! ```text
//!   worker (token of a worker, HTTPS)                     controller
//!   POST hello        versions, queues ----------------> compared; listed; the settings of Redfish requests
//!   POST claim        waits at most 20 s --------------> calls, each with the record and the BMC password of its server
//!   POST progress, report, release --------------------> the fence of the engine decides; what follows a report may be a call
//!   POST interrupted  waits at most 20 s --------------> the claims that must stop
//!   POST firmware, hardware ---------------------------> for an open call of this worker only
//! ```
//!
//! These routes are no part of the API for people and programs: they are not in `/openapi.json`, and their messages change with
//! [`engine::PROTOCOL`]. They accept no API token, and no other route accepts the token of a worker.
//!
//! Invariants: a response carries the password of one BMC beside a call for it; the token is checked before the body is read; a
//! report is bounded by [`engine::MAX_MESSAGE`], every other message by 64 KiB, and a worker by the requests and reports that it may
//! have open; a controller that stops lets no request wait.

mod caller;
mod calls;
mod claim;
mod files;
mod hello;
mod parcel;
mod roster;

use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, post};
use serde::de::DeserializeOwned;

use super::Api;
use super::error::ApiError;
use super::extract::read_body;
use super::shape;

pub use roster::{ReadAuthorities, Workers};

/// Every route of workers.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Api>)> {
    vec![
        ("/worker/v1/hello", post(hello::hello)),
        ("/worker/v1/claim", post(claim::claim)),
        ("/worker/v1/progress", post(calls::progress)),
        ("/worker/v1/report", post(calls::report)),
        ("/worker/v1/release", post(calls::release)),
        ("/worker/v1/interrupted", post(claim::interrupted)),
        ("/worker/v1/firmware", post(files::firmware)),
        ("/worker/v1/hardware", post(files::hardware)),
    ]
}

/// The longest message that carries no output of a step.
const MAX_SHORT: usize = 64 << 10;

/// The body of a message that carries no output of a step.
struct Message<T>(T);

impl<T: DeserializeOwned> FromRequest<Api> for Message<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Api) -> Result<Self, ApiError> {
        read(request, MAX_SHORT).await.map(Self)
    }
}

/// Reads a message of at most `limit` bytes.
async fn read<T: DeserializeOwned>(request: Request, limit: usize) -> Result<T, ApiError> {
    let body = read_body(request, limit).await?;
    serde_json::from_slice(&body).map_err(|error| {
        let mut detail = shape::refusal::<T>(&body, &error);
        detail.message = format!("the message of the worker cannot be read: {}", detail.message);
        ApiError::invalid(vec![detail])
    })
}

/// The response without a body.
const DONE: StatusCode = StatusCode::NO_CONTENT;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_workers_is_in_the_golden_table() {
        let table: String = routes().iter().map(|(path, _)| format!("{path}\n")).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/worker-routes.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
