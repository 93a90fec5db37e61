//! The caller's account: its logins, and the colours of its pages.

use axum::extract::Path;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Redirect, Response};
use ui::data::SessionPage;
use ui::view::{AccountView, Tab, Theme};

use super::form::Form;
use super::visit::{Change, Visit, encoded, html};

/// Shows the account.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = async {
        let sessions: SessionPage = visit.get("/api/v1/sessions").await?;
        let frame = visit.frame("Your account", Tab::None).await?;
        html(&AccountView::of(frame, &sessions))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Ends a login.
pub(super) async fn end_session(visit: Visit, Path(id): Path<String>, form: Form) -> Response {
    let path = format!("/api/v1/sessions/{}", encoded(&id));
    let change = Change { method: Method::DELETE, path: &path, body: None, form: &form };
    let done = visit.change(change).await;
    let done = done.map(|_| Redirect::to("/ui/account?done=session").into_response());
    visit.respond(done).await
}

/// Keeps the colours in a cookie. Nothing of the controller changes, so no proof of a session is needed.
pub(super) async fn theme(form: Form) -> Response {
    let theme = Theme::parse(form.get("theme")).word();
    let back =
        Some(form.get("back")).filter(|back| back.starts_with("/ui/") && !back.contains(['\\', '\r', '\n']));
    let cookie = format!("shoal-theme={theme}; Path=/ui; Max-Age=31536000; SameSite=Strict");
    ([(header::SET_COOKIE, cookie)], Redirect::to(back.unwrap_or("/ui/"))).into_response()
}
