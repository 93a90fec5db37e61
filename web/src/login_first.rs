//! The login comes before the form: a form is read and parsed for a caller that the API knows, and for no other.
//!
//! ```text
//!   POST of a page ──> who asks? (GET /api/v1/me in this process) ──unknown──> the login; the body is not read
//!                                  `── known ──> the page reads its form
//! ```
//!
//! Invariant: it is around every page, so a new page cannot forget it. The pages that a browser without a login may send are
//! [`OPEN`](super::form::OPEN), and their forms are short.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::IgnoredAny;

use super::Pages;
use super::form::OPEN;
use super::visit::Visit;

/// Refuses a form of an unknown caller before its body is read.
pub(super) async fn check(State(pages): State<Pages>, request: Request, next: Next) -> Response {
    if *request.method() != Method::POST || OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let Ok(visit) = Visit::from_request_parts(&mut parts, &pages).await;
    match visit.get::<IgnoredAny>("/api/v1/me").await {
        Ok(_known) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => visit.respond(Err(refusal)).await,
    }
}
