//! Which routes a token with labels may use. What it reaches there is decided by the API.
//!
//! Invariant: a new route is closed for tokens with labels until it is entered here.

use axum::http::Method;

/// How a route deals with the labels of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The path names a job.
    OfJob,
    /// The path names a server.
    OfServer,
    /// The handler applies the labels.
    ByHandler,
    /// Tokens with labels are refused.
    Refused,
}

/// How a route deals with the labels of a token.
pub fn labels_of(method: &Method, route: &str) -> Labels {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match route {
        "/api/v1/me" | "/api/v1/me/password" | "/api/v1/jobs" => Labels::ByHandler,
        "/api/v1/session" | "/api/v1/sessions" | "/api/v1/sessions/{id}" => Labels::ByHandler,
        "/api/v1/servers" | "/api/v1/media" if reads => Labels::ByHandler,
        "/api/v1/jobs/{id}"
        | "/api/v1/jobs/{id}/events"
        | "/api/v1/jobs/{id}/explain"
        | "/api/v1/jobs/{id}/log"
        | "/api/v1/jobs/{id}/media"
        | "/api/v1/jobs/{id}/cancel"
        | "/api/v1/jobs/{id}/hold"
        | "/api/v1/jobs/{id}/resume"
        | "/api/v1/jobs/{id}/finish"
        | "/api/v1/jobs/{id}/retry" => Labels::OfJob,
        "/api/v1/servers/{serial}" | "/api/v1/servers/{serial}/card" if reads => Labels::OfServer,
        "/api/v1/servers/{serial}/inventory"
        | "/api/v1/servers/{serial}/bios"
        | "/api/v1/servers/{serial}/maintenance"
        | "/api/v1/servers/{serial}/probe"
        | "/api/v1/servers/{serial}/diagnostics"
        | "/api/v1/servers/{serial}/condition"
        | "/api/v1/servers/{serial}/conditions"
        | "/api/v1/servers/{serial}/restored"
        | "/api/v1/servers/{serial}/release" => Labels::OfServer,
        _ => Labels::Refused,
    }
}
