//! Wraps every request: request id, audit entry, security headers, metrics, a log line, and rendering of errors.

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;
use uuid::Uuid;

use super::Api;
use super::error::ApiError;
use super::extract::peer_of;
use super::request_audit::RequestAudit;
use super::response_headers;
use store::audited;
use telemetry::request_span;

/// The header of the request id, in requests and responses.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest request id accepted from a client.
const MAX_ID: usize = 64;

/// Adds the middleware to a router.
pub(super) fn wrap(router: Router<Api>, api: &Api) -> Router<Api> {
    router
        .layer(axum::middleware::from_fn_with_state(api.clone(), around))
        .layer(axum::middleware::from_fn(response_headers::around))
}

/// Adds the security headers to a router with an error format of its own.
pub(super) fn with_headers(router: Router) -> Router {
    router.layer(axum::middleware::from_fn(response_headers::around))
}

async fn around(
    State(api): State<Api>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let given = request.headers().get(&REQUEST_ID).and_then(|id| id.to_str().ok());
    let usable = |id: &&str| {
        !id.is_empty()
            && id.len() <= MAX_ID
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let id = given.filter(usable).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    // The route pattern, never the path: a path may contain a grant token, and a label needs few values.
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    // A path without a route has no segments, and one that is not UTF-8 is refused by its handler.
    let segments: Vec<(String, String)> =
        path.iter().flatten().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
    let worker = api.engine.owner();
    let span = request_span::of_request(&id, request.method().as_str(), &route, &segments, worker);
    let began = api.clock().elapsed();
    // Media have no route and change nothing.
    let audit = (route != "other").then(|| {
        RequestAudit::begin(&api, request.method(), &route, &segments, peer_of(request.extensions()), &id)
            .with_query(request.uri().query())
    });
    let handler = next.run(request).instrument(span.clone());
    let mut response = match &audit {
        Some(audit) => audited(audit.trail(), handler).await,
        None => handler.await,
    };
    let mut error = response.extensions_mut().remove::<ApiError>();
    if let Some(audit) = audit
        && let Err(unrecorded) = audit.finish(&api, response.status(), error.as_ref()).await
    {
        error = Some(unrecorded);
    }
    if let Some(error) = error {
        let allow = response.headers_mut().remove(header::ALLOW);
        response = error.render(&id);
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    let status = response.status().as_u16();
    api.metrics.http_request(&route, status);
    let duration_ms = api.clock().elapsed().saturating_sub(began).as_millis();
    span.in_scope(|| tracing::debug!(status, duration_ms, "request"));
    response
}
