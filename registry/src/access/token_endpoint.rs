//! The endpoint that issues tokens.
//!
//! ```text
//!  GET  /v2/token?service=&scope=&scope=      Authorization: Basic …, or none          200 {"token",…}, 401
//!  POST /v2/token  grant_type=password&username=&password=&service=&scope=             OAuth 2 form, same responses
//! ```
//!
//! The scopes in a token depend on the policy alone, never on which repositories exist. Refresh tokens are not issued:
//! clients keep using their credentials. Refused credentials are recorded as a denial; a request without credentials
//! where some are needed is not, because clients find out that way.
//!
//! Specification: Docker "Token Authentication Specification", "OAuth2 Token Authentication".

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};

use super::credentials::Credentials;
use super::policy::PolicySubject;
use super::scope::Scope;
use super::token_authority::{Issued, PATH, TokenAuthority};
use super::{Action, Audit, AuditEvent, Audited, BASIC, Caller, Denied};
use crate::http::caller::caller;
use crate::http::error::{ApiError, Code};
use crate::http::query;

const FORM_MAX: usize = 16 << 10;
const FORM_PATIENCE: Duration = Duration::from_secs(10);

/// The state of both routes.
#[derive(Clone)]
struct TokenEndpoint {
    authority: Arc<TokenAuthority>,
    audit: Arc<dyn Audit>,
}

pub(super) fn router(authority: Arc<TokenAuthority>, audit: Arc<dyn Audit>) -> Router {
    Router::new().route(PATH, get(by_query).post(by_form)).with_state(TokenEndpoint { authority, audit })
}

impl TokenEndpoint {
    /// Records refused credentials.
    fn record_refusal(&self, subject: &Result<PolicySubject, Denied>, caller: Caller<'_>) {
        let Err(denied) = subject else { return };
        let event = AuditEvent {
            time: SystemTime::now(),
            subject: None,
            peer: caller.peer,
            what: Audited::Denied(Action::Pull, *denied),
            repository: None,
            reference: None,
            digest: None,
            size: None,
        };
        event.log();
        self.audit.record(&event);
    }
}

async fn by_query(State(endpoint): State<TokenEndpoint>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let asked = parts.uri.query();
    let subject = endpoint.authority.control.subject(caller(&parts)).await;
    endpoint.record_refusal(&subject, caller(&parts));
    respond(&endpoint.authority, asked, subject).unwrap_or_else(IntoResponse::into_response)
}

async fn by_form(State(endpoint): State<TokenEndpoint>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let authority = &endpoint.authority;
    let form = async {
        let form = read(body).await?;
        let value = |key| query::value(Some(&form), key).unwrap_or_default();
        if value("grant_type") != "password" {
            return Err(bad(
                "grant_type is not supported: use grant_type=password with a name and a password",
            ));
        }
        let credentials = Credentials::basic(&value("username"), &value("password"));
        let subject = match credentials {
            Some(credentials) => authority.control.authenticate(&credentials, caller(&parts)).await,
            None => Err(Denied::Unauthorized),
        };
        endpoint.record_refusal(&subject, caller(&parts));
        respond(authority, Some(&form), subject)
    };
    form.await.unwrap_or_else(IntoResponse::into_response)
}

/// Reads the form as a query string. A form writes a space as `+`.
async fn read(body: Body) -> Result<String, ApiError> {
    let form = tokio::time::timeout(FORM_PATIENCE, to_bytes(body, FORM_MAX)).await;
    let form = form.ok().and_then(Result::ok).and_then(|form| String::from_utf8(form.into()).ok());
    Ok(form
        .ok_or_else(|| bad("the form is too large, was sent too slowly or is not text"))?
        .replace('+', "%20"))
}

fn respond(
    authority: &TokenAuthority,
    asked: Option<&str>,
    subject: Result<PolicySubject, Denied>,
) -> Result<Response, ApiError> {
    if query::value(asked, "service").is_some_and(|service| service != authority.service()) {
        return Err(bad("tokens are issued for this service only: use the service in the challenge"));
    }
    let scopes: Vec<_> = query::values(asked, "scope").flatten().collect();
    let scopes = Scope::parse_all(scopes.iter().map(AsRef::as_ref));
    let issued = subject.and_then(|subject| authority.issue(&subject, scopes)).map_err(refuse)?;
    Ok(document(&issued))
}

fn document(issued: &Issued) -> Response {
    let document = serde_json::json!({
        "token": issued.token,
        "access_token": issued.token,
        "expires_in": issued.expires_in,
        "issued_at": rfc3339(issued.issued_at),
    });
    let mut response = Response::new(Body::from(document.to_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn refuse(denied: Denied) -> ApiError {
    match denied {
        Denied::Unavailable => ApiError::unavailable(denied),
        Denied::RateLimited => ApiError::rate_limited(denied),
        Denied::Unauthorized | Denied::OutOfScope | Denied::Forbidden => {
            ApiError::new(StatusCode::UNAUTHORIZED, Code::Unauthorized, denied.to_string())
                .with_header(header::WWW_AUTHENTICATE, HeaderValue::from_static(BASIC))
        }
    }
}

fn bad(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, Code::Unsupported, message)
}

/// Seconds since 1970 as `YYYY-MM-DDThh:mm:ssZ`.
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), expected);
        }
    }
}
