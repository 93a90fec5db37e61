//! Log in and out.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ui::view::LoginView;

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The longest name that is shown again after a refusal.
const SHOWN: usize = 64;

/// Shows the login.
pub(super) async fn show(visit: Visit) -> Response {
    login(&visit, StatusCode::OK, None, "", visit.query.get("next"))
}

/// Logs a browser in.
pub(super) async fn log_in(visit: Visit, form: Form) -> Response {
    // The credentials of the form become those of the request, which the API does not ask for its origin with a token. Otherwise
    // another site could log a browser in with a token of its own, and see what the operator then enters.
    if !visit.is_of_this_site() {
        let why = "A page of another site sent this login. Log in on this page.";
        return login(&visit, StatusCode::FORBIDDEN, Some(why.to_owned()), "", "");
    }
    let (user, password) = (form.get("user"), form.get("password"));
    let credentials = match user {
        "" => format!("Bearer {}", password.trim()),
        user => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
    };
    let Ok(mut credentials) = HeaderValue::from_str(&credentials) else {
        return login(
            &visit,
            StatusCode::UNAUTHORIZED,
            Some("These credentials are not valid.".to_owned()),
            user,
            form.get("next"),
        );
    };
    credentials.set_sensitive(true);
    let own = HeaderMap::from_iter([(header::AUTHORIZATION, credentials)]);
    match visit.send(Method::POST, "/api/v1/session", own, None).await {
        Ok(response) => {
            let done = format!("/ui/login/done?next={}", encoded(local(form.get("next"))));
            let cookie = response.headers.get(header::SET_COOKIE).cloned();
            let cookie = cookie.map(|cookie| [(header::SET_COOKIE, cookie)]);
            match cookie {
                Some(cookie) => (cookie, Redirect::to(&done)).into_response(),
                None => Redirect::to(&done).into_response(),
            }
        }
        Err(refusal) => login(&visit, refusal.status, Some(words(&refusal)), user, form.get("next")),
    }
}

/// Follows a login: a browser that did not keep the cookie is not sent around in a circle.
pub(super) async fn done(visit: Visit) -> Response {
    let next = local(visit.query.get("next"));
    if visit.session().is_some() {
        return Redirect::to(next).into_response();
    }
    let why = "Your browser did not keep the login. It does so only over https, or on the controller’s own machine. \
               Open this page by the https address of the controller, and allow its cookie.";
    login(&visit, StatusCode::BAD_REQUEST, Some(why.to_owned()), "", next)
}

/// Logs a browser out.
pub(super) async fn log_out(visit: Visit, form: Form) -> Response {
    let change = Change { method: Method::DELETE, path: "/api/v1/session", body: None, form: &form };
    let ended = visit.change(change).await.map(|response| {
        let cookie = response.headers.get(header::SET_COOKIE).cloned();
        let cookie = cookie.map(|cookie| [(header::SET_COOKIE, cookie)]).into_iter().flatten();
        (HeaderMap::from_iter(cookie), Redirect::to("/ui/login")).into_response()
    });
    visit.respond(ended).await
}

fn login(visit: &Visit, status: StatusCode, refused: Option<String>, user: &str, next: &str) -> Response {
    let view = LoginView {
        refused,
        ended: visit.query.get("ended") == "form",
        user: user.chars().take(SHOWN).collect(),
        next: local(next).to_owned(),
        plain_http: !visit.is_over_tls() && !visit.is_proxied(),
    };
    let page = html(&view).unwrap_or_else(|refusal| refusal.status.into_response());
    (status, page).into_response()
}

fn words(refusal: &Refusal) -> String {
    match refusal.status {
        StatusCode::UNAUTHORIZED => "User and password, or the token, are not valid.".to_owned(),
        _ => refusal.text(),
    }
}

/// A page of this controller, and nothing else: a link must not lead a fresh login elsewhere.
fn local(next: &str) -> &str {
    let ours = next.starts_with("/ui/") && !next.contains(['\\', '\r', '\n']) && !next.starts_with("/ui/log");
    if ours { next } else { "/ui/" }
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn a_login_leads_to_a_page_of_this_controller_only() {
        for (next, expected) in [
            ("/ui/jobs?q=a%20b", "/ui/jobs?q=a%20b"),
            ("", "/ui/"),
            ("https://elsewhere.example/ui/", "/ui/"),
            ("//elsewhere.example/ui/", "/ui/"),
            ("/ui/\\elsewhere", "/ui/"),
            ("/ui/login", "/ui/"),
            ("/api/v1/jobs", "/ui/"),
        ] {
            assert_eq!(local(next), expected, "{next}");
        }
    }
}
