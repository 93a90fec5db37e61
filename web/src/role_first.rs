//! The role comes before the question: a form or a question of a change is shown to callers who may make the change.
//!
//! Invariant: it is around the routes that [`with_pages`](super::with_pages) gives a role. The change itself is refused by the API,
//! whatever a page shows.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use ui::data::Me;
use ui::view::CallerRole;

use super::Pages;
use super::refusal::Refusal;
use super::visit::Visit;

/// Refuses the form of a change to a caller whose role cannot make it.
pub(super) async fn check(
    State((pages, least)): State<(Pages, CallerRole)>,
    request: Request,
    next: Next,
) -> Response {
    if *request.method() == Method::POST {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let Ok(visit) = Visit::from_request_parts(&mut parts, &pages).await;
    match visit.get::<Me>("/api/v1/me").await {
        Ok(me) if CallerRole::parse(me.role.as_deref()) >= least => {
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(me) => visit.respond(Err(refused(&me, least))).await,
        Err(refusal) => visit.respond(Err(refusal)).await,
    }
}

fn refused(me: &Me, least: CallerRole) -> Refusal {
    let wanted = if least == CallerRole::Admin { "an administrator" } else { "an operator" };
    let message = format!("{} has no permission for this; use the login of {wanted}", me.name);
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", &message)
}
