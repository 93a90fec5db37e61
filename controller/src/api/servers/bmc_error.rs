//! The error response for a BMC that cannot be read.

use axum::http::StatusCode;

use super::super::error::ApiError;
use provision::probe::BmcProblem;

/// 502 for a problem of the BMC or the network; 422 for a problem of the server's record.
pub(super) fn error(why: &BmcProblem) -> ApiError {
    let (status, code) = match why.code.as_str() {
        "record" | "config" => (StatusCode::UNPROCESSABLE_ENTITY, "server_record"),
        _ => (StatusCode::BAD_GATEWAY, "bmc"),
    };
    ApiError::new(status, code, format!("{}; {}", why.sentence, why.next_action))
}
