//! The caller's account: its logins, its password, and the colours of its pages.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use ui::State;
use ui::data::{ErrorDetail, Me, Session, SessionPage};
use ui::view::{AccountView, FormView, Tab, Theme};

use super::form::Form;
use super::refusal::Refusal;
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

/// The other logins of the caller.
async fn others(visit: &Visit) -> Result<Vec<Session>, Refusal> {
    let page: SessionPage = visit.get("/api/v1/sessions").await?;
    let own = page.sessions.iter().find(|session| session.current).map(|session| session.name.clone());
    let others =
        page.sessions.into_iter().filter(|session| !session.current && Some(&session.name) == own.as_ref());
    Ok(others.collect())
}

/// Asks before the other logins of the caller end.
pub(super) async fn ask_end_others(visit: Visit) -> Response {
    let shown = async {
        let others = others(&visit).await?;
        let frame = visit.frame("End other logins?", Tab::None).await?;
        let view = FormView::new(frame, "End your other logins?", "/ui/account/sessions/end", "/ui/account")
            .below("/ui/account", "Your account")
            .effect(
                State::Held,
                format!("{} of your browsers show the login at their next request.", others.len()),
            )
            .yes("End other logins");
        html(&view)
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Ends the other logins of the caller.
pub(super) async fn end_others(visit: Visit, form: Form) -> Response {
    let done = async {
        for session in others(&visit).await? {
            let path = format!("/api/v1/sessions/{}", encoded(&session.session_id));
            match visit.change(Change { method: Method::DELETE, path: &path, body: None, form: &form }).await
            {
                // It ended by itself since.
                Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {}
                other => drop(other?),
            }
        }
        Ok(Redirect::to("/ui/account?done=sessions").into_response())
    };
    let done = done.await;
    visit.respond(done).await
}

/// Asks for another password.
pub(super) async fn ask_password(visit: Visit) -> Response {
    let shown = password_again(&visit, Vec::new()).await;
    visit.respond(shown).await
}

async fn password_again(visit: &Visit, refused: Vec<ErrorDetail>) -> Result<Response, Refusal> {
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let view = FormView::own_password(visit.frame("Change your password", Tab::None).await?, refused);
    Ok((status, html(&view)?).into_response())
}

/// Changes the caller's password and logs this browser in again: the change ends every login of the user.
pub(super) async fn change_password(visit: Visit, form: Form) -> Response {
    let done = password_changed(&visit, &form).await;
    visit.respond(done).await
}

async fn password_changed(visit: &Visit, form: &Form) -> Result<Response, Refusal> {
    // The proof of the session is checked by a request that has it: the one below presents the password in its place.
    if visit.session().is_some_and(|session| !session.accepts(form.get("csrf"))) {
        let message = "the form is of another login; open the page again";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "csrf", message));
    }
    let me: Me = visit.get("/api/v1/me").await?;
    let wrong = |path: &str, message: &str| vec![ErrorDetail::new(path, message)];
    let (Some(current), Some(new)) =
        (basic(&me.name, form.get("current")), basic(&me.name, form.get("password")))
    else {
        return password_again(visit, wrong("/password", "has a character that no login can send")).await;
    };
    let body = json!({ "password": form.get("password") });
    match visit.send(Method::POST, "/api/v1/me/password", current, Some(body)).await {
        Ok(_) => {}
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => {
            return password_again(visit, wrong("/current", "is not your present password")).await;
        }
        Err(refusal) => return password_again(visit, refusal.details()?).await,
    }
    let login = visit.send(Method::POST, "/api/v1/session", new, None).await?;
    let cookie = login.headers.get(header::SET_COOKIE).cloned();
    let cookie = cookie.map(|cookie| (header::SET_COOKIE, cookie));
    Ok((HeaderMap::from_iter(cookie), Redirect::to("/ui/account?done=password")).into_response())
}

fn basic(name: &str, password: &str) -> Option<HeaderMap> {
    let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(HeaderMap::from_iter([(header::AUTHORIZATION, value)]))
}

/// Stores the theme of the pages in a cookie. Nothing of the controller changes, so no proof of a session is needed.
pub(super) async fn theme(form: Form) -> Response {
    let theme = Theme::parse(form.get("theme")).word();
    let back =
        Some(form.get("back")).filter(|back| back.starts_with("/ui/") && !back.contains(['\\', '\r', '\n']));
    let cookie = format!("shoal-theme={theme}; Path=/ui; Max-Age=31536000; SameSite=Strict");
    ([(header::SET_COOKIE, cookie)], Redirect::to(back.unwrap_or("/ui/"))).into_response()
}
