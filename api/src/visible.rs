//! What a token with labels may reach: servers with these labels, and the jobs of those servers.
//!
//! ```text
//!  caller without labels ────────────────────────────────────────────────> handler
//!  caller with labels ──┬─ route of one job or server ─ labels match ────> handler
//!                       │                              └ otherwise ──────> 404, as for what does not exist
//!                       ├─ route whose handler applies the labels ───────> handler
//!                       └─ any other route ──────────────────────────────> 403
//! ```
//!
//! Invariant: a new route is closed for tokens with labels until it is entered here.

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::http::Method;
use axum::http::request::Parts;

use super::Api;
use super::error::{ApiError, unknown_job, unknown_server};
use super::error_code::ErrorCode;
use access::auth::{Principal, ServerScope};
use model::{RunId, Serial};

/// How a route deals with the labels of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// The path names a job.
    OfJob,
    /// The path names a server.
    OfServer,
    /// The handler applies them.
    ByHandler,
    /// Tokens with labels are refused.
    Refused,
}

/// How a route deals with the labels of a token.
pub(super) fn labels_of(method: &Method, route: &str) -> Labels {
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
        | "/api/v1/servers/{serial}/doctor"
        | "/api/v1/servers/{serial}/condition"
        | "/api/v1/servers/{serial}/conditions"
        | "/api/v1/servers/{serial}/restored"
        | "/api/v1/servers/{serial}/release" => Labels::OfServer,
        _ => Labels::Refused,
    }
}

/// Refuses a request of a token with labels that its labels do not permit.
pub(super) async fn check(parts: &mut Parts, api: &Api, principal: &Principal) -> Result<(), ApiError> {
    let scope = principal.servers();
    if scope.is_everything() {
        return Ok(());
    }
    let route = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let labels = labels_of(&parts.method, &route);
    match labels {
        Labels::ByHandler => Ok(()),
        Labels::OfJob => {
            let id = segment(parts, api).await.parse().map_err(|_| unknown_job())?;
            job(api, &scope, id).await
        }
        Labels::OfServer => {
            let text = segment(parts, api).await;
            let serial = text.parse().map_err(|_| unknown_server(&text))?;
            server(api, &scope, &serial).await
        }
        Labels::Refused => Err(ApiError::new(
            ErrorCode::Forbidden,
            format!(
                "token {} is limited to servers with its labels, and this request is not about one of them; use a token without labels",
                principal.name
            ),
        )),
    }
}

/// 404 unless the server exists and has the labels of `scope`.
pub(super) async fn server(api: &Api, scope: &ServerScope, serial: &Serial) -> Result<(), ApiError> {
    if scope.is_everything() {
        return Ok(());
    }
    let server = api.store().server_or_id(serial).await?;
    match server.filter(|server| scope.includes(&server.labels)) {
        Some(_) => Ok(()),
        None => Err(unknown_server(serial.as_str())),
    }
}

/// 404 unless the job exists and its server has the labels of `scope`.
async fn job(api: &Api, scope: &ServerScope, id: RunId) -> Result<(), ApiError> {
    let labels = api.store().server_labels_of_run(id).await?;
    match labels.filter(|labels| scope.includes(labels)) {
        Some(_) => Ok(()),
        None => Err(unknown_job()),
    }
}

/// The first parameter of the path.
async fn segment(parts: &mut Parts, api: &Api) -> String {
    let parameters = RawPathParams::from_request_parts(parts, api).await;
    let first = parameters.ok().and_then(|all| all.iter().next().map(|(_, value)| value.to_owned()));
    first.unwrap_or_default()
}
