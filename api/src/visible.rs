//! The reach of a token with labels: servers with these labels, and the jobs of those servers.
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
use axum::http::request::Parts;

use super::Api;
use super::error::{ApiError, unknown_job, unknown_server};
use super::error_code::ErrorCode;
use super::labels::{Labels, labels_of};
use access::auth::{Principal, ServerScope};
use model::{RunId, Serial};

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
