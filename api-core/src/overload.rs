//! The response to a request for which there is no room, in the error format of its path.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use uuid::Uuid;

use super::error::ApiError;
use super::error_code::ErrorCode;
use super::response_headers::{self, RouteClass};

/// Why a request has no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overload {
    /// The client has as many requests in progress as one client may.
    Share,
    /// All clients together use what there is.
    All,
}

/// Builds the response: 429 when the client exceeds its share, 503 otherwise. The connection is closed with it.
pub fn overload_response(path: &str, overload: Overload) -> Response {
    let (code, message, seconds) = match overload {
        Overload::Share => (
            ErrorCode::RateLimited,
            "this address has too many requests in progress; repeat the request after Retry-After",
            "5",
        ),
        Overload::All => (
            ErrorCode::Unavailable,
            "the controller has too many requests in progress; repeat the request after Retry-After",
            "2",
        ),
    };
    if path.starts_with("/v2/") {
        let (status, code) = match overload {
            Overload::Share => (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"),
            Overload::All => (StatusCode::SERVICE_UNAVAILABLE, "UNKNOWN"),
        };
        let body = Json(json!({ "errors": [{ "code": code, "message": message }] }));
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response_headers::add(response.headers_mut(), RouteClass::of(path), false);
        return response;
    }
    let error =
        ApiError::new(code, message).header(header::RETRY_AFTER, seconds).header(header::CONNECTION, "close");
    let mut response = error.render(&Uuid::now_v7().to_string());
    response_headers::add(response.headers_mut(), RouteClass::of(path), false);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_room_is_refused_with_the_time_of_its_repetition() {
        for (path, overload, status) in [
            ("/api/v1/jobs", Overload::Share, 429),
            ("/api/v1/jobs", Overload::All, 503),
            ("/v2/a/manifests/b", Overload::Share, 429),
            ("/v2/a/manifests/b", Overload::All, 503),
        ] {
            let response = overload_response(path, overload);
            assert_eq!(response.status().as_u16(), status, "{path}");
            assert!(response.headers().contains_key(header::RETRY_AFTER), "{path}");
            assert_eq!(response.headers()[header::CONNECTION], "close", "{path}");
        }
    }
}
