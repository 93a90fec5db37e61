//! A BMC that cannot be looked at, as clients see it.

use axum::http::StatusCode;

use super::super::error::ApiError;
use provision::probe::Trouble;

/// 502: the BMC's fault, or that of the way to it; 422: the server's record.
pub(super) fn error(why: &Trouble) -> ApiError {
    let (status, code) = match why.code.as_str() {
        "record" | "config" => (StatusCode::UNPROCESSABLE_ENTITY, "server_record"),
        _ => (StatusCode::BAD_GATEWAY, "bmc"),
    };
    ApiError::new(status, code, format!("{}; {}", why.sentence, why.next_action))
}
