//! Requests of browsers: a change must come from a page of this controller.
//!
//! ```text
//!   GET, HEAD ────────────────────────────────────────────────────────> no check; they change nothing
//!   Authorization: Bearer ────────────────────────────────────────────> no check; a browser adds none by itself
//!   other changes ── Sec-Fetch-Site, or else Origin, names another site ──> 403
//!                 └─ with a session cookie, without its X-CSRF-Token ─────> 403
//! ```
//!
//! The login page turns what it is sent into `Authorization`, so it makes the first check itself: another site must not log a
//! browser in as a user of its choice.
//!
//! The first check also protects a password that a browser remembers for this host, and `AUTH_MODE=none`. A program that sends
//! neither header is no browser. The second check does not rely on the browser.

use super::error::ApiError;
use super::error_code::ErrorCode;
use access::auth::SessionSecret;
use access::origin::{same_site, sole};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};

/// The header of the proof.
pub const CSRF_HEADER: &str = "x-csrf-token";
const FETCH_MODE: &str = "sec-fetch-mode";

/// Refuses a changing request that another site may have caused.
///
/// # Errors
/// When the request has a session and neither the proof nor a sign of the same site.
pub fn check(parts: &Parts, session: Option<&SessionSecret>) -> Result<(), ApiError> {
    if matches!(parts.method, Method::GET | Method::HEAD) || is_bearer(&parts.headers) {
        return Ok(());
    }
    if !same_site(&parts.headers) {
        return Err(refused("a page of another site sent this request; use a page of this controller"));
    }
    let Some(session) = session else { return Ok(()) };
    let presented = sole(&parts.headers, CSRF_HEADER).unwrap_or_default();
    if session.accepts(presented) {
        return Ok(());
    }
    Err(refused("a change with a session cookie needs X-CSRF-Token, the csrf_token of GET /api/v1/session"))
}

/// Whether a script of a page sent the request, so that the browser must not ask for a password itself.
pub fn is_script(headers: &HeaderMap) -> bool {
    sole(headers, FETCH_MODE).is_some_and(|mode| mode != "navigate")
}

fn is_bearer(headers: &HeaderMap) -> bool {
    let scheme = sole(headers, AUTHORIZATION.as_str()).and_then(|value| value.split(' ').next());
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
}

fn refused(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Csrf, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use axum::http::header::HOST;

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request =
            Request::builder().method(method).uri("/api/v1/jobs").header(HOST, "shoal.example:8443");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_change_that_another_site_caused_is_refused_with_every_credential_but_bearer() {
        for (headers, allowed) in [
            (vec![], true),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "none")], false),
            (vec![("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "cross-site"), ("origin", "https://shoal.example:8443")], false),
            (vec![("origin", "https://shoal.example:8443")], true),
            (vec![("origin", "http://shoal.example:8443")], true),
            (vec![("origin", "https://shoal.example")], false),
            (vec![("origin", "https://shoal.example.evil:8443")], false),
            (vec![("origin", "https://evil.example")], false),
            (vec![("origin", "null")], false),
            (vec![("origin", "https://evil.example"), ("authorization", "Basic eDp5")], false),
            (vec![("origin", "https://evil.example"), ("authorization", "Bearer shoal_x")], true),
            (vec![("sec-fetch-site", "cross-site"), ("authorization", "bearer shoal_x")], true),
        ] {
            for method in ["POST", "PATCH", "DELETE"] {
                let checked = check(&parts(method, &headers), None);
                assert_eq!(checked.is_ok(), allowed, "{method} {headers:?}");
            }
            assert!(check(&parts("GET", &headers), None).is_ok(), "{headers:?}");
        }
    }

    #[test]
    fn a_change_with_a_session_needs_its_proof() {
        let session = SessionSecret::generate().unwrap();
        let token = session.csrf_token();
        let token = secrecy::ExposeSecret::expose_secret(&token);
        let check =
            |method, headers: &[(&str, &str)]| super::check(&parts(method, headers), Some(&session)).is_ok();
        assert!(check("POST", &[(CSRF_HEADER, token)]));
        assert!(check("DELETE", &[(CSRF_HEADER, token), ("sec-fetch-site", "same-origin")]));
        assert!(!check("POST", &[]));
        assert!(!check("POST", &[("sec-fetch-site", "same-origin")]));
        assert!(!check("POST", &[(CSRF_HEADER, "0")]));
        assert!(!check("POST", &[(CSRF_HEADER, token), (CSRF_HEADER, token)]));
        assert!(!check("POST", &[(CSRF_HEADER, token), ("sec-fetch-site", "cross-site")]));
        assert!(check("GET", &[]));
    }
}
