//! The header `Host` of a request (RFC 9112 section 3.2).
//!
//! A server refuses a request of HTTP/1.1 without `Host`, and every request with more than one `Host` or with one that is no
//! host: a proxy and the controller could otherwise take one request for two different hosts.

use axum::http::{HeaderMap, HeaderValue, Version, header};
use axum::response::Response;
use uuid::Uuid;

use super::error::{ApiError, Detail};
use super::error_code::Rule;
use super::response_headers::{self, RouteClass};

/// The response to a request whose `Host` breaks the rule; `None` when it does not.
pub fn host_refusal(version: Version, headers: &HeaderMap) -> Option<Response> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let problem = match (hosts.next(), hosts.next()) {
        // HTTP/1.0 has no Host, and some BMCs speak it.
        (None, _) if version < Version::HTTP_11 => return None,
        (None, _) => "a request of HTTP/1.1 has the header Host",
        (Some(host), None) if is_host(host) => return None,
        (Some(_), None) => "Host is HOST or HOST:PORT",
        (Some(_), Some(_)) => "a request has the header Host once",
    };
    let error = ApiError::invalid(vec![Detail::new("Host", Rule::Shape, problem)]);
    let error = error.header(header::CONNECTION, "close");
    let mut response = error.render(&Uuid::now_v7().to_string());
    response_headers::add(response.headers_mut(), RouteClass::Api, false);
    Some(response)
}

/// Whether a value is `uri-host [ ":" port ]` of RFC 3986; empty for a target without a host.
fn is_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    let (host, port) = match bytes.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(colon) if bytes[colon] == b':' => (&bytes[..colon], &bytes[colon + 1..]),
        _ => (bytes, &[][..]),
    };
    let host = match host {
        [b'[', address @ .., b']'] => address,
        _ if host.contains(&b':') => return false,
        _ => host,
    };
    let in_host = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:".contains(byte);
    host.iter().all(in_host) && port.iter().all(u8::is_ascii_digit) && port.len() <= 5
}
